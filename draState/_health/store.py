"""The health of devices as drivers report it, on kubelet's side: in memory, and on disk for the next process.

A CheckpointCache with one file per driver. Memory comes first here: a device reported as unhealthy must not read as
healthy because the disk is full, and drivers repeat their reports within seconds anyway. Reads take no lock and
never wait.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Unpack

from checkpointmanager import (
    REMOVED,
    CheckpointCache,
    CheckpointError,
    CheckpointManager,
    Event,
    FileOptions,
    KeyLocks,
    ManagerClosed,
    Store,
    check_key,
)

from .device import DEVICE_HEALTH, DeviceHealth, DeviceName, DriverHealth, seconds_since_boot

logger = logging.getLogger("draState")

MOST_DEVICES = 16_384  # per driver, as in kubelet: a driver that invents names must not fill memory and disk
REFRESH_SECONDS = 10.0  # the minimum between two writes that change only the time of a report
LATE_SECONDS = 0.01  # wait this much longer than a time-out, so that it is certainly over and several expire together

Devices = Mapping[DeviceName, DeviceHealth]


@dataclass(frozen=True, slots=True)
class HealthChange:
    """The health of some devices of a driver has changed: ask the store for the current health."""

    driver: str
    devices: frozenset[DeviceName]


class DeviceHealthStore:
    """Safe for many threads. Takes CheckpointManager's options, but never `sharing`.

    Each report is complete: a device that is missing from it, or whose driver has fallen silent, becomes unknown when
    its time-out is over. `on_change` is called for each change, time-outs included, outside all locks, in the thread
    of the report or in the store's own. Two simultaneous changes may be announced in either order, which is why a
    change does not contain the health.

    After a restart, reports count for as long as they would have, or a little less: not every report without news is
    written. After a reboot, no earlier report counts. A driver whose file cannot be trusted or written is in
    `problems`; its next report is written all the same.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        *,
        on_change: Callable[[HealthChange], object] | None = None,
        clock: Callable[[], float] = seconds_since_boot,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        self._manager = CheckpointManager(directory, DEVICE_HEALTH, on_event=on_event, boot_id=boot_id, **options)
        self._process = os.getpid()
        self._on_change = on_change
        self._clock = clock
        self._cache = CheckpointCache(self._manager)
        self._changing = threading.Condition()  # guards the next four attributes, never held during disk access
        self._drivers: dict[str, Devices] = {}  # replaced, never changed; readers need no lock
        self._ignored: dict[str, int] = {}
        self._timer: threading.Thread | None = None
        self.closed = False  # whether close() was called
        self._saving = KeyLocks()  # by driver: held while its file is written
        self._unsaved: dict[str, str] = {}  # guarded by _saving
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def report(self, driver: str, devices: Iterable[DeviceHealth]) -> None:
        """Take a complete report that has just arrived. Later entries of one device replace earlier ones.

        Beyond 16,384 devices, new ones are ignored. A failed write is not an error here: see `problems`.
        """
        check_key(driver)
        listed = list(devices)
        with self._changing_now() as now:
            reported = {device.name: device.arrived(now) for device in listed}
            before = self._drivers.get(driver, {})
            after = {name: old for name, old in before.items() if name in reported or not old.is_over(now)}
            for name, device in reported.items():
                if name in after or len(after) < MOST_DEVICES:
                    after[name] = device
            changed = _changed(before, after, now)
            must_save = changed or driver in self._unsaved or self._is_outdated(driver, after)
            self._swap(driver, after)
            more = self._more_ignored(driver, len(reported.keys() - after))
        if more:
            logger.warning("health of driver %s: ignoring %d devices above the limit, %d", driver, more, MOST_DEVICES)
        self._announce(driver, changed)
        if must_save:
            self._save(driver)

    def forget(self, driver: str) -> None:
        """Call this when the driver's stream has ended: its devices become unknown."""
        check_key(driver)
        with self._changing_now() as now:
            before = self._drivers.get(driver, {})
            self._swap(driver, {})
            self._ignored.pop(driver, None)
        self._announce(driver, _changed(before, {}, now))
        self._save(driver)

    def follow(self, driver: str, reports: Iterable[Iterable[DeviceHealth]]) -> None:
        """Take reports until the stream ends, for whatever reason; then forget the driver.

        An agent that shuts down closes the store first, so that the next process keeps the reports.
        """
        try:
            for devices in reports:
                self.report(driver, devices)
        finally:
            if not self.closed:
                self.forget(driver)

    def expire(self) -> None:
        """Drop all devices whose time-out is over. The store does this by itself; there is no need to call it."""
        changes = {}
        with self._changing_now() as now:
            for driver, before in list(self._drivers.items()):
                after = {name: device for name, device in before.items() if not device.is_over(now)}
                if len(after) < len(before):
                    self._swap(driver, after)
                    changes[driver] = _changed(before, after, now)
        for driver, changed in changes.items():
            self._announce(driver, changed)

    def get(self, driver: str, pool: str, device: str) -> DeviceHealth:
        """The current health of a device; UNKNOWN without a message if there is no valid report."""
        found = self._drivers.get(driver, {}).get((pool, device))
        return found if found and not found.is_over(self._clock()) else DeviceHealth(pool, device)

    def drivers(self) -> dict[str, tuple[DeviceHealth, ...]]:
        """All devices with a valid report, by driver."""
        now = self._clock()
        current = self._drivers.copy().items()
        alive = {driver: tuple(its for its in devices.values() if not its.is_over(now)) for driver, devices in current}
        return {driver: devices for driver, devices in alive.items() if devices}

    @property
    def ignored(self) -> Mapping[str, int]:
        """The number of devices in the last report beyond the limit, for each driver that exceeds it."""
        return self._ignored.copy()

    @property
    def problems(self) -> Mapping[str, str]:
        """Drivers whose file differs from memory, with the reason: it could not be read or written."""
        return {key: str(problem) for key, problem in self._cache.problems.items()} | self._unsaved.copy()

    def close(self) -> None:
        """Release the directory. Reads still work; no further changes are announced."""
        with self._changing:
            self.closed = True
            self._changing.notify_all()
        self._cache.close()

    def __enter__(self) -> DeviceHealthStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self) -> None:
        """Load the reports of the last process that are still valid."""
        now = self._clock()
        with self._changing:
            for entry in self._cache.entries():
                if entry.value and entry.from_this_boot:
                    devices = [device for device in entry.value.devices if not device.is_over(now)]
                    self._swap(entry.key, {device.name: device for device in islice(devices, MOST_DEVICES)})

    @contextmanager
    def _changing_now(self) -> Iterator[float]:
        """Take the lock, and yield the time at which it was taken."""
        if self.closed:
            raise ManagerClosed(self._manager.path, "is closed")
        if os.getpid() != self._process:  # a lock held by another thread during the fork is never released
            raise ManagerClosed(self._manager.path, ManagerClosed.FORKED)
        with self._changing:
            yield self._clock()

    def _swap(self, driver: str, devices: Devices) -> None:
        if devices:
            self._drivers[driver] = devices
        else:
            self._drivers.pop(driver, None)
        self._changing.notify_all()
        if devices and self._timer is None:
            self._timer = threading.Thread(target=self._expire_in_time, name="device health", daemon=True)
            self._timer.start()

    def _expire_in_time(self) -> None:
        while not self.closed:
            with self._changing:
                ends = [device.reported + device.timeout for its in self._drivers.values() for device in its.values()]
                left = min(ends) - self._clock() if ends else None
                if left is None or left >= 0:
                    self._changing.wait(None if left is None else left + LATE_SECONDS)
                    continue
            try:
                self.expire()
            except ManagerClosed:
                return

    def _announce(self, driver: str, changed: frozenset[DeviceName]) -> None:
        if not changed or self._on_change is None:
            return
        try:
            self._on_change(HealthChange(driver, changed))
        except Exception:
            logger.exception("the on_change callback failed on a change of driver %s", driver)

    def _is_outdated(self, driver: str, devices: Devices) -> bool:
        """True if the file would expire soon after a restart although the driver keeps reporting."""
        entry = self._cache.entry(driver)
        saved = entry.value.devices if entry and entry.value else ()
        known = [(devices[old.name], old) for old in saved if old.name in devices]
        return any(new.reported - old.reported >= max(new.timeout / 2, REFRESH_SECONDS) for new, old in known)

    def _save(self, driver: str) -> None:
        """Write what is in memory now, so that the last thread to get here writes the newest state."""
        with self._saving.locked(driver):
            devices = self._drivers.get(driver, {})
            state = DriverHealth(tuple(devices.values())) if devices else REMOVED
            try:
                if devices or driver in self._cache:
                    self._cache.change([driver], lambda _: {driver: state})
            except ManagerClosed:
                raise
            except CheckpointError as error:
                known = self._unsaved.get(driver)
                self._unsaved[driver] = str(error)
                if known != str(error):  # otherwise it was logged a few seconds ago
                    logger.warning("health of driver %s: not saved, so a restart would lose it: %s", driver, error)
            else:
                self._unsaved.pop(driver, None)

    def _more_ignored(self, driver: str, count: int) -> int:
        """The count if it should be logged: only when it has grown, not with every report."""
        known = self._ignored.pop(driver, 0)
        if count:
            self._ignored[driver] = count
        return count if count > known else 0


def _changed(before: Devices, after: Devices, now: float) -> frozenset[DeviceName]:
    """The devices whose health has changed. A device whose time-out was over was unknown before."""
    alive = {name: old for name, old in before.items() if not old.is_over(now)}
    new = {name for name, device in after.items() if name not in alive or not device.says_the_same_as(alive[name])}
    gone = {name for name, old in before.items() if name not in after and old.is_known}
    return frozenset(new | gone)

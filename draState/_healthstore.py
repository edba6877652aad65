"""The health of devices as their drivers report it, on kubelet's side: in memory, and on disk for the next process.

A CheckpointCache with one file per driver. Memory comes first here: a device that is reported as unhealthy must not
read as healthy because the disk is full, and what is lost with the disk is reported again within seconds. Reads take
no lock and never wait.
"""

from __future__ import annotations

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

from ._claimevents import logger
from ._devicehealth import DEVICE_HEALTH, DeviceHealth, DeviceName, DriverHealth, seconds_since_boot

MOST_DEVICES = 16_384  # of one driver, as kubelet: a driver that invents names must not fill memory and disk
REFRESH_SECONDS = 10.0  # at least, between two writes that change only when a report arrived
LATE_SECONDS = 0.01  # after a time-out is over, so that it certainly is, and several go together

Devices = Mapping[DeviceName, DeviceHealth]


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Some devices of a driver read differently than before: ask the store for what is true now."""

    driver: str
    devices: frozenset[DeviceName]


class DeviceHealthStore:
    """Safe for many threads. Takes CheckpointManager's options, but never `sharing`.

    A driver that reports says all that it knows: a device that is missing from a report, or whose driver has fallen
    silent, is unknown when its time-out is over. `on_change` is called for each change, that one too, outside all
    locks, in the thread of the report or in the store's own. So two changes at the same time may be announced in
    either order, which is why a change does not say what the health is.

    After a restart everything counts for as long as it would have, or a little less: of reports that say nothing new
    only some are written. After a reboot nothing does. A driver whose file cannot be trusted, or not be written, is
    in `problems`; its next report is written all the same.
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
        self._changing = threading.Condition()  # guards the four below, never held across the disk
        self._drivers: dict[str, Devices] = {}  # each is replaced and never changed; readers do without the lock
        self._ignored: dict[str, int] = {}
        self._timer: threading.Thread | None = None
        self.closed = False  # whether close() was called
        self._saving = KeyLocks()  # by driver: guards the two below, and that they are those of the last write
        self._saved: dict[str, Devices] = {}
        self._unsaved: dict[str, str] = {}
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def report(self, driver: str, devices: Iterable[DeviceHealth]) -> None:
        """All that a driver knows, as it has just arrived. Later entries of one device replace earlier ones.

        Of more than 16,384 devices, those that were not known are ignored. A disk that refuses is no error here: see
        `problems`.
        """
        check_key(driver)
        listed = list(devices)
        with self._changing_now() as now:
            told = {device.name: device.arrived(now) for device in listed}
            before = self._drivers.get(driver, {})
            after = {name: old for name, old in before.items() if name in told or not old.is_over(now)}
            for name, device in told.items():
                if name in after or len(after) < MOST_DEVICES:
                    after[name] = device
            changed = _changed(before, after, now)
            must_save = changed or driver in self._unsaved or self._is_outdated(driver, after)
            self._swap(driver, after)
            more = self._more_ignored(driver, len(told.keys() - after))
        if more:
            logger.warning("health of driver %s: %d devices beyond %d are ignored", driver, more, MOST_DEVICES)
        self._announce(driver, changed)
        if must_save:
            self._save(driver)

    def forget(self, driver: str) -> None:
        """The driver's stream has ended: nothing is known about its devices any more."""
        check_key(driver)
        with self._changing_now() as now:
            before = self._drivers.get(driver, {})
            self._swap(driver, {})
            self._ignored.pop(driver, None)
        self._announce(driver, _changed(before, {}, now))
        self._save(driver)

    def follow(self, driver: str, reports: Iterable[Iterable[DeviceHealth]]) -> None:
        """Take reports until the stream of them ends, in whatever way; then forget the driver.

        An agent that ends closes the store first: the next process then still knows what this one knew.
        """
        try:
            for devices in reports:
                self.report(driver, devices)
        finally:
            if not self.closed:
                self.forget(driver)

    def expire(self) -> None:
        """Drop all devices whose time-out is over. The store does it in time; no need to call it."""
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
        """What is known about a device now; unknown and without message if that is nothing."""
        found = self._drivers.get(driver, {}).get((pool, device))
        return found if found and not found.is_over(self._clock()) else DeviceHealth(pool, device)

    def drivers(self) -> dict[str, tuple[DeviceHealth, ...]]:
        """All devices about which something was reported, by driver, if their time-out is not over."""
        now = self._clock()
        current = self._drivers.copy().items()
        alive = {driver: tuple(its for its in devices.values() if not its.is_over(now)) for driver, devices in current}
        return {driver: devices for driver, devices in alive.items() if devices}

    @property
    def ignored(self) -> Mapping[str, int]:
        """How many devices of its last report were too many, by driver; of those that have too many."""
        return self._ignored.copy()

    @property
    def problems(self) -> Mapping[str, str]:
        """Drivers whose file is not what memory is: it could not be read, or not be written."""
        return {key: str(problem) for key, problem in self._cache.problems.items()} | self._unsaved.copy()

    def close(self) -> None:
        """Give the directory back. Reads go on, and nothing is announced any more."""
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
        """What was known when the last process ended, as far as it still counts."""
        now = self._clock()
        with self._changing:
            for entry in self._cache.entries():
                if entry.value and entry.from_this_boot:
                    devices = [device for device in entry.value.devices if not device.is_over(now)]
                    self._saved[entry.key] = {device.name: device for device in islice(devices, MOST_DEVICES)}
                    self._swap(entry.key, self._saved[entry.key])

    @contextmanager
    def _changing_now(self) -> Iterator[float]:
        """The lock, and the time at which it was given."""
        if self.closed:
            raise ManagerClosed(self._manager.path, "is closed")
        if os.getpid() != self._process:  # a lock that another thread had when it forked is never given back
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
        except Exception:  # noqa: BLE001  (a callback is foreign code)
            logger.exception("the on_change callback failed on a change of driver %s", driver)

    def _is_outdated(self, driver: str, devices: Devices) -> bool:
        """What the disk has would be over soon after a restart, though the driver goes on reporting it."""
        saved = self._saved.get(driver, {})
        known = [(device, saved[name]) for name, device in devices.items() if name in saved]
        return any(new.reported - old.reported >= max(new.timeout / 2, REFRESH_SECONDS) for new, old in known)

    def _save(self, driver: str) -> None:
        """What memory has by now, so that the last one to get here writes the newest."""
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
                if known != str(error):  # else it was logged before, some seconds ago
                    logger.warning("health of driver %s: a restart would not know it: %s", driver, error)
            else:
                self._saved[driver] = devices
                self._unsaved.pop(driver, None)

    def _more_ignored(self, driver: str, count: int) -> int:
        """The count if it is to be logged: not each few seconds, only when there are more."""
        known = self._ignored.pop(driver, 0)
        if count:
            self._ignored[driver] = count
        return count if count > known else 0


def _changed(before: Devices, after: Devices, now: float) -> frozenset[DeviceName]:
    """The devices that read differently. One whose time-out was over before was unknown before."""
    alive = {name: old for name, old in before.items() if not old.is_over(now)}
    new = {name for name, device in after.items() if name not in alive or not device.says_the_same_as(alive[name])}
    gone = {name for name, old in before.items() if name not in after and old.is_known}
    return frozenset(new | gone)

"""Device configs by pod: what an agent needs to go on serving its pods after a restart.

One file a pod. Reads come from memory, touch no disk and wait for nobody. Setting and deleting differ on
purpose. A failed set changes nothing, since a config that only memory has would be lost silently. A failed
delete still takes effect in memory: the file it leaves is harmless and found by synchronize, while a pod that
the runtime has removed must not be served.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Unpack

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointManager,
    CorruptCheckpoint,
    Event,
    FileOptions,
    KeyLocks,
    Outcome,
    Store,
    WrongKind,
)

from ._podconfig import POD_CONFIGS, Claim, DeviceConfig, PodConfig, copied


@dataclass(frozen=True, slots=True)
class PodSyncReport:
    """What synchronize did. `kept` pods are served, those in `problems` are not."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    problems: Mapping[str, str]  # live, but the file cannot be trusted; or not ours to remove: why
    failed: Mapping[str, str]  # memory is right, but the disk refused to follow: why


class PodConfigStore:
    """Safe for many threads; writers of different pods do not wait for each other.

    Takes CheckpointManager's options, but never `sharing`: memory could not be trusted. What is set is copied,
    and so is what is got, so nobody changes memory behind the disk.

    A damaged file costs its own pod: it is repaired where that is exact, else the pod is in `problems` and is
    not served until its configs are set anew.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        if options.get("sharing") or (isinstance(directory, Store) and not directory.exclusive):
            place = directory.path if isinstance(directory, Store) else os.fspath(directory)
            raise ValueError(f"{place}: pod configs need a directory of their own; one opened for sharing is refused")
        self._manager = CheckpointManager(directory, POD_CONFIGS, on_event=on_event, boot_id=boot_id, **options)
        self._locks = KeyLocks()  # by pod UID, held while its file is changed
        self._swapping = threading.Lock()  # guards changes of _pods, never held across the disk; readers do without
        self._pods: dict[str, _Pod] = {}
        # The entries of these two are guarded by their pods' locks.
        self._problems: dict[str, CheckpointError] = {}
        self._leftovers: dict[str, list[DeviceConfig]] = {}  # what a pod's file may hold and memory does not
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def set_device_config(self, pod_uid: str, device: str, config: DeviceConfig) -> None:
        """Add or replace the config of one device; durable when it returns.

        If it raises, memory is as it was. If the error is `in_doubt`, the file may have either value after a
        restart: the old one is served until the call is repeated, or synchronize settles for the old one.
        """
        owned = config.copy()
        self._set(pod_uid, lambda pod: replace(pod, devices={**pod.devices, device: owned}))

    def set_pod_config(self, pod_uid: str, config: Any) -> None:
        """Set what belongs to the pod and to no device, any JSON value; fails as set_device_config does."""
        owned = copied(config)
        self._set(pod_uid, lambda pod: replace(pod, config=owned))

    def get_device_config(self, pod_uid: str, device: str) -> DeviceConfig | None:
        pod = self._pods.get(pod_uid)
        config = pod.config.devices.get(device) if pod else None
        return config.copy() if config else None

    def get_pod_config(self, pod_uid: str) -> PodConfig | None:
        """All of a pod: its devices and its own config."""
        pod = self._pods.get(pod_uid)
        return pod.config.copy() if pod else None

    def list_pods(self) -> list[str]:
        """The UIDs of the pods that are served, sorted."""
        return sorted(self._pods.copy())

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_pods())

    @property
    def problems(self) -> Mapping[str, str]:
        """The pods whose files cannot be trusted, each with the reason. They are not served."""
        return {pod_uid: str(problem) for pod_uid, problem in self._problems.copy().items()}

    def note_activity(self, pod_uid: str, when: datetime | None = None) -> None:
        """Remember when the pod was last active, by default now: in memory only, and only of a pod that is here."""
        self._remember(pod_uid, last_activity=when or datetime.now(UTC))

    def last_activity(self, pod_uid: str) -> datetime | None:
        """None if nothing was noted since this process started."""
        pod = self._pods.get(pod_uid)
        return pod.last_activity if pod else None

    def set_network_namespace(self, pod_uid: str, path: str) -> None:
        """Remember where the runtime keeps the pod's network namespace: in memory only, and only of a pod that
        is here."""
        self._remember(pod_uid, network_namespace=path)

    def network_namespace(self, pod_uid: str) -> str:
        """ "" until the runtime has told it to this process."""
        pod = self._pods.get(pod_uid)
        return pod.network_namespace if pod else ""

    def delete_pod(self, pod_uid: str) -> None:
        """Forget a pod; no error if it is not there. If it raises, the pod is not served any more all the same,
        and the file that is left goes with the next synchronize or a repeated call."""
        with self._locks.locked(pod_uid):
            self._reduce({pod_uid: None})

    def delete_claim(self, claim: Claim) -> tuple[str, ...]:
        """Remove the device configs of a claim, given by its UID or as (namespace, name), from every pod.

        Returns the pods concerned. One with nothing left is deleted. If it raises, the configs are not served
        any more all the same; a repeated call finishes it on disk, for the pods where it failed. Pods in
        `problems` are not searched: nobody knows what they hold.
        """
        concerned = self._pods_of(claim)
        with self._locks.locked(*concerned):
            changes: dict[str, PodConfig | None] = {}
            for pod_uid in concerned & self._pods_of(claim):  # once more: others may have changed them before
                changes[pod_uid] = None
                if pod := self._pods.get(pod_uid):
                    rest = {name: config for name, config in pod.config.devices.items() if not config.is_of(claim)}
                    after = replace(pod.config, devices=rest)
                    changes[pod_uid] = None if after.is_empty else after
            self._reduce(changes)
        return tuple(sorted(changes))

    def synchronize(self, live: Iterable[str]) -> PodSyncReport:
        """Remove every pod that is not among `live`, and what failed deletions have left on disk.

        `live` are the UIDs of all pods that may still need their configs, those included that are just being
        prepared. Only a pod that is set while this runs is spared without being listed.
        """
        wanted = set(live)
        seen = self._pods.copy()
        candidates = {*self._manager.list_checkpoints(), *seen, *self._problems.copy()}
        with self._locks.locked(*candidates):
            kept = [uid for uid in candidates if self._is_kept(uid, wanted, seen)]
            problems = {uid: str(why) for uid, why in self._problems.items() if uid in wanted or _is_foreign(why)}
            changes: dict[str, PodConfig | None] = dict.fromkeys(candidates.difference(kept, problems))
            removed = set(changes)
            changes |= {uid: self._pods[uid].config for uid in kept if uid in self._leftovers}
            failed: dict[str, str] = {}
            try:
                self._reduce(changes)
            except BatchFailed as error:
                failed = {uid: str(failure) for uid, failure in error.failures.items()}
        return PodSyncReport(tuple(sorted(removed.difference(failed))), tuple(sorted(kept)), problems, failed)

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> PodConfigStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self) -> None:
        loaded = self._manager.load()
        self._pods = {pod_uid: _Pod(checkpoint.data) for pod_uid, checkpoint in loaded.checkpoints.items()}
        for pod_uid, problem in loaded.problems.items():
            if isinstance(problem, CorruptCheckpoint) and self._repaired(pod_uid):
                self._pods[pod_uid] = _Pod(self._manager.get_checkpoint(pod_uid).data)
            else:
                self._problems[pod_uid] = problem

    def _repaired(self, pod_uid: str) -> bool:
        try:
            return self._manager.recover_checkpoint(pod_uid).outcome in (Outcome.REPAIRED, Outcome.INTACT)
        except CheckpointError:
            return False  # a full disk, say: it stays damaged until somebody can write

    def _set(self, pod_uid: str, change: Callable[[PodConfig], PodConfig]) -> None:
        """Disk first, then memory."""
        with self._locks.locked(pod_uid):
            pod = self._pods.get(pod_uid)
            after = change(pod.config if pod else PodConfig())
            try:
                self._manager.create_checkpoint(pod_uid, after)
            except BaseException as error:
                if _may_have_happened(error):
                    self._leftovers.setdefault(pod_uid, []).extend(after.devices.values())
                raise
            self._settled(pod_uid)
            self._swap(pod_uid, after)

    def _reduce(self, changes: Mapping[str, PodConfig | None]) -> None:
        """Memory first, then disk, in one batch; None removes the pod. Called while holding the pods."""
        if not changes:
            return
        failures: Iterable[str] = changes
        try:
            with self._manager.batch() as batch:
                for pod_uid, after in changes.items():
                    if after is None:
                        batch.remove_checkpoint(pod_uid)
                    else:
                        batch.create_checkpoint(pod_uid, after)
                for pod_uid, after in changes.items():
                    if pod := self._pods.get(pod_uid):
                        self._leftovers.setdefault(pod_uid, []).extend(pod.config.devices.values())
                        self._swap(pod_uid, after)
            failures = ()
        except BatchFailed as error:
            failures = error.failures
            raise
        finally:
            for pod_uid in changes.keys() - set(failures):
                self._settled(pod_uid)

    def _settled(self, pod_uid: str) -> None:
        """The disk certainly holds what memory does."""
        self._problems.pop(pod_uid, None)
        self._leftovers.pop(pod_uid, None)

    def _swap(self, pod_uid: str, config: PodConfig | None) -> None:
        with self._swapping:
            if config is None:
                self._pods.pop(pod_uid, None)
            else:
                pod = self._pods.get(pod_uid)
                self._pods[pod_uid] = replace(pod, config=config) if pod else _Pod(config)

    def _remember(self, pod_uid: str, **what: Any) -> None:
        with self._swapping:
            if pod := self._pods.get(pod_uid):
                self._pods[pod_uid] = replace(pod, **what)

    def _pods_of(self, claim: Claim) -> set[str]:
        """The pods with a config of this claim, in memory or in what a failed call may have left on disk."""
        served = {uid for uid, pod in self._pods.copy().items() if _any_of(claim, pod.config.devices.values())}
        return served | {uid for uid, left in self._leftovers.copy().items() if _any_of(claim, left)}

    def _is_kept(self, pod_uid: str, wanted: set[str], seen: Mapping[str, _Pod]) -> bool:
        pod = self._pods.get(pod_uid)
        return pod is not None and (pod_uid in wanted or pod is not seen.get(pod_uid))


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod in memory: what is persisted, and what must not outlive the process."""

    config: PodConfig
    last_activity: datetime | None = None
    network_namespace: str = ""


def _any_of(claim: Claim, configs: Iterable[DeviceConfig]) -> bool:
    return any(config.is_of(claim) for config in configs)


def _is_foreign(problem: CheckpointError) -> bool:
    """Another agent's file: most likely this is its directory."""
    return isinstance(problem, WrongKind)


def _may_have_happened(error: BaseException) -> bool:
    """In doubt, or interrupted, perhaps between the rename and the sync."""
    return not isinstance(error, CheckpointError) or bool(getattr(error, "in_doubt", False))

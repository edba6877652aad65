"""Device configs by pod: what an agent needs to go on serving its pods after a restart.

A CheckpointCache with one file per pod. Reads come from memory, touch no disk and wait for nobody. Setting and
deleting differ on purpose. A failed set changes nothing, since a config that only memory has would be lost
silently. A failed delete still takes effect in memory: the file it leaves is harmless and found by synchronize,
while a pod that the runtime has removed must not be served.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Unpack

from checkpointmanager import (
    REMOVED,
    BatchFailed,
    CacheEntry,
    CheckpointCache,
    CheckpointManager,
    CheckpointWriteFailed,
    Event,
    FileOptions,
    KeyLocks,
    Removal,
    Store,
    WrongKind,
)

from ._errors import ReconcileRefused
from ._jsoncopy import copied
from ._podconfig import POD_CONFIGS, Claim, DeviceConfig, PodConfig

Entries = Mapping[str, CacheEntry[PodConfig]]
Outcomes = Mapping[str, PodConfig | Literal[Removal.REMOVED]]


@dataclass(frozen=True, slots=True)
class PodSyncReport:
    """What synchronize did. `kept` pods are served, those in `problems` are not."""

    removed: tuple[str, ...]  # the UIDs of pods that are gone
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
        manager = CheckpointManager(directory, POD_CONFIGS, on_event=on_event, boot_id=boot_id, **options)
        self._swapping = KeyLocks()  # by pod: guards changes of _pods, never held across the disk; readers do without
        # What is served. The cache has what the disk holds, which differs while a removal has failed.
        self._pods: dict[str, _Pod] = {}
        self._cache = CheckpointCache(manager, on_swap=self._swapped)
        try:
            self._pods = {entry.key: _Pod(entry.value) for entry in self._cache.entries() if entry.value}
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
        """A copy of the config of one device of a pod; None if there is none."""
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
        return {entry.key: str(entry.problem) for entry in self._cache.entries() if entry.problem}

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
        self._reduce([pod_uid], lambda _: {pod_uid: REMOVED})

    def delete_claim(self, claim: Claim) -> tuple[str, ...]:
        """Remove the device configs of a claim, given by its UID or as (namespace, name), from every pod.

        Returns the pods concerned. One with nothing left is deleted. If it raises, the configs are not served
        any more all the same; a repeated call finishes it on disk, for the pods where it failed. Pods in
        `problems` are not searched: nobody knows what they hold.
        """
        changed: dict[str, PodConfig | Literal[Removal.REMOVED]] = {}

        def without(_: Entries) -> Outcomes:
            for pod_uid in concerned & self._pods_of(claim):  # once more: others may have changed them before
                changed[pod_uid] = REMOVED
                if pod := self._pods.get(pod_uid):
                    rest = {name: config for name, config in pod.config.devices.items() if not config.is_of(claim)}
                    after = replace(pod.config, devices=rest)
                    changed[pod_uid] = REMOVED if after.is_empty else after
            return changed

        concerned = self._pods_of(claim)
        self._reduce(concerned, without)
        return tuple(sorted(changed))

    def synchronize(self, list_live: Callable[[], Iterable[str]], *, complete: bool) -> PodSyncReport:
        """Remove every pod that is not alive, and what failed deletions have left on disk.

        `list_live` returns the UIDs of all pods that may still need their configs. It is a function, so that a pod
        which is set after the list was made is spared. Refused until the caller knows that the list is complete.
        """
        if not complete:
            raise ReconcileRefused("the list of live pods is not complete yet; nothing was changed")
        seen = self._pods.copy()  # before the pods are listed, so that every pod seen here is listed if it lives
        wanted = set(list_live())
        candidates = {*seen, *self._cache}
        kept: list[str] = []
        problems: dict[str, str] = {}
        failed: dict[str, str] = {}
        removed: set[str] = set()
        unsettled: dict[str, PodConfig] = {}

        def settle(entries: Entries) -> Outcomes:
            kept.extend(uid for uid in candidates if self._is_kept(uid, wanted, seen))
            for uid, entry in entries.items():
                if entry.problem and (uid in wanted or isinstance(entry.problem, WrongKind)):
                    problems[uid] = str(entry.problem)
            removed.update(candidates.difference(kept, problems))
            unsettled.update((uid, self._pods[uid].config) for uid in kept if not self._is_settled(uid))
            return {**dict.fromkeys(removed, REMOVED), **unsettled}

        try:
            self._reduce(candidates, settle)
        except CheckpointWriteFailed as error:
            of_all = dict.fromkeys([*removed, *unsettled], error)
            failures = error.failures if isinstance(error, BatchFailed) else of_all
            failed = {uid: str(failure) for uid, failure in failures.items()}
        return PodSyncReport(tuple(sorted(removed.difference(failed))), tuple(sorted(kept)), problems, failed)

    def close(self) -> None:
        """Wait for running changes, then give the directory back. Reads go on. May be called twice."""
        self._cache.close()

    def __enter__(self) -> PodConfigStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set(self, pod_uid: str, change: Callable[[PodConfig], PodConfig]) -> None:
        """Disk first, then memory."""

        def after(_: Entries) -> Mapping[str, PodConfig]:
            pod = self._pods.get(pod_uid)
            return {pod_uid: change(pod.config if pod else PodConfig())}

        self._cache.change([pod_uid], after)

    def _reduce(self, pod_uids: Iterable[str], change: Callable[[Entries], Outcomes]) -> None:
        """Memory first, then disk: what is gone must not be served, even if its file cannot be removed."""

        def reduced(entries: Entries) -> Outcomes:
            outcomes = change(entries)
            for pod_uid, after in outcomes.items():
                if pod_uid in self._pods:
                    self._swap(pod_uid, None if after is REMOVED else after)
            return outcomes

        self._cache.change(pod_uids, reduced, independent=True)

    def _swapped(self, pod_uid: str, _: CacheEntry[PodConfig] | None, entry: CacheEntry[PodConfig] | None) -> None:
        """The disk has followed. What is in doubt changes nothing here: the old config is served."""
        if entry is None or not entry.in_doubt:
            self._swap(pod_uid, entry.value if entry else None)

    def _swap(self, pod_uid: str, config: PodConfig | None) -> None:
        with self._swapping.locked(pod_uid):
            if config is None:
                self._pods.pop(pod_uid, None)
            else:
                pod = self._pods.get(pod_uid)
                self._pods[pod_uid] = replace(pod, config=config) if pod else _Pod(config)

    def _remember(self, pod_uid: str, **what: Any) -> None:
        with self._swapping.locked(pod_uid):
            if pod := self._pods.get(pod_uid):
                self._pods[pod_uid] = replace(pod, **what)

    def _pods_of(self, claim: Claim) -> set[str]:
        """The pods with a config of this claim, in memory or in what a failed call may have left on disk."""
        served = {uid for uid, pod in self._pods.copy().items() if pod.config.has(claim)}
        return served | {entry.key for entry in self._cache.entries() if any(c.has(claim) for c in _configs(entry))}

    def _is_settled(self, pod_uid: str) -> bool:
        """True if the disk certainly holds what is served."""
        entry = self._cache.entry(pod_uid)
        return entry is not None and not entry.in_doubt and entry.value == self._pods[pod_uid].config

    def _is_kept(self, pod_uid: str, wanted: set[str], seen: Mapping[str, _Pod]) -> bool:
        """Wanted, or set since the pods were seen; activity alone saves no pod."""
        pod, before = self._pods.get(pod_uid), seen.get(pod_uid)
        return pod is not None and (pod_uid in wanted or before is None or pod.config is not before.config)


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod in memory: what is persisted, and what must not outlive the process."""

    config: PodConfig
    last_activity: datetime | None = None
    network_namespace: str = ""


def _configs(entry: CacheEntry[PodConfig]) -> list[PodConfig]:
    """All that a pod's file may hold."""
    possible = [entry.value, *(entry.in_doubt.outcomes if entry.in_doubt else ())]
    return [config for config in possible if isinstance(config, PodConfig)]

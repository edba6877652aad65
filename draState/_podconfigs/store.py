"""Device configs by pod: what an agent needs to keep serving its pods after a restart.

A CheckpointCache with one file per pod. Reads come from memory and never wait for the disk or a writer. Setting and
deleting differ on purpose. A failed set changes nothing, because a config that only memory has would be lost
silently. A failed delete still takes effect in memory: the leftover file is harmless and synchronize finds it, while
a pod that the runtime has removed must not be served.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, Unpack

from checkpointmanager import (
    REMOVED,
    BatchFailed,
    CacheEntry,
    CheckpointCache,
    CheckpointError,
    CheckpointManager,
    CheckpointWriteFailed,
    Event,
    FileOptions,
    KeyLocks,
    Removal,
    Store,
    WrongKind,
)

from .._claims.cache import ClaimInfoCache
from .._claims.state import copied
from .._driver.claim import DriverClaim
from .._errors import ReconcileRefused
from .config import POD_CONFIGS, Claim, DeviceConfig, PodConfig, device_key

Entries = Mapping[str, CacheEntry[PodConfig]]
Outcomes = Mapping[str, PodConfig | Literal[Removal.REMOVED]]


@dataclass(frozen=True, slots=True)
class PodSyncReport:
    """The result of synchronize. Pods in `kept` are served, those in `problems` are not."""

    removed: tuple[str, ...]  # the UIDs of pods that are gone
    kept: tuple[str, ...]
    problems: Mapping[str, str]  # UID -> why: live, but the file cannot be trusted; or not ours to remove
    failed: Mapping[str, str]  # UID -> why: memory is right, but the disk refused the change


class PodConfigStore:
    """Safe for many threads; writers of different pods do not wait for each other.

    Takes CheckpointManager's options, but never `sharing`: memory could not be trusted. Configs are copied on
    the way in and out, so a caller cannot change memory without the disk.

    A damaged file affects only its own pod: it is repaired if the repair is exact, otherwise the pod is in
    `problems` and is not served until its configs are set again.
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
        self._swapping = KeyLocks()  # by pod: guards changes of _pods, never held during disk access; readers need none
        # What is served. The cache has what is on disk, which differs after a failed removal.
        self._pods: dict[str, _Pod] = {}
        self._cache = CheckpointCache(manager, on_swap=self._swapped)
        self._pods = {entry.key: _Pod(entry.value) for entry in self._cache.entries() if entry.value}

    def set_device_config(self, pod_uid: str, device: str, config: DeviceConfig) -> None:
        """Add or replace the config of one device of the config's claim; durable when it returns.

        If it raises, memory is unchanged. If the error is `in_doubt`, the file may have either value after a
        restart: the old one is served until the call is repeated, or until synchronize restores the old one.
        """
        key, owned = device_key(config.claim_uid, device), config.copy()
        self._set(pod_uid, lambda pod: replace(pod, devices={**pod.devices, key: owned}))

    def set_pod_config(self, pod_uid: str, config: Any) -> None:
        """Set the pod's own config, any JSON value; fails as set_device_config does."""
        owned = copied(config)
        self._set(pod_uid, lambda pod: replace(pod, config=owned))

    def get_device_config(self, pod_uid: str, claim_uid: str, device: str) -> DeviceConfig | None:
        """A copy of the config of one device that a pod has from a claim; None if there is none."""
        pod = self._pods.get(pod_uid)
        config = pod.config.devices.get(device_key(claim_uid, device)) if pod else None
        return config.copy() if config else None

    def get_pod_config(self, pod_uid: str) -> PodConfig | None:
        """A copy of everything of a pod: its devices and its own config; None if there is no such pod."""
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
        """Remember when the pod was last active, by default now. In memory only, and only for a pod in the store."""
        self._remember(pod_uid, last_activity=when or datetime.now(UTC))

    def last_activity(self, pod_uid: str) -> datetime | None:
        """When the pod was last active; None if nothing was noted since this process started."""
        pod = self._pods.get(pod_uid)
        return pod.last_activity if pod else None

    def set_network_namespace(self, pod_uid: str, path: str) -> None:
        """Remember where the runtime keeps the pod's network namespace. In memory only, and only for a pod in the
        store."""
        self._remember(pod_uid, network_namespace=path)

    def network_namespace(self, pod_uid: str) -> str:
        """The path, or "" if this process has not set it."""
        pod = self._pods.get(pod_uid)
        return pod.network_namespace if pod else ""

    def delete_pod(self, pod_uid: str) -> None:
        """Forget a pod; no error if it does not exist. Even if this raises, the pod is no longer served: the next
        synchronize or a repeated call removes the leftover file."""
        self._reduce([pod_uid], lambda _: {pod_uid: REMOVED})

    def delete_claim(self, claim: Claim) -> tuple[str, ...]:
        """Remove the device configs of a claim, named by its UID or as (namespace, name), from every pod.

        Returns the affected pods. A pod with nothing left is deleted. Even if this raises, the configs are no longer
        served; a repeated call finishes the removal on disk where it failed. Pods in `problems` are not searched:
        what they hold is unknown.
        """
        changed: dict[str, PodConfig | Literal[Removal.REMOVED]] = {}

        def without(_: Entries) -> Outcomes:
            for pod_uid in concerned & self._pods_of(claim):  # looked up again: other threads may have changed them
                changed[pod_uid] = REMOVED
                if pod := self._pods.get(pod_uid):
                    rest = {name: config for name, config in pod.config.devices.items() if not config.is_of(claim)}
                    after = replace(pod.config, devices=rest)
                    changed[pod_uid] = REMOVED if after.is_empty else after
            return changed

        concerned = self._pods_of(claim)
        self._reduce(concerned, without)
        return tuple(sorted(changed))

    def follow(self, claim: DriverClaim, configs: Mapping[str, Any]) -> None:
        """Give a claim's configs, by device, to every pod of the claim and to no other; durable when it returns.

        Call it in set_up and refresh, and delete_claim in tear_down: then a kill between any two steps is made good.
        """
        wanted = {
            device: DeviceConfig(config, claim.uid, claim.name, claim.namespace) for device, config in configs.items()
        }
        keys = {device_key(claim.uid, device) for device in wanted}
        for pod_uid in self._pods_of(claim.uid):
            pod = self._pods.get(pod_uid)
            theirs = {key for key, config in pod.config.devices.items() if config.is_of(claim.uid)} if pod else set()
            if pod_uid not in claim.pods or not theirs <= keys:
                self.delete_claim(claim.uid)  # from all pods; they are set again below
                break
        for pod_uid in claim.pods:
            for device, config in wanted.items():
                if self.get_device_config(pod_uid, claim.uid, device) != config:
                    self.set_device_config(pod_uid, device, config)

    def follow_claims(self, claims: ClaimInfoCache) -> PodSyncReport | None:
        """Drop what belongs to no claim. Call it at the start, when the claims are restored.

        Does nothing, and returns None, while a claim is unknown: its pods are unknown too.
        """
        if claims.report().degraded:
            return None
        held = {device.claim_uid for pod in self._pods.copy().values() for device in pod.config.devices.values()}
        for uid in held - {claim.uid for claim in claims}:
            self.delete_claim(uid)
        return self.synchronize(list, complete=True, claims=claims, at_most=1)  # our own disk knows them all

    def synchronize(
        self,
        list_live: Callable[[], Iterable[str]],
        *,
        complete: bool,
        claims: ClaimInfoCache | None = None,
        at_most: float = 0.5,
    ) -> PodSyncReport:
        """Remove every pod that is not alive, and what failed deletions have left on disk.

        `list_live` returns the UIDs of all pods that may still need their configs, such as those with a sandbox. It is
        a function, so that a pod set after the list was made is kept. A pod of one of `claims` is alive: it may be
        prepared and have no sandbox yet. Raises ReconcileRefused unless the caller knows that the list is complete, and
        RetainRefused if more than the share `at_most` would go; see CheckpointCache.retain.
        """
        if not complete:
            raise ReconcileRefused("the list of live pods may be incomplete; nothing was changed")
        seen = self._pods.copy()  # before listing the pods, so that every live pod seen here is in the list
        problems: dict[str, str] = {}
        gone: set[str] = set()

        def live() -> set[str]:
            wanted = set(list_live()) | (claims.pods() if claims is not None else frozenset())
            for entry in self._cache.entries():
                if entry.problem and (entry.key in wanted or isinstance(entry.problem, WrongKind)):
                    problems[entry.key] = str(entry.problem)
            gone.update({*seen, *self._cache}.difference(problems, wanted.intersection(self._pods.copy())))
            return {*self._cache} - gone

        removed: Sequence[str] = ()
        failures: Mapping[str, CheckpointError] = {}
        try:
            removed = self._cache.retain(live, complete=True, at_most=at_most)
        except CheckpointWriteFailed as error:
            failures = error.failures if isinstance(error, BatchFailed) else dict.fromkeys(gone, error)
            removed = list(gone.difference(failures, self._cache))
            for uid in gone & seen.keys():  # a removed config must not be served, even if its file stays
                with self._swapping.locked(uid):  # so that no other thread sets it in between
                    if (pod := self._pods.get(uid)) and pod.config is seen[uid].config:
                        del self._pods[uid]
        failed = {uid: str(failure) for uid, failure in {**failures, **self._write_what_is_served()}.items()}
        return PodSyncReport(tuple(sorted(removed)), tuple(self.list_pods()), problems, failed)

    def _write_what_is_served(self) -> Mapping[str, CheckpointError]:
        """Write what is served where the disk may have something else; returns what failed."""
        uncertain = [uid for uid, pod in self._pods.copy().items() if not self._is_on_disk(uid, pod)]
        try:
            self._reduce(uncertain, lambda _: {uid: self._pods[uid].config for uid in uncertain if uid in self._pods})
        except CheckpointWriteFailed as error:
            return error.failures if isinstance(error, BatchFailed) else dict.fromkeys(uncertain, error)
        return {}

    def close(self) -> None:
        """Wait for running changes, then release the directory. Reads still work. May be called twice."""
        self._cache.close()

    def __enter__(self) -> PodConfigStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set(self, pod_uid: str, change: Callable[[PodConfig], PodConfig]) -> None:
        """Change a pod on disk first, then in memory."""

        def after(_: Entries) -> Mapping[str, PodConfig]:
            pod = self._pods.get(pod_uid)
            return {pod_uid: change(pod.config if pod else PodConfig())}

        self._cache.change([pod_uid], after)

    def _reduce(self, pod_uids: Iterable[str], change: Callable[[Entries], Outcomes]) -> None:
        """Change memory first, then the disk: a removed config must not be served, even if its file stays."""

        def reduced(entries: Entries) -> Outcomes:
            outcomes = change(entries)
            for pod_uid, after in outcomes.items():
                if pod_uid in self._pods:
                    self._swap(pod_uid, None if after is REMOVED else after)
            return outcomes

        self._cache.change(pod_uids, reduced, independent=True)

    def _swapped(self, pod_uid: str, _: CacheEntry[PodConfig] | None, entry: CacheEntry[PodConfig] | None) -> None:
        """Follow a change of the disk. A change in doubt does nothing here: the old config is served."""
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
        """The pods with a config of this claim, in memory or left on disk by a failed call."""
        served = {uid for uid, pod in self._pods.copy().items() if pod.config.has(claim)}
        return served | {entry.key for entry in self._cache.entries() if any(c.has(claim) for c in _configs(entry))}

    def _is_on_disk(self, pod_uid: str, pod: _Pod) -> bool:
        """True if the disk certainly has what is served."""
        entry = self._cache.entry(pod_uid)
        return entry is not None and not entry.in_doubt and entry.value == pod.config


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod in memory: its persisted config, and what must not outlive the process."""

    config: PodConfig
    last_activity: datetime | None = None
    network_namespace: str = ""


def _configs(entry: CacheEntry[PodConfig]) -> list[PodConfig]:
    """All configs that a pod's file may contain."""
    possible = [entry.value, *(entry.in_doubt.outcomes if entry.in_doubt else ())]
    return [config for config in possible if isinstance(config, PodConfig)]

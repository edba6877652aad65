"""Prepares and unprepares the claims of pods, as kubelet does, on a durable cache.

The intent is durable before a driver is called, the result after it has answered. So whatever kills the process,
the next one finds a trace of everything that a driver may have done, and reconcile cleans it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from checkpointmanager import BatchFailed, CheckpointError, KeyLocks

from .._claims.cache import ClaimInfoCache
from .._claims.info import ClaimInfo
from .._claims.state import ClaimInfoState, DriverState, NodeOperation
from .._draplugin import ClaimRef, DRAPlugin, PrepareResult, error_in, not_a
from .._errors import ClaimInvalid, DRAError, PrepareFailed, ReconcileRefused, UnprepareFailed
from .pod import Pod, ResourceClaim
from .resources import ContainerResources, PodResources, container_claim_infos, container_resources, pod_resources

R = TypeVar("R")
Failures = dict[str, str]
ActivePods = Iterable[Pod | str]
Call = Callable[[Sequence[ClaimRef]], Mapping[str, R]]
NO_ANSWER = "the driver gave no answer"


class DRAManager:
    """Safe for many threads. Operations on one claim wait for each other; reads never wait."""

    def __init__(self, cache: ClaimInfoCache, drivers: Mapping[str, DRAPlugin]) -> None:
        self.cache = cache  # the claims of this node
        self._drivers = drivers
        self._operations = KeyLocks()  # by claim UID, held across the driver calls

    def prepare_resources(self, pod: Pod) -> None:
        """Prepare every claim of the pod. PrepareFailed names the claims that failed; successes are recorded.

        Nothing is changed if a claim is not allocated, not reserved for the pod, or needs an unknown driver. A
        CheckpointError means that the disk refused before any driver was called: the intent for all claims of the
        pod is one transaction.
        """
        claims = pod.needed_claims()
        for claim in claims.values():
            self._validate(pod, claim)
        with self._operations.locked(*claims):
            self.cache.change(
                claims,
                lambda known: [_joined(claim, pod, known.get(uid)) for uid, claim in claims.items()],
                names=[(claim.namespace, claim.name) for claim in claims.values()],
            )
            waiting = {uid: claim for uid, claim in claims.items() if not self._is_prepared(uid)}
            answers, failures = self._prepare(waiting)
            failures |= self._record(answers, failures)
        if failures:
            raise PrepareFailed(failures)

    def unprepare_resources(self, pod: Pod | str) -> None:
        """Drop the references of a pod, passed as a Pod or by UID, and unprepare the claims that no other pod uses.

        A claim whose file is damaged only loses the reference: its other users are unknown. unprepare_claim, or a
        reconcile that gets pods, unprepares it, or the next prepare heals it.
        """
        pod_uid = pod if isinstance(pod, str) else pod.uid
        if failures := self._release({claim.uid: frozenset({pod_uid}) for claim in self.cache.of_pod(pod_uid)}):
            raise UnprepareFailed(failures)

    def unprepare_claim(self, uid: str) -> None:
        """Unprepare a claim, even if pods refer to it. If it is unknown, all drivers are called."""
        with self._operations.locked(uid):
            failures = self._unprepare([uid])
        if failures:
            raise UnprepareFailed(failures)

    def reconcile(self, active: ActivePods | Callable[[], ActivePods], *, complete: bool) -> None:
        """Unprepare the claims of every pod that is no longer active, and retry failed unprepares.

        Refused unless the caller knows that `active` is complete. Pass a function that lists the pods rather than
        a list: a pod prepared just after the list was made would look gone. With pods instead of UIDs, unknown
        claims that none of them uses are unprepared too.
        """
        if not complete:
            raise ReconcileRefused("the list of active pods may be incomplete; nothing was changed")
        claims = list(self.cache)  # before listing the pods, so that every live pod seen here is in the list
        pods = list(active() if callable(active) else active)
        live = {pod if isinstance(pod, str) else pod.uid for pod in pods}
        gone = {
            claim.uid: claim.state.pod_uids - live
            for claim in claims
            if claim.unpreparing or claim.state.pod_uids - live or not (claim.state.pod_uids or claim.guessed)
        }
        failures = self._release(gone)
        if all(isinstance(pod, Pod) for pod in pods):
            used = {uid for pod in pods if isinstance(pod, Pod) for uid in pod.needed_claims()}
            for uid in {claim.uid for claim in claims if claim.guessed} - used:
                with self._operations.locked(uid):
                    claim = self.cache.get(uid)
                    if claim and claim.guessed:  # a new pod may have healed the claim since
                        failures |= self._unprepare([uid])
        if failures:
            raise UnprepareFailed(failures)

    def pod_might_need_to_unprepare(self, pod_uid: str) -> bool:
        """True while any claim refers to the pod."""
        return bool(self.cache.of_pod(pod_uid))

    def get_resources(self, pod: Pod, container: str) -> ContainerResources:
        """The CDI devices of a container, by request. Raises ClaimNotPrepared if one of its claims is not ready."""
        return container_resources(self.cache, pod, container)

    def container_claim_infos(self, pod: Pod, container: str) -> tuple[ClaimInfo, ...]:
        """The claims that a container uses, each once, if they are in the cache."""
        return container_claim_infos(self.cache, pod, container)

    def pod_resources(self, pod: Pod) -> PodResources:
        """Which container uses which device, for monitoring agents."""
        return pod_resources(self.cache, pod)

    def _validate(self, pod: Pod, claim: ResourceClaim) -> None:
        name = f"claim {claim.namespace}/{claim.name} (UID {claim.uid}) of pod {pod.namespace}/{pod.name}"
        if claim.allocations is None:
            raise ClaimInvalid(f"{name} is not allocated yet; try again")
        if pod.uid not in claim.reserved_for:
            raise ClaimInvalid(f"{name} is not reserved for this pod (UID {pod.uid})")
        for driver, allocation in claim.allocations.items():
            if allocation.needs_driver and driver not in self._drivers:
                raise ClaimInvalid(f"{name} needs driver {driver}, which is not registered on this node")

    def _is_prepared(self, uid: str) -> bool:
        claim = self.cache.get(uid)
        return claim is not None and claim.prepared

    def _prepare(self, claims: Mapping[str, ResourceClaim]) -> tuple[dict[str, dict[str, PrepareResult]], Failures]:
        """Call each driver once, with all its claims. Returns successes by claim and driver, and failures."""
        answers: dict[str, dict[str, PrepareResult]] = {uid: {} for uid in claims}
        failures: Failures = {}
        for driver, uids in _by_driver(claims).items():
            reply = self._called(driver, lambda plugin: plugin.prepare, uids, lambda why: PrepareResult(error=why))
            for uid in uids:
                answer = reply.get(uid, PrepareResult(error=NO_ANSWER))
                if why := error_in(answer):
                    _add_failure(failures, uid, driver, why)
                else:
                    answers[uid][driver] = answer
        return answers, failures

    def _record(self, answers: Mapping[str, Mapping[str, PrepareResult]], failures: Failures) -> Failures:
        """Each driver's answer replaces what an earlier attempt recorded for it."""

        def recorded(known: Mapping[str, ClaimInfo]) -> Iterable[ClaimInfo]:
            for uid, claim in known.items():
                states = dict(claim.state.driver_states)
                for driver, answer in answers[uid].items():
                    states[driver] = states.get(driver, DriverState()).with_devices(answer.devices)
                state = replace(claim.state, driver_states=states)
                prepared = uid not in failures
                # Stamped with this boot even if nothing else has changed.
                yield replace(claim, state=state, prepared=prepared, from_this_boot=prepared or claim.from_this_boot)

        return self._changed(answers, recorded)

    def _release(self, gone: Mapping[str, frozenset[str]]) -> Failures:
        """Drop references to pods. A claim keeps its last reference until all drivers have unprepared it."""
        last: list[str] = []

        def without(known: Mapping[str, ClaimInfo]) -> Iterable[ClaimInfo]:
            for uid, claim in known.items():
                state = replace(claim.state, pod_uids=claim.state.pod_uids - gone[uid])
                if claim.unpreparing or not (state.pod_uids or claim.guessed):
                    last.append(uid)
                else:
                    yield replace(claim, state=state) if claim.guessed else claim.rewritten(state)

        with self._operations.locked(*gone):
            failures = self._changed(gone, without)
            return failures | self._unprepare(last)

    def _unprepare(self, uids: Iterable[str]) -> Failures:
        """The caller holds the operation locks of these claims, but no lock of the cache."""
        claims = [claim for uid in uids if (claim := self.cache.get(uid))]
        failures: Failures = {}
        for claim in claims:
            self.cache.mark(claim.uid, unpreparing=True, prepared=False)
        drivers: dict[str, list[str]] = {}
        for claim in claims:
            known = {name for name, s in claim.state.driver_states.items() if not s.skips(NodeOperation.UNPREPARE)}
            for driver in sorted(known | set(self._drivers) if claim.unknown else known):
                drivers.setdefault(driver, []).append(claim.uid)
        for driver, its_claims in drivers.items():
            reply: Mapping[str, str | None] = self._called(driver, lambda plugin: plugin.unprepare, its_claims, str)
            for uid in its_claims:
                why = reply.get(uid, NO_ANSWER)
                if why not in ("", None):
                    _add_failure(failures, uid, driver, why if isinstance(why, str) else not_a(str, why))
        done = [claim.uid for claim in claims if claim.uid not in failures]
        return failures | _failures_of(done, lambda: self.cache.delete(*done))

    def _called(
        self, driver: str, call: Callable[[DRAPlugin], Call[R]], uids: Iterable[str], failed: Callable[[str], R]
    ) -> Mapping[str, R]:
        """A driver's answers; an error of the whole call becomes the error of each claim."""
        refs = [claim.ref for uid in uids if (claim := self.cache.get(uid))]
        try:
            plugin = self._drivers.get(driver)
            if plugin is None:
                raise DRAError("the driver is not registered on this node")
            return dict(call(plugin)(refs))
        except Exception as error:  # noqa: BLE001  (a driver is foreign code)
            why = str(error) if isinstance(error, DRAError) else f"{type(error).__name__}: {error}"
            return {ref.uid: failed(why) for ref in refs}

    def _changed(
        self, uids: Iterable[str], change: Callable[[Mapping[str, ClaimInfo]], Iterable[ClaimInfo]]
    ) -> Failures:
        listed = list(uids)
        return _failures_of(listed, lambda: self.cache.change(listed, change, independent=True))


def _joined(claim: ResourceClaim, pod: Pod, known: ClaimInfo | None) -> ClaimInfo:
    """The claim with one more pod. An unknown claim becomes good, and keeps what its last whole generation held."""
    if known is None:
        known = ClaimInfo(ClaimInfoState(claim.uid, claim.name, claim.namespace))
    if known.unpreparing:
        raise ClaimInvalid(f"claim {claim.namespace}/{claim.name} (UID {claim.uid}) is being unprepared; try again")
    drivers = dict(known.state.driver_states)
    for driver, allocation in (claim.allocations or {}).items():
        skipped = tuple(map(str, allocation.skipped_operations))  # plain text, even if a NodeOperation was passed
        did = replace(drivers.get(driver, DriverState()), skipped_operations=skipped)
        # No driver answers a skipped call, so the devices come from the allocation.
        drivers[driver] = did.with_devices(allocation.devices) if did.skips(NodeOperation.PREPARE) else did
    state = replace(
        known.state,
        claim_name=claim.name,
        namespace=claim.namespace,
        pod_uids=known.state.pod_uids | {pod.uid},
        driver_states=drivers,
    )
    return known.rewritten(state)


def _by_driver(claims: Mapping[str, ResourceClaim]) -> dict[str, list[str]]:
    """The claims that each driver has to prepare."""
    drivers: dict[str, list[str]] = {}
    for uid, claim in claims.items():
        for driver, allocation in (claim.allocations or {}).items():
            if not NodeOperation.PREPARE.is_among(allocation.skipped_operations):
                drivers.setdefault(driver, []).append(uid)
    return drivers


def _add_failure(failures: Failures, uid: str, driver: str, why: str) -> None:
    """A claim may fail in several drivers: name all of them."""
    failures[uid] = "; ".join(filter(None, [failures.get(uid), f"{driver}: {why}"]))


def _failures_of(uids: Sequence[str], write: Callable[[], None]) -> Failures:
    """The writes that the disk refused, by claim."""
    try:
        write()
    except BatchFailed as error:
        return {uid: str(failure) for uid, failure in error.failures.items()}
    except CheckpointError as error:
        concerned = [uid for uid in uids if uid == getattr(error, "key", None)]
        return dict.fromkeys(concerned or uids, str(error))
    return {}

"""What is prepared, refused and remembered, without a process around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import MemoryStore
from draState import ClaimEvent, ClaimInfoCache, ClaimPreparer, ClaimRef, PodConfigStore, PrepareResult
from draState.aio import AsyncClaimInfoCache, AsyncClaimPreparer
from draState.plugin import Device, Driver, DriverClaim, Inventory
from draState.plugin._apiserver.client import ApiError, ApiUnreachable
from draState.plugin._cdi import CdiFolder
from draState.plugin._hooks import Caller, PluginHooks
from draState.plugin._reports.devicestatus import DeviceStatuses
from draState.plugin._reports.outbox import Outbox
from draState.plugin._users import Processes

DRIVER = "gpu.example.com"
OFFERED = (Device("gpu-0"), Device("gpu-1"), Device("shared", shared=True))
INVENTORY = Inventory(DRIVER, "n1", OFFERED)


class Gpus(Driver):
    name = DRIVER

    def devices(self) -> tuple[Device, ...]:
        return OFFERED

    def set_up(self, claim: DriverClaim) -> None:
        pass

    def tear_down(self, claim: DriverClaim) -> None:
        pass


def result(device: str, request: str = "r", **more: object) -> dict[str, object]:
    return {"request": request, "driver": DRIVER, "pool": "n1", "device": device, **more}


def resource_claim(uid: str, *results: Mapping[str, object], pods: tuple[str, ...] = ("p",)) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid},
        "status": {
            "allocation": {"devices": {"results": list(results)}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{pod}", "uid": pod} for pod in pods],
        },
    }


class OneByOne:
    """A preparer for claims one at a time."""

    def __init__(self, preparer: AsyncClaimPreparer) -> None:
        self._preparer = preparer
        self.cache = preparer.preparer.cache

    async def prepare(self, ref: ClaimRef) -> PrepareResult:
        return (await self._preparer.prepare([ref]))[ref.uid]

    async def unprepare(self, ref: ClaimRef) -> str:
        return (await self._preparer.unprepare([ref]))[ref.uid]


class Desk:
    """A preparer and its surroundings; the API server is a dict by claim name."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path
        self.server: dict[str, Any] = {}
        self.fetched = 0
        self.down = False
        self.events: list[ClaimEvent] = []

    @asynccontextmanager
    async def open(self, boot_id: str = "boot-1") -> AsyncIterator[OneByOne]:
        def make() -> ClaimInfoCache:
            return ClaimInfoCache(self._path / "claims", boot_id=boot_id)

        self.cdi = CdiFolder(str(self._path / "cdi"), DRIVER)
        async with await AsyncClaimInfoCache.open(make) as cache:
            self.cdi.sweep(claim.uid for claim in cache.cache if claim.from_this_boot is False)
            pods = PodConfigStore(MemoryStore(), boot_id=boot_id)
            hooks = PluginHooks(
                Gpus(),
                caller=Caller(),
                inventory=lambda: INVENTORY,
                cdi=self.cdi,
                pods=pods,
                server=self,
                processes=Processes("/proc", "/"),
                statuses=DeviceStatuses(Outbox(self), DRIVER, "n1"),  # type: ignore[arg-type]  # nothing is sent here
            )
            preparer = AsyncClaimPreparer(ClaimPreparer(cache.cache, hooks, on_event=self.events.append), cache.threads)
            await preparer.restore()
            yield OneByOne(preparer)
            preparer.preparer.close()

    def offer(self, uid: str, *results: Mapping[str, object]) -> ClaimRef:
        self.server[f"c-{uid}"] = resource_claim(uid, *results)
        return ClaimRef(uid, f"c-{uid}", "default")

    def file_of(self, uid: str) -> Path:
        return self._path / "claims" / f"{uid}.json"

    def cdi_file(self, uid: str) -> Path:
        return Path(self.cdi.path) / f"{DRIVER}-device_{uid}.json"

    def claims(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.server.values())

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        self.fetched += 1
        if self.down:
            raise ApiUnreachable(name, 0, "down")
        if name not in self.server:
            raise ApiError(name, 404, "not found", "resourceclaims")
        found: Mapping[str, Any] = self.server[name]
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def names(prepared: PrepareResult) -> list[str]:
    assert not prepared.error
    return [device.device_name for device in prepared.devices]


def test_a_claim_is_recorded_and_has_its_cdi_file_before_it_is_answered(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            assert names(await preparer.prepare(ref)) == ["gpu-0"]
            assert desk.file_of("a").exists()
            assert desk.cdi.uids() == {"a"}
            assert await preparer.unprepare(ref) == ""
            assert not desk.file_of("a").exists()
            assert desk.cdi.uids() == set()

    asyncio.run(main())


def test_hooks_and_containers_see_what_the_scheduler_decided(desk: Desk) -> None:
    decided: dict[str, Any] = {"tolerations": [{"key": "ill", "operator": "Exists"}], "bindingConditions": ["Attached"]}

    async def main() -> None:
        async with desk.open() as preparer:
            await preparer.prepare(desk.offer("a", result("gpu-0", **decided)))

    asyncio.run(main())
    (device,) = json.loads(desk.cdi_file("a").read_text())["devices"]
    (shown,) = [line for line in device["containerEdits"]["env"] if line.startswith("DRA_ALLOCATION_")]
    assert json.loads(shown.removeprefix("DRA_ALLOCATION_GPU_0=")) == decided


def test_preparing_again_gives_the_same_answer_even_without_the_api_server(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            first = await preparer.prepare(ref)
            assert await preparer.prepare(ref) == first
            desk.down = True
            assert await preparer.prepare(ref) == first
        async with desk.open() as preparer:
            assert await preparer.prepare(ref) == first, "after a restart"
        assert [event.kind for event in desk.events] == ["answered-from-memory"] * 2

    asyncio.run(main())


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{")])
def test_preparing_again_makes_the_cdi_file_good(desk: Desk, spoil: Callable[[Path], object]) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            await preparer.prepare(ref)
            file = desk.cdi_file("a")
            content = file.read_text()
            for desk.down in (False, True):
                spoil(file)
                assert names(await preparer.prepare(ref)) == ["gpu-0"]
                assert file.read_text() == content

    asyncio.run(main())


def test_after_a_reboot_it_is_prepared_anew_and_holds_its_device_meanwhile(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            first = await preparer.prepare(ref)
        async with desk.open("boot-2") as preparer:
            assert desk.cdi.uids() == set(), "the set-up of an earlier boot is worthless"
            other = await preparer.prepare(desk.offer("b", result("gpu-0")))
            assert "held by claim default/c-a (UID a" in other.error
            assert await preparer.prepare(ref) == first
            assert desk.cdi.uids() == {"a"}
        desk.down = True
        async with desk.open("boot-2") as preparer:
            assert await preparer.prepare(ref) == first
        async with desk.open("boot-3") as preparer:
            assert "its allocation cannot be read" in (await preparer.prepare(ref)).error, "not of this boot"

    asyncio.run(main())


def test_several_requests_for_one_device_are_one_device(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0", "x"), result("gpu-1", "x"), result("gpu-0", "y"))
            devices = (await preparer.prepare(ref)).devices
            assert [(device.device_name, device.request_names) for device in devices] == [
                ("gpu-0", ("x", "y")),
                ("gpu-1", ("x",)),
            ]

    asyncio.run(main())


def test_of_many_claims_for_one_device_exactly_one_gets_it(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            refs = [desk.offer(f"u{n}", result("gpu-0")) for n in range(30)]
            answers = await asyncio.gather(*(preparer.prepare(ref) for ref in refs))
            assert sum(not answer.error for answer in answers) == 1
            assert all("is held by claim" in answer.error for answer in answers if answer.error)
            assert len(preparer.cache) == 1

    asyncio.run(main())


def test_a_shared_device_goes_to_several_claims_with_a_share_each(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            for uid, share in (("a", "s1"), ("b", "s2")):
                assert names(await preparer.prepare(desk.offer(uid, result("shared", shareID=share)))) == ["shared"]
            twice = await preparer.prepare(desk.offer("c", result("shared", shareID="s1")))
            assert "held by claim default/c-a" in twice.error
            alone = await preparer.prepare(desk.offer("d", result("gpu-0", shareID="s1")))
            assert "is not for sharing" in alone.error

    asyncio.run(main())


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (resource_claim("other", result("gpu-0")), "has UID other under this name"),
        ({"metadata": {"uid": "a"}}, "is not allocated"),
        ({"metadata": {"uid": "a"}, "status": {"allocation": {}}}, "is not allocated"),
        (resource_claim("a"), "no device of driver"),
        (resource_claim("a", {**result("gpu-0"), "driver": "other.example.com"}), "no device of driver"),
        (resource_claim("a", result("gpu-9")), "which this node does not have"),
        (resource_claim("a", {**result("gpu-0"), "pool": "n2"}), "which this node does not have"),
        ({}, "not a ResourceClaim"),
        ({"metadata": []}, "not a ResourceClaim"),
        (resource_claim("a", {"driver": DRIVER}), "not a ResourceClaim"),
        (None, "404 not found"),
    ],
)
def test_what_cannot_be_prepared_says_why_and_leaves_no_trace(desk: Desk, claim: Any, error: str) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            if claim is not None:
                desk.server["c"] = claim
            answer = await preparer.prepare(ClaimRef("a", "c", "default"))
            assert error in answer.error
            assert len(preparer.cache) == 0
            assert desk.cdi.uids() == set()

    asyncio.run(main())


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", ".hidden", "x" * 300])
def test_a_uid_that_is_no_name_is_refused_in_both_directions(desk: Desk, uid: str) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = ClaimRef(uid, "c", "default")
            assert "UID of the claim is invalid" in (await preparer.prepare(ref)).error
            assert "UID of the claim is invalid" in await preparer.unprepare(ref)

    asyncio.run(main())


def test_a_new_claim_with_the_name_of_an_old_one_is_another_claim(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            old = desk.offer("a", result("gpu-0"))
            await preparer.prepare(old)
            desk.server["c-a"] = resource_claim("b", result("gpu-1"))
            assert names(await preparer.prepare(ClaimRef("b", "c-a", "default"))) == ["gpu-1"]
            assert await preparer.unprepare(old) == ""
            assert desk.cdi.uids() == {"b"}

    asyncio.run(main())


def test_an_unknown_claim_unprepares_with_success_and_without_the_api_server(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            assert await preparer.unprepare(ClaimRef("never-seen", "c", "default")) == ""
        assert desk.fetched == 0

    asyncio.run(main())


def test_a_cdi_file_that_cannot_be_written_fails_the_claim_until_it_can(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            with mock.patch.object(CdiFolder, "write", side_effect=OSError(28, "No space left on device")):
                assert "No space left" in (await preparer.prepare(ref)).error
                assert preparer.cache.holders(DRIVER, "n1", "gpu-0") == {"a"}, "recorded: it may be half done"
            assert names(await preparer.prepare(ref)) == ["gpu-0"]
            assert desk.cdi.uids() == {"a"}, "not answered from memory before it is whole"

    asyncio.run(main())


@pytest.mark.parametrize("damage", [lambda blob: b"", lambda blob: blob[: len(blob) // 2]])
def test_a_damaged_claim_holds_its_device_and_is_healed_by_a_prepare(
    desk: Desk, damage: Callable[[bytes], bytes]
) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            await preparer.prepare(ref)
        async with desk.open("boot-2") as preparer:
            await preparer.prepare(ref)  # a second generation, so that a previous one exists
        desk.file_of("a").write_bytes(damage(desk.file_of("a").read_bytes()))
        async with desk.open("boot-2") as preparer:
            assert preparer.cache.report().unknown.keys() == {"a"}
            assert desk.cdi.uids() == {"a"}, "left as it is"
            other = await preparer.prepare(desk.offer("b", result("gpu-0")))
            assert "whose state is damaged" in other.error
            assert names(await preparer.prepare(desk.offer("c", result("gpu-1")))) == ["gpu-1"]
            assert names(await preparer.prepare(ref)) == ["gpu-0"]
            assert not preparer.cache.report().degraded

    asyncio.run(main())


def test_a_damaged_claim_can_be_unprepared(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            await preparer.prepare(ref)
        desk.file_of("a").write_bytes(b"")
        async with desk.open() as preparer:
            assert await preparer.unprepare(ref) == ""
            assert len(preparer.cache) == 0
            assert desk.cdi.uids() == set()

    asyncio.run(main())


def test_calls_of_one_claim_come_in_their_order(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            calls = [preparer.prepare(ref), preparer.unprepare(ref), preparer.prepare(ref), preparer.unprepare(ref)]
            answers = await asyncio.gather(*calls)
            assert [getattr(answer, "error", answer) for answer in answers] == [""] * 4
            assert len(preparer.cache) == 0

    asyncio.run(main())


@pytest.mark.parametrize("delay", [0, 0.0005, 0.001, 0.002, 0.004, 0.008])
def test_a_call_that_kubelet_gave_up_leaves_all_or_nothing(desk: Desk, delay: float) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            ref = desk.offer("a", result("gpu-0"))
            call = asyncio.create_task(preparer.prepare(ref))
            await asyncio.sleep(delay)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            claim = preparer.cache.get("a")
            assert (bool(claim and claim.prepared), desk.cdi.uids()) in [(False, set()), (True, {"a"})]
            assert names(await preparer.prepare(ref)) == ["gpu-0"]

    asyncio.run(main())


def test_a_directory_that_another_process_took_is_reported_as_lost(desk: Desk) -> None:
    async def main() -> None:
        async with desk.open() as preparer:
            (desk.file_of("x").parent / ".lock").unlink()
            answer = await preparer.prepare(desk.offer("a", result("gpu-0")))
            assert "lock file" in answer.error
        assert [event.kind for event in desk.events] == ["state-lost"]

    asyncio.run(main())

"""The health of devices for asyncio: a stream is followed until it ends, or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from draState import DeviceHealth, DeviceHealthStore, Health, HealthChange
from draState.aio import AsyncDeviceHealthStore

GPU = "gpu.example.com"


class Stream:
    """The reports that a test queues, as a driver sends them; None ends the stream, an error breaks it."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[list[DeviceHealth] | Exception | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[list[DeviceHealth]]:
        while (report := await self.sent.get()) is not None:
            if isinstance(report, Exception):
                raise report
            yield report


def of(health: Health) -> list[DeviceHealth]:
    return [DeviceHealth("p", "d", health)]


async def watched(directory: Path, heard: asyncio.Queue[Health]) -> AsyncDeviceHealthStore:
    """A store whose changes are announced in the loop, with the value read at that moment."""
    loop = asyncio.get_running_loop()

    def changed(change: HealthChange) -> None:
        loop.call_soon_threadsafe(lambda: heard.put_nowait(store.cache.get(change.driver, "p", "d").health))

    store = await AsyncDeviceHealthStore.open(lambda: DeviceHealthStore(directory, on_change=changed))
    return store


@pytest.mark.parametrize("end", ["ended", "broken", "cancelled"])
def test_a_stream_is_followed_and_its_driver_forgotten_when_it_ends(tmp_path: Path, end: str) -> None:
    async def main() -> None:
        heard: asyncio.Queue[Health] = asyncio.Queue()
        async with await watched(tmp_path, heard) as store:
            stream = Stream()
            following = asyncio.create_task(store.follow(GPU, stream))
            for health in (Health.HEALTHY, Health.UNHEALTHY):
                stream.sent.put_nowait(of(health))
                assert await heard.get() is health
            if end == "cancelled":
                following.cancel()
            else:
                stream.sent.put_nowait(ConnectionError() if end == "broken" else None)
            await asyncio.wait([following])
            assert following.cancelled() == (end == "cancelled")
            assert following.cancelled() or (following.exception() is None) == (end == "ended")
            assert await heard.get() is Health.UNKNOWN
            assert store.cache.drivers() == {}

    asyncio.run(main())
    assert not list(tmp_path.glob("*.json"))


def test_a_store_that_is_closed_first_still_knows_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        heard: asyncio.Queue[Health] = asyncio.Queue()
        store = await watched(tmp_path, heard)
        stream = Stream()
        following = asyncio.create_task(store.follow(GPU, stream))
        stream.sent.put_nowait(of(Health.UNHEALTHY))
        await heard.get()
        await store.close()
        following.cancel()
        await asyncio.wait([following])
        assert following.cancelled()
        async with await watched(tmp_path, heard) as again:
            assert again.cache.get(GPU, "p", "d").health is Health.UNHEALTHY
            await again.report(GPU, of(Health.HEALTHY))
            assert await heard.get() is Health.HEALTHY
            await again.forget(GPU)
            assert await heard.get() is Health.UNKNOWN

    asyncio.run(main())

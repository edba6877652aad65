"""Calls in threads: in order for a key, side by side otherwise, and never half cancelled."""

from __future__ import annotations

import asyncio
import random
import threading
from contextvars import ContextVar

import pytest

from checkpointmanager.aio import KeyedThreads, KeyedThreadsClosed

from .gates import Gate, until


def test_calls_of_one_key_run_in_the_order_of_their_awaits() -> None:
    async def main() -> list[int]:
        threads, done = KeyedThreads(), list[int]()
        await asyncio.gather(*(threads.run(["a"], lambda n=n: done.append(n)) for n in range(200)))  # type: ignore[misc]
        return done

    assert asyncio.run(main()) == list(range(200))


def test_calls_of_different_keys_are_under_way_at_the_same_time() -> None:
    async def main() -> int:
        threads, gate = KeyedThreads(threads=100), Gate()
        calls = [asyncio.create_task(threads.run([f"k{n}"], gate)) for n in range(100)]
        await until(lambda: gate.inside == 100)
        gate.open()
        await asyncio.gather(*calls)
        return gate.most

    assert asyncio.run(main()) == 100


def test_a_call_of_several_keys_waits_for_all_of_them_and_holds_up_what_follows() -> None:
    async def main() -> list[str]:
        threads, gate, done = KeyedThreads(), Gate(), list[str]()
        first = asyncio.create_task(threads.run(["a"], gate))
        both = asyncio.create_task(threads.run(["a", "b"], lambda: done.append("both")))
        after = asyncio.create_task(threads.run(["b"], lambda: done.append("after")))
        await threads.run(["c"], lambda: done.append("elsewhere"))
        gate.open()
        await asyncio.gather(first, both, after)
        return done

    assert asyncio.run(main()) == ["elsewhere", "both", "after"]


def test_a_waiter_that_is_cancelled_before_its_turn_does_nothing_and_delays_no_other_call() -> None:
    async def main() -> list[str]:
        threads, gate, done = KeyedThreads(), Gate(), list[str]()
        running = asyncio.create_task(threads.run(["a"], gate))
        waiting = asyncio.create_task(threads.run(["a"], lambda: done.append("cancelled")))
        last = asyncio.create_task(threads.run(["a"], lambda: done.append("last")))
        await until(lambda: gate.inside == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()
        await asyncio.gather(running, last)
        return done

    assert asyncio.run(main()) == ["last"]


def test_a_call_that_waits_for_a_thread_is_never_made_when_it_is_cancelled() -> None:
    async def main() -> list[str]:
        threads, gate, done = KeyedThreads(threads=1), Gate(), list[str]()
        running = asyncio.create_task(threads.run(["a"], gate))
        await until(lambda: gate.inside == 1)
        waiting = asyncio.create_task(threads.run(["b"], lambda: done.append("cancelled")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()
        await running
        await threads.run(["b"], lambda: done.append("next"))
        return done

    assert asyncio.run(main()) == ["next"]


def test_a_running_call_ends_before_its_cancellation_is_raised_and_before_the_next_one_starts() -> None:
    async def main() -> tuple[bool, list[str]]:
        threads, gate, done = KeyedThreads(), Gate(), list[str]()

        def slow() -> None:
            gate()
            done.append("cancelled, but done")

        running = asyncio.create_task(threads.run(["a"], slow))
        following = asyncio.create_task(threads.run(["a"], lambda: done.append("next")))
        await until(lambda: gate.inside == 1)
        for _ in range(3):  # again and again
            running.cancel()
            await asyncio.sleep(0.01)
        early = running.done() or following.done()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert done[0] == "cancelled, but done"
        await following
        return early, done

    assert asyncio.run(main()) == (False, ["cancelled, but done", "next"])


def test_what_a_cancelled_call_raised_is_the_cause_of_the_cancellation() -> None:
    async def main() -> BaseException | None:
        threads, gate = KeyedThreads(), Gate()

        def failing() -> None:
            gate()
            raise OSError("disk full")

        running = asyncio.create_task(threads.run(["a"], failing))
        await until(lambda: gate.inside == 1)
        running.cancel()
        await asyncio.sleep(0)
        gate.open()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
        return cancelled.value.__cause__

    assert str(asyncio.run(main())) == "disk full"


def test_a_failed_call_lets_the_next_one_in() -> None:
    async def main() -> int:
        threads = KeyedThreads()
        with pytest.raises(ZeroDivisionError):
            await threads.run(["a"], lambda: 1 // 0)
        return await threads.run(["a"], lambda: 7)

    assert asyncio.run(main()) == 7


def test_closing_waits_for_what_runs_and_for_what_waits_and_refuses_what_comes_later() -> None:
    async def main() -> list[str]:
        threads, gate, done = KeyedThreads(), Gate(), list[str]()
        calls = [asyncio.create_task(threads.run(["a"], gate))]
        calls.append(asyncio.create_task(threads.run(["a"], lambda: done.append("waited"))))
        await until(lambda: gate.inside == 1)
        closing = asyncio.create_task(threads.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        with pytest.raises(KeyedThreadsClosed):
            await threads.run(["b"], lambda: done.append("late"))
        gate.open()
        await asyncio.gather(*calls, closing)
        await threads.close()
        return done

    assert asyncio.run(main()) == ["waited"]


def test_a_call_sees_the_context_of_its_caller() -> None:
    request = ContextVar("request", default="")

    async def main() -> str:
        request.set("r-1")
        return await KeyedThreads().run(["a"], request.get)

    assert asyncio.run(main()) == "r-1"


@pytest.mark.parametrize("seed", range(8))
def test_under_random_cancellation_no_key_has_two_calls_at_once_and_the_order_holds(seed: int) -> None:
    """400 calls of 5 keys, a third of them cancelled at some moment."""
    chance = random.Random(seed)
    keys = "abcde"
    guards = {key: threading.Lock() for key in keys}
    ran: dict[str, list[int]] = {key: [] for key in keys}

    def call(wanted: list[str], number: int) -> None:
        taken = [key for key in wanted if guards[key].acquire(blocking=False)]
        assert taken == wanted, "another call of this key was under way"
        for key in wanted:
            ran[key].append(number)
        for key in wanted:
            guards[key].release()

    async def main() -> None:
        threads = KeyedThreads(threads=8)
        tasks = []
        for number in range(400):
            wanted = sorted(chance.sample(keys, chance.choice([1, 1, 1, 2, 3])))
            tasks.append(asyncio.create_task(threads.run(wanted, lambda w=wanted, n=number: call(w, n))))  # type: ignore[misc]
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, result in enumerate(results):
            if result is None:
                assert any(number in numbers for numbers in ran.values())
            assert result is None or isinstance(result, asyncio.CancelledError)
        await threads.close()

    asyncio.run(main())
    for numbers in ran.values():
        assert numbers == sorted(numbers)

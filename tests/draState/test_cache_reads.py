"""Reads never wait: not for the disk, not for a writer, not for a driver; and never see half of a change."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from draState import ClaimInfo

from .claims import GPU, claim_of, info_of, pod_of
from .drivers import Doorstop
from .node import Node

LIMIT = 20.0  # seconds; only a deadlock takes that long


def read_everything(node: Node) -> dict[str, Any]:
    cache = node.cache
    return {
        "get": cache.get("a"),
        "by_name": cache.by_name("default", "claim-a"),
        "of_pod": cache.of_pod("pod-1"),
        "holders": cache.holders(GPU, "pool", "dev-a"),
        "pods": cache.pods(),
        "report": cache.report(),
        "len": len(cache),
        "all": list(cache),
        "might": node.manager.pod_might_need_to_unprepare("pod-1"),
        "resources": node.manager.pod_resources(pod_of("pod-1", claim_of("a"))),
        "infos": node.manager.container_claim_infos(pod_of("pod-1", claim_of("a")), "main"),
    }


def put_another_pod(node: Node) -> None:
    node.cache.put(info_of("a", ["pod-1", "pod-2"], ["dev-a"]))


def delete(node: Node) -> None:
    node.cache.delete("a")


def add_another_claim(node: Node) -> None:
    node.cache.put(info_of("b"))


@pytest.mark.parametrize("write", [put_another_pod, delete, add_another_claim])
def test_a_reader_finishes_while_a_writer_waits_for_the_disk(real_node: Node, write: Callable[[Node], None]) -> None:
    real_node.cache.put(info_of("a", ["pod-1"], ["dev-a"]))
    real_node.cache.mark("a", unpreparing=write is delete)  # as a deletion marks it before it goes to the disk
    before = read_everything(real_node)
    disk = Doorstop()
    real_node.store.before = disk

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write, real_node)
        disk.wait_until_reached()
        during = pool.submit(read_everything, real_node).result(LIMIT)
        disk.let_go()
        writing.result(LIMIT)

    assert during == before
    assert read_everything(real_node) != before


def test_a_reader_finishes_while_a_change_is_being_computed(real_node: Node) -> None:
    real_node.cache.put(info_of("a", ["pod-1"], ["dev-a"]))
    before = read_everything(real_node)
    thinking = Doorstop()

    def change(known: Any) -> list[ClaimInfo]:
        thinking()
        return [replace(known["a"], prepared=True)]

    with ThreadPoolExecutor() as pool:
        changing = pool.submit(real_node.cache.change, ["a"], change)
        thinking.wait_until_reached()
        during = pool.submit(read_everything, real_node).result(LIMIT)
        thinking.let_go()
        changing.result(LIMIT)

    assert during == before


def test_writers_of_different_claims_do_not_wait_for_each_other(real_node: Node) -> None:
    disk = Doorstop()
    real_node.store.before = lambda _, uids: disk() if uids == ("a",) else None

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(real_node.cache.put, info_of("a"))
        disk.wait_until_reached()
        pool.submit(real_node.cache.put, info_of("b"), info_of("c")).result(LIMIT)
        assert "a" not in real_node.cache
        disk.let_go()
        writing.result(LIMIT)

    assert {claim.uid for claim in real_node.cache} == {"a", "b", "c"}


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_readers_and_other_claims_go_on_while_a_driver_works(real_node: Node, operation: str) -> None:
    pod, other = pod_of("pod-1", claim_of("a")), pod_of("pod-2", claim_of("b"))
    if operation == "unprepare":
        real_node.manager.prepare_resources(pod)
    driver = Doorstop()
    real_node.gpu.before = lambda called: driver() if real_node.gpu.calls[-1] == (operation, ("a",)) else None

    with ThreadPoolExecutor() as pool:
        work = real_node.manager.prepare_resources if operation == "prepare" else real_node.manager.unprepare_resources
        working = pool.submit(work, pod)
        driver.wait_until_reached()
        during = pool.submit(read_everything, real_node).result(LIMIT)
        pool.submit(real_node.manager.prepare_resources, other).result(LIMIT)
        pool.submit(real_node.manager.unprepare_resources, other).result(LIMIT)
        driver.let_go()
        working.result(LIMIT)

    assert during["get"].unpreparing == (operation == "unprepare")
    assert not during["get"].prepared
    assert during["might"]


def test_a_reader_that_finds_an_index_older_or_newer_than_the_claims_leaves_those_out(node: Node) -> None:
    """Reads take no lock, so they may run between the two updates. Here the index is as such a reader sees it."""
    node.cache.put(info_of("a", ["pod-1"]))
    node.cache._pods["pod-9"] = ("gone", "a")
    node.cache._uids["default", "other"] = ("gone", "a")

    assert node.cache.of_pod("pod-9") == ()
    assert node.cache.by_name("default", "other") is None

"""Files that a crash left empty, full of NULs, too long or under a temporary name."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_verify.kubelet import Verdict
from checkpointmanager import CheckpointManager, Event, EventKind, Outcome, Reason, Schema
from checkpointmanager.testing import acknowledge, every_crash

from . import kubelets
from .naive import rename_without_sync
from .sandboxes import Sandbox, naive_load, names, opened, quarantined, reason_for


@pytest.fixture
def pod_file(directory: Path) -> Path:
    """The file of pod-a, in its second generation, with pod-b beside it."""
    with opened(directory) as manager:
        manager.create_checkpoint("pod-a", Sandbox("pod-a", ports=[80]))
        manager.create_checkpoint("pod-a", Sandbox("pod-a", ports=[80, 443]))
        manager.create_checkpoint("pod-b", Sandbox("pod-b"))
    return directory / "pod-a.json"


def test_kubernetes_135711_valid_json_followed_by_extra_bytes(
    directory: Path, pod_file: Path, events: list[Event]
) -> None:
    """After a node restart the state file was whole JSON with more bytes behind it, and kubelet panicked for ever."""
    kubelets_own = kubelets.judged(kubelets.PODS + b'"}}', "allocated_pods_state")
    assert (kubelets_own.verdict, kubelets_own.reason) == (Verdict.DAMAGED, "trailing-bytes")
    whole = pod_file.read_bytes()
    pod_file.write_bytes(whole + b"443]}}\n")
    with pytest.raises(json.JSONDecodeError, match="Extra data"):
        naive_load(directory)

    with opened(directory, on_event=events.append) as manager:
        loaded = manager.load()
        assert list(loaded.checkpoints) == ["pod-b"]
        assert reason_for(loaded.problems["pod-a"]) is Reason.TRAILING_BYTES
        assert [(event.kind, event.key) for event in events] == [(EventKind.DAMAGE, "pod-a")]
        assert pod_file.read_bytes() == whole + b"443]}}\n", "nothing is repaired without a request"

        assert manager.recover_checkpoint("pod-a").outcome is Outcome.REPAIRED

        assert pod_file.read_bytes() == whole
        assert quarantined(directory) == [whole + b"443]}}\n"]


def test_kubernetes_43021_zero_length_sandbox_checkpoint(directory: Path, pod_file: Path) -> None:
    """A reboot left an empty sandbox checkpoint; the sandbox could not be stopped and its pod not be made again."""
    pod_file.write_bytes(b"")
    with pytest.raises(json.JSONDecodeError):
        naive_load(directory)

    with opened(directory) as manager:
        assert reason_for(manager.load().problems["pod-a"]) is Reason.EMPTY
        assert "pod-a" in manager.list_checkpoints(), "damaged is not gone: it still has to be stopped"

        manager.remove_checkpoint("pod-a")
        assert "pod-a" not in manager
        manager.create_checkpoint("pod-a", Sandbox("pod-a", "host"))

    with opened(directory) as manager:
        assert manager.get_checkpoint("pod-a").data == Sandbox("pod-a", "host")
        assert manager.get_checkpoint("pod-b").data == Sandbox("pod-b")


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (lambda blob: b"\0" * len(blob), Reason.NUL_FILLED),
        (lambda blob: blob[:100] + b"\0" * 412, Reason.NUL_FILLED),
        (lambda _: b"", Reason.EMPTY),
    ],
    ids=["all NUL", "NUL tail", "empty"],
)
def test_azure_container_networking_642_nul_bytes_after_an_os_crash(
    directory: Path, pod_file: Path, left: Callable[[bytes], bytes], reason: Reason
) -> None:
    """A crash of the machine left NUL bytes for a state file, and every CNI call failed until a human removed it."""
    torn = left(pod_file.read_bytes())
    pod_file.write_bytes(torn)

    with opened(directory) as manager:
        assert reason_for(manager.load().problems["pod-a"]) is reason
        manager.update_checkpoint("pod-b", lambda sandbox: Sandbox(sandbox.pod, "host"))  # the others go on
        before = manager.previous_checkpoint("pod-a")
        assert before is not None
        assert before.data.ports == [80]

        assert manager.recover_checkpoint("pod-a").outcome is Outcome.NEEDS_ROLLBACK, (
            "losing data is not ours to decide"
        )
        assert pod_file.read_bytes() == torn
        assert manager.recover_checkpoint("pod-a", rollback=True).outcome is Outcome.ROLLED_BACK

        assert manager.get_checkpoint("pod-a").data.ports == [80]
        assert manager.get_checkpoint("pod-a").generation > 2, "what was lost does not come back as if it were older"
        assert quarantined(directory) == [torn]


@pytest.mark.parametrize(
    "left",
    [b"", b"\0" * 300, b"{", b'{"checksum":"xxh3:', b"\xff" * 50, b"null", b'{"checksum":"md9:0123456789abcdef",}\n'],
)
def test_multus_948_deleting_a_pod_needs_no_readable_file(directory: Path, pod_file: Path, left: bytes) -> None:
    """The cache file was empty after a reboot; deleting the pod meant parsing it, and so failed for ever."""
    pod_file.write_bytes(left)
    parsed: list[Any] = []
    schema: Schema[Any] = Schema("Sandbox", encode=lambda data: data, decode=parsed.append)
    with CheckpointManager(directory, schema) as manager:
        manager.remove_checkpoint("pod-a")
        manager.remove_checkpoint("pod-b")  # a good one need not be parsed either

        assert manager.list_checkpoints() == []
    assert parsed == []
    assert names(directory, ".previous-") == [], "nothing is left from which it could come back"


def test_moby_34840_a_monstrous_state_file_ends_neither_memory_nor_start(real_directory: Path) -> None:
    """A database file bad after power loss made the daemon panic or allocate without end; the cure was to delete it."""
    with opened(real_directory) as manager:
        for ports in ([80], [80, 443]):
            manager.create_checkpoint("pod-a", Sandbox("pod-a", ports=ports))
        manager.create_checkpoint("pod-b", Sandbox("pod-b"))
    with (real_directory / "pod-a.json").open("r+b") as file:
        file.truncate(8 << 30)  # sparse: eight gigabytes of nothing

    tracemalloc.start()
    try:
        with opened(real_directory) as manager:
            loaded, verified = manager.load(), manager.verify()
            recovery = manager.recover_checkpoint("pod-a", rollback=True)
            _, peak = tracemalloc.get_traced_memory()
            assert manager.get_checkpoint("pod-a").data.ports == [80]
    finally:
        tracemalloc.stop()

    assert list(loaded.checkpoints) == ["pod-b"]
    assert reason_for(loaded.problems["pod-a"]) is reason_for(verified.problems["pod-a"]) is Reason.TOO_LARGE
    assert recovery.outcome is Outcome.ROLLED_BACK
    assert peak < 1 << 20, "it was not read"


def test_amazon_ecs_agent_1301_stop_and_start_leaves_an_empty_state_file() -> None:
    """An EC2 stop and start left an empty state file more often than not, and the agent went round in circles."""

    def work(directory: Path) -> None:
        rename_without_sync(directory / "naive.json", b'{"cluster":"default"}')
        with opened(directory) as manager:
            for network in ("bridge", "host"):
                manager.create_checkpoint("agent", Sandbox("agent", network))
        acknowledge("done")

    left = set()
    for crash in every_crash(work):
        if not crash.acknowledged:
            continue
        left.add((crash.directory / "naive.json").read_bytes())  # its name is there, since we synced the directory
        with opened(crash.directory) as manager:
            assert manager.get_checkpoint("agent").data == Sandbox("agent", "host")
    assert {b"", bytes(21)} < left, "empty, or nothing but NUL bytes"


@pytest.mark.parametrize("name", [".tmp-0badcafe-1", ".state.json", ".Radicale.tmp-x.json", "state.json.tmp", "state~"])
def test_radicale_443_a_leftover_temp_file_is_never_loaded_as_an_item(directory: Path, name: str) -> None:
    """A temp file that a crash had left was listed, parsed and served as if it were an item."""
    with opened(directory) as manager:
        manager.create_checkpoint("state", Sandbox("pod"))
    (directory / name).write_bytes((directory / "state.json").read_bytes())  # a whole checkpoint, unluckily

    with opened(directory) as manager:
        loaded = manager.load()

    assert list(loaded.checkpoints) == ["state"]
    assert not loaded.problems

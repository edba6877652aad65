"""Pod configs whose files are damaged: repaired where that is exact, else they cost their own pod and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointWriteFailed
from checkpointmanager.testing import damage, failing
from draState import PodConfig, PodConfigStore, PodSyncReport

from .failing_disk import full, unsynced
from .podconfigs import BEFORE, config_of, filled, mtus, mtus_on_disk, opened, restarted


@pytest.fixture
def store(real_directory: Path) -> Iterator[PodConfigStore]:
    with filled(real_directory) as store:
        yield store


def test_a_single_flipped_bit_is_repaired_at_start(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    path = real_directory / "pod-1.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] + bytes([whole[-20] ^ 4]) + whole[-19:])

    with opened(real_directory) as after:
        assert mtus(after) == BEFORE
        assert after.problems == {}
    assert path.read_bytes() == whole


def test_damage_that_cannot_be_repaired_on_a_full_disk_costs_its_own_pod_until_there_is_room(
    store: PodConfigStore, real_directory: Path
) -> None:
    store.close()
    damage.flip_bit(real_directory, "pod-1")

    with full(real_directory), opened(real_directory) as after:
        assert mtus(after) == {"pod-2": BEFORE["pod-2"]}
        assert after.problems.keys() == {"pod-1"}

    assert restarted(store, real_directory) == BEFORE


def test_a_pod_that_could_not_be_read_for_a_moment_is_none_the_worse(
    store: PodConfigStore, real_directory: Path
) -> None:
    store.close()
    with failing(real_directory, "read", about="pod-1.json"), opened(real_directory) as after:
        assert mtus(after) == BEFORE
        assert after.problems == {}


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"{}", b"not json"])
def test_a_damaged_file_costs_its_own_pod(damage: bytes, store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(damage)

    with opened(real_directory) as after:
        assert mtus(after) == {"pod-2": {"eth0": 3}}
        assert after.problems.keys() == {"pod-1"}
        assert str(real_directory / "pod-1.json") in after.problems["pod-1"]
        assert after.delete_claim("claim-1") == ("pod-2",)
        report = after.synchronize(lambda: ["pod-1"], complete=True)
        assert (report.kept, report.problems) == ((), after.problems)
    assert (real_directory / "pod-1.json").read_bytes() == damage


def test_setting_a_damaged_pod_writes_it_anew(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(b"damage")

    with opened(real_directory) as after:
        after.set_device_config("pod-1", "eth0", config_of(mtu=7))
        assert after.problems == {}
        assert after.get_pod_config("pod-1") == PodConfig({"claim-1/eth0": config_of(mtu=7)})

    assert mtus_on_disk(real_directory)["pod-1"] == {"eth0": 7}
    kept = [path.read_bytes() for path in (real_directory / ".quarantine").iterdir()]
    assert kept == [b"damage"]


def test_a_damaged_pod_that_cannot_be_written_stays_a_problem(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(b"damage")

    with opened(real_directory) as after:
        with full(real_directory), pytest.raises(CheckpointWriteFailed):
            after.set_device_config("pod-1", "eth0", config_of())
        with unsynced(real_directory), pytest.raises(CheckpointWriteFailed):
            after.delete_pod("pod-1")

        assert after.problems.keys() == {"pod-1"}
        assert "pod-1" not in after


def test_a_damaged_file_of_a_pod_that_is_gone_is_removed_and_its_bytes_are_kept(
    store: PodConfigStore, real_directory: Path
) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(b"damage")

    with opened(real_directory) as after:
        assert after.synchronize(lambda: ["pod-2"], complete=True) == PodSyncReport(("pod-1",), ("pod-2",), {}, {})
        assert after.problems == {}

    assert [path.read_bytes() for path in (real_directory / ".quarantine").iterdir()] == [b"damage"]


def test_deleting_a_damaged_pod_never_needs_to_parse_it(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(b"damage")

    with opened(real_directory) as after:
        after.delete_pod("pod-1")

        assert after.problems == {}
    assert not (real_directory / "pod-1.json").exists()


def test_a_store_that_cannot_be_loaded_gives_the_directory_back(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    with mock.patch("draState._podconfigs.store._Pod", side_effect=MemoryError), pytest.raises(MemoryError):
        opened(real_directory)

    with opened(real_directory) as after:
        assert mtus(after) == BEFORE


def test_synchronize_forgets_also_what_was_removed_by_hand(store: PodConfigStore, real_directory: Path) -> None:
    store.close()
    (real_directory / "pod-1.json").write_bytes(b"")
    with opened(real_directory) as after:
        for pod in ("pod-1", "pod-2"):
            (real_directory / f"{pod}.json").unlink()

        assert after.synchronize(list, complete=True).removed == ("pod-1", "pod-2")

        assert after.list_pods() == []
        assert after.problems == {}

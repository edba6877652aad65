"""A reboot is visible: each checkpoint says in which boot it was written, if the kernel names its boots."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, MemoryStore
from checkpointmanager.format import boot_id

from ..leases import LEASES, OLD

HERE = Path("/proc/sys/kernel/random/boot_id")
has_boot_id = pytest.mark.skipif(not HERE.exists(), reason="this kernel has no boot id")


@has_boot_id
def test_the_kernel_names_the_boot(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        created = manager.create_checkpoint("a", OLD)
        assert created.boot == HERE.read_text().strip()
        assert created.from_this_boot is True
        assert manager.get_checkpoint("a").from_this_boot is True


@pytest.mark.parametrize(
    ("written_in", "read_in", "same"),
    [("one", "one", True), ("one", "two", False), ("", "two", None), ("one", "", None), ("", "", None)],
)
def test_the_boots_are_compared_where_both_are_known(written_in: str, read_in: str, same: bool | None) -> None:
    store = MemoryStore()
    CheckpointManager(store, LEASES, boot_id=written_in).create_checkpoint("a", OLD)

    found = CheckpointManager(store, LEASES, boot_id=read_in).get_checkpoint("a")

    assert found.boot == written_in
    assert found.from_this_boot is same


def test_where_the_kernel_has_none_or_none_that_is_text_nothing_is_claimed(fs: FakeFilesystem) -> None:
    """pyfakefs has no /proc."""
    assert boot_id() == ""
    created = CheckpointManager(MemoryStore(), LEASES).create_checkpoint("a", OLD)
    assert (created.boot, created.from_this_boot) == ("", None)
    HERE.parent.mkdir(parents=True)
    HERE.write_bytes(b"\xff\xfe")
    assert boot_id() == ""
    HERE.write_bytes(b"7f1c\n")
    assert boot_id() == "7f1c"


def test_the_same_value_in_another_boot_is_written_again() -> None:
    store = MemoryStore()
    CheckpointManager(store, LEASES, boot_id="one").create_checkpoint("a", OLD)
    manager = CheckpointManager(store, LEASES, boot_id="two")

    assert not manager.create_checkpoint("a", OLD).unchanged
    assert manager.get_checkpoint("a").from_this_boot is True


@pytest.mark.parametrize("kind", ["7f1c\n", 'a"b', '"', "x" * 201, " "])
def test_a_boot_id_that_would_break_the_header_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="boot_id"):
        CheckpointManager(MemoryStore(), LEASES, boot_id=kind)

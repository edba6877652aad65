"""A file that cannot be read is not damaged: it is listed, nothing is reset, and reload() reads it again."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    CheckpointUnreadable,
    CorruptCheckpoint,
    Event,
    EventKind,
)
from checkpointmanager.testing import damage, failing

from ..leases import LEASES, NEW, OLD, Lease

by_failure = pytest.mark.parametrize(
    ("call", "number"), [("open", errno.EMFILE), ("read", errno.EIO), ("open", errno.EACCES)]
)


def written(directory: Path) -> Path:
    """Two keys; returns the file of the first."""
    with CheckpointCache(directory, LEASES) as cache:
        cache.put("a", OLD)
        cache.put("b", NEW)
    return directory / "a.json"


@by_failure
def test_load_lists_a_file_that_cannot_be_read(directory: Path, call: str, number: int) -> None:
    before = written(directory).read_bytes()
    events: list[Event] = []
    with CheckpointManager(directory, LEASES, on_event=events.append) as manager:
        with failing(directory, call, number, about="a.json", lasting=True):
            loaded = manager.load(repair=True)
        assert list(loaded.checkpoints) == ["b"]
        problem = loaded.problems["a"]
        assert isinstance(problem, CheckpointUnreadable)
        assert isinstance(problem, OSError)
        assert not isinstance(problem, CorruptCheckpoint)
        assert problem.errno == number
        assert [event.kind for event in events] == [EventKind.UNREADABLE]
        assert manager.load().problems == {}
    assert (directory / "a.json").read_bytes() == before
    assert not (directory / ".quarantine").exists()


@by_failure
def test_a_cache_that_opened_meanwhile_reloads_the_key(directory: Path, call: str, number: int) -> None:
    written(directory)
    with failing(directory, call, number, about="a.json", lasting=True):
        cache = CheckpointCache(directory, LEASES)
        still = cache.reload("a")
    with cache:
        assert still
        assert isinstance(still.problem, CheckpointUnreadable)
        with pytest.raises(CheckpointUnreadable):
            cache["a"]
        entry = cache.reload("a")
        assert entry == cache.entry("a")
        assert cache["a"] == OLD
        assert cache.problems == {}


def test_reload_repairs_exactly_and_keeps_what_it_cannot_repair(directory: Path) -> None:
    written(directory)
    with CheckpointCache(directory, LEASES) as cache:
        damage.flip_bit(directory, "a")
        entry = cache.reload("a")
        assert entry
        assert (entry.value, entry.problem) == (OLD, None)
        damage.truncate(directory, "a")
        entry = cache.reload("a")
        assert entry
        assert isinstance(entry.problem, CorruptCheckpoint)
        cache.put("a", NEW)
        assert cache["a"] == NEW


def test_reload_of_a_key_without_a_file(directory: Path) -> None:
    swaps: list[str] = []
    path = written(directory)
    with CheckpointCache(directory, LEASES, on_swap=lambda key, *_: swaps.append(key)) as cache:
        path.unlink()
        assert cache.reload("a") is None
        assert "a" not in cache
        assert cache.reload("never") is None
    assert swaps == ["a"]


def test_reload_leaves_a_doubt_to_the_next_change(directory: Path) -> None:
    written(directory)
    with CheckpointCache(directory, LEASES) as cache:
        with failing(directory, "fdatasync", errno.EIO, lasting=True), pytest.raises(OSError, match="repeat"):
            cache.change(["a"], lambda _: {"a": Lease("doubtful")})
        entry = cache.reload("a")
        assert entry
        assert entry.in_doubt
        cache.put("a", NEW)
        assert cache.reload("a") == cache.entry("a")
        assert cache["a"] == NEW


OUT_OF_DESCRIPTORS = """
import errno, os, resource, sys
from checkpointmanager import CheckpointCache, CheckpointUnreadable, DirectoryUnusable, Schema

cache = CheckpointCache(sys.argv[1], Schema("Lease"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
entry = cache.reload("a")
assert isinstance(entry.problem, CheckpointUnreadable), entry
assert entry.problem.errno == errno.EMFILE
try:
    cache.put("a", {"holder": "nobody"})
    raise AssertionError("written without a descriptor")
except OSError as error:
    assert error.errno == errno.EMFILE, error
for descriptor in taken:
    os.close(descriptor)
assert cache.reload("a").value["holder"] == "old"
cache.put("a", {"holder": "new"})
cache.close()
"""


def test_a_process_that_is_really_out_of_descriptors_neither_resets_nor_condemns_a_file(real_directory: Path) -> None:
    written(real_directory)
    program = [sys.executable, "-c", OUT_OF_DESCRIPTORS, str(real_directory)]
    ended = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert not (real_directory / ".quarantine").exists()

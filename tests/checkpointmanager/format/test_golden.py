"""A file written once, for good. If a test here fails, every file in the field is unreadable: change the code back."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from checkpointmanager import CheckpointManager, MemoryStore, Schema
from checkpointmanager.format import Header, open_sealed, seal

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pod-7.json"
BYTES = (
    b'{"checksum":"xxh3:2745c72ffdb4cf14","format":1,"kind":"Lease","version":3,"readable_by":2,"key":"pod-7",'
    b'"generation":17,"boot":"7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11","written":"2026-11-16T08:15:30.123456Z",'
    b'"data":{"holder":"agent-a","seconds":60,"tags":["blue","gr\xc3\xbcn"],"share":null}}\n'
)
HEADER = Header(
    kind="Lease",
    version=3,
    readable_by=2,
    key="pod-7",
    generation=17,
    boot="7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11",
    written=datetime(2026, 11, 16, 8, 15, 30, 123456, UTC),
)


@dataclass
class Lease:
    holder: str
    seconds: int
    tags: list[str]
    share: float | None


LEASE = Lease("agent-a", 60, ["blue", "grün"], None)
SCHEMA = Schema("Lease", version=3, readable_by=2, type=Lease)


def test_the_golden_file_has_the_bytes_that_it_always_had() -> None:
    assert GOLDEN.read_bytes() == BYTES


def test_the_golden_file_is_read() -> None:
    header, data = open_sealed(GOLDEN.read_bytes(), "pod-7")
    assert header == HEADER
    assert SCHEMA.decode(data, header.version, header.readable_by) == (LEASE, None)


def test_the_same_value_is_written_as_the_same_bytes() -> None:
    encoded = SCHEMA.encode(LEASE)
    assert (encoded.version, encoded.readable_by) == (3, 2)
    assert seal(HEADER, encoded.json) == GOLDEN.read_bytes()


def test_the_manager_reads_the_golden_file() -> None:
    store = MemoryStore()
    store.current["pod-7"] = GOLDEN.read_bytes()
    checkpoint = CheckpointManager(store, SCHEMA).get_checkpoint("pod-7")
    assert (checkpoint.data, checkpoint.generation, checkpoint.written) == (LEASE, 17, HEADER.written)


def test_the_checksum_is_xxh3_of_all_bytes_from_offset_36() -> None:
    blob = GOLDEN.read_bytes()
    assert blob[:36] == b'{"checksum":"xxh3:' + xxh3_64_hexdigest(blob[36:]).encode() + b'",'


@pytest.mark.skipif(not shutil.which("xxhsum"), reason="xxhsum is not installed (package xxhash)")
def test_an_admin_computes_the_checksum_with_coreutils_and_xxhsum() -> None:
    command = f"tail -c +37 '{GOLDEN}' | xxhsum -H3"
    printed = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout
    assert GOLDEN.read_text("utf-8")[18:34] in printed

"""Tens of thousands of files, a hundred thousand in the long form: fast, and with little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from checkpointmanager.format import Header, seal

from ..long import times
from .command import LIMIT, arguments, environment

MANY = times(10_000, 100_000)
MEGABYTES = 40  # more than for a single file; the names of 100,000 files take about a third of that


def test_many_files_take_hardly_more_memory_than_one(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    _fill(small, 1)
    _fill(large, MANY)

    one, many = _memory_for(small), _memory_for(large)

    assert (many - one) / 1024 < MEGABYTES * MANY / 100_000 + 4


def _fill(directory: Path, count: int) -> None:
    directory.mkdir()
    data = b'{"namespace":"default","pods":["' + b"x" * 100 + b'"]}'
    now = datetime.now(UTC)
    folder = os.open(directory, os.O_RDONLY)
    for number in range(count):
        key = f"0c9f5e1a-claim-{number:06d}"
        header = Header(kind="Claim", version=1, readable_by=1, key=key, generation=1, boot="", written=now)
        descriptor = os.open(f"{key}.json", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
        os.write(descriptor, seal(header, data))
        os.close(descriptor)
    os.close(folder)


def _memory_for(directory: Path) -> int:
    """The peak memory, in kB, as the kernel counts it for a separate process."""
    program = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run([arg.encode() for arg in sys.argv[1:]], stdout=subprocess.DEVNULL).returncode\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *map(os.fsdecode, arguments(directory))],
        capture_output=True,
        env=environment(),
        check=True,
        timeout=LIMIT,
    )
    code, memory = process.stdout.split()
    assert int(code) == 0
    return int(memory)

"""strace, attached to a running process, makes its system calls fail."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ..checkpointmanager.processes import LIMIT

# The calls that change a directory, by all their names on different kernels and architectures.
CALLS = "openat,write,fsync,fdatasync,ftruncate,mkdirat,/^link,/^rename,/^unlink"

_LINE = re.compile(r"(\d+) +(\w+)\((.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")


class Unavailable(Exception):
    """There is no strace here, or it may not trace; the text says which."""


class Call(NamedTuple):
    """One system call that concerns the directory: the n-th of its name in its thread."""

    name: str
    number: int
    of_directory: bool  # its first argument is the directory itself, not a file in it
    text: str


class Strace:
    """Traces a process from entering the block until its end. With `inject`, that call fails."""

    def __init__(self, pid: int, directory: Path, log: Path, inject: tuple[Call, str] | None = None) -> None:
        self._directory = str(directory)
        self._log = log
        call, errno = inject or (None, "")
        faults = [f"--inject={call.name}:error={errno}:when={call.number}"] if call else []
        self._command = ["strace", "-f", "-y", "-s", "0", "-o", str(log), f"--trace={CALLS}", *faults, "-p", str(pid)]

    def __enter__(self) -> Strace:
        self._log.unlink(missing_ok=True)
        self._strace = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        output = self._first_words()
        if b"attached" not in output:
            self._strace.kill()
            self._strace.communicate()
            raise Unavailable(f"strace may not trace here: {output.decode().strip()}")
        return self

    def _first_words(self) -> bytes:
        """strace prints "attached" once the process is stopped; the kernel names the tracer before that, too early."""
        assert self._strace.stderr
        said, output, deadline = self._strace.stderr.fileno(), b"", time.monotonic() + LIMIT
        while b"attached" not in output and select.select([said], [], [], max(deadline - time.monotonic(), 0))[0]:
            piece = os.read(said, 4096)
            if not piece:
                break
            output += piece
        return output

    def __exit__(self, *_: object) -> None:
        self._strace.terminate()
        self._strace.communicate(timeout=LIMIT)

    def calls(self) -> list[Call]:
        """The calls that concern the directory; complete once strace has ended."""
        seen: Counter[tuple[str, str]] = Counter()
        calls = []
        for thread, name, arguments in self._lines():
            seen[thread, name] += 1
            if self._directory in arguments:
                own = f"<{self._directory}>" in arguments.partition(",")[0].partition(")")[0]
                calls.append(Call(name, seen[thread, name], own, f"{name}({arguments}"))
        return calls

    def _lines(self) -> list[tuple[str, str, str]]:
        """Thread, name and the rest of each call; calls split by output of another thread are joined."""
        lines: list[tuple[str, str, str]] = []
        begun: dict[str, int] = {}  # by thread
        for line in self._log.read_text(errors="replace").splitlines():
            if resumed := _RESUMED.match(line):
                thread, rest = resumed.groups()
                lines[begun[thread]] = (*lines[begun[thread]][:2], lines[begun[thread]][2] + rest)
            elif call := _LINE.match(line):
                begun[call[1]] = len(lines)
                lines.append((call[1], call[2], call[3]))
        return lines

    def injected(self) -> list[Call]:
        return [call for call in self.calls() if "(INJECTED)" in call.text]


def check_available() -> None:
    if not shutil.which("strace"):
        raise Unavailable("strace is not installed")
    probe = subprocess.run(
        ["strace", "-o", os.devnull, "--trace=none", "true"], capture_output=True, check=False, text=True
    )
    if probe.returncode:
        raise Unavailable(f"strace may not trace here: {probe.stderr.strip()}")

"""Metrics for node_exporter's textfile collector: the file is replaced as a whole and readable by all users.

Names and labels follow the library's own collector. Every series has a label for the directory, so several
timers can each write a file; none has a label per key.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from checkpointmanager import Reason

from ..etcd import SCHEME
from ..findings.finding import State
from ..findings.problem import Severity
from ..findings.summary import Summary
from . import phrases

_HELP = {
    "checkpoints": "State files found, good or not.",
    "damaged": "State files that cannot be trusted, by reason.",
    "too_new": "Checkpoints that only a newer program can read.",
    "unreadable": "State files that could not be read.",
    "not_usable": "Problems for which the agent will not use whole state: permissions, or too new.",
    "warnings": "Warnings: odd, but not damage.",
    "bytes": "Size of all state files.",
    "temp_files": "Leftover temp files of dead writers.",
    "quarantined": "Copies of damaged files in quarantine.",
    "previous_torn": "Previous generations that cannot be used for a rollback.",
    "verify_last_run_timestamp_seconds": "Time of the last run of checkpoint-verify.",
    "verify_last_run_result": "Exit code of that run: 0 good, 1 damage, 3 could not look.",
}


def text(summaries: Sequence[Summary], strict: bool) -> str:
    """The metrics of one run."""
    now = int(time.time())
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for summary in summaries:
        path = summary.path if summary.path.startswith(SCHEME) else os.path.abspath(summary.path)
        where = f'directory="{_label(path)}"'
        for name, labels, value in _samples(summary, strict, now):
            samples[name].append(f"checkpointmanager_{name}{{{where}{labels}}} {value}")
    lines = []
    for name, help_text in _HELP.items():
        lines += [
            f"# HELP checkpointmanager_{name} {help_text}",
            f"# TYPE checkpointmanager_{name} gauge",
            *samples[name],
        ]
    return "\n".join(lines) + "\n"


def _samples(summary: Summary, strict: bool, now: int) -> Iterator[tuple[str, str, int]]:
    yield "checkpoints", "", summary.files
    for reason in sorted({*Reason, *summary.reasons} - {Reason.UNREADABLE}):
        yield "damaged", f',reason="{reason}"', summary.reasons[reason]
    yield "too_new", "", summary.states[State.TOO_NEW]
    yield "unreadable", "", summary.count(Severity.UNSEEN)
    yield "not_usable", "", summary.count(Severity.UNUSABLE)
    yield "warnings", "", summary.count(Severity.WARNING)
    yield "bytes", "", summary.octets
    yield "temp_files", "", len(summary.scan.temps)
    yield "quarantined", "", summary.scan.quarantined
    yield "previous_torn", "", len(summary.scan.torn)
    yield "verify_last_run_timestamp_seconds", "", now
    yield "verify_last_run_result", "", summary.exit_code(strict=strict)


def _label(path: str) -> str:
    return phrases.shown(path).replace("\\", "\\\\").replace('"', '\\"')


@contextmanager
def replaced(path: str, mode: int) -> Iterator[TextIO]:
    """A file that appears under its name only when it is complete, with this mode under any umask."""
    # The name does not end in .prom: node_exporter must not read it before that.
    temp = f"{path}.{secrets.token_hex(4)}.tmp"
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.rename(temp, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp)
        raise

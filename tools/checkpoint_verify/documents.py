"""The JSON documents, for programs. README.md describes each member."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from checkpointmanager import __version__

from . import exitcodes, words
from .finding import Finding, State
from .lockstate import LockState
from .meaning import NOTHING_FOUND, Problem, Severity
from .report import holds_nothing, verdict_of
from .search import Search
from .tally import Tally

JSON_SCHEMA = 1  # rises only when a member is removed or changes its meaning, not when one is added


def document_of(tallies: Sequence[Tally], searches: Sequence[Search], *, strict: bool) -> dict[str, Any]:
    """The JSON document of verify; README.md describes each member."""
    code = exitcodes.worst([tally.exit_code(strict=strict) for tally in tallies])
    return preamble("verify", code) | {
        "verdict": _verdict_word(tallies, strict=strict),
        "summary": verdict_of(tallies, strict=strict)[0],
        "paths": [_path_document(tally, strict=strict) for tally in tallies],
        "problems": [problem_document(problem) for tally in tallies for problem in tally.problems],
        "searches": [_search_document(done) for done in searches],
    }


def _search_document(done: Search) -> dict[str, Any]:
    return path_members(done.parent) | {
        "directories": done.searched,
        "found": len(done.found),
        "unreadable": len(done.closed),
        "left_out": {"mounts": len(done.mounts), "image_layers": done.layers},
    }


def _verdict_word(tallies: Sequence[Tally], *, strict: bool) -> str:
    def count(severity: Severity) -> int:
        return sum(tally.count(severity) for tally in tallies)

    if any(tally.states[State.DAMAGED] for tally in tallies) or (strict and count(Severity.WARNING)):
        return "damaged"
    worst = next((severity for severity in (Severity.UNUSABLE, Severity.UNSEEN) if count(severity)), None)
    if worst is Severity.UNSEEN and all(map(holds_nothing, tallies)):
        return NOTHING_FOUND
    return worst or ("warnings" if count(Severity.WARNING) else "good")


def preamble(command: str, code: int) -> dict[str, Any]:
    """The members that all JSON documents of this tool begin with."""
    return {
        "schema": JSON_SCHEMA,
        "tool": f"checkpoint-verify {__version__}",
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "exit_code": code,
    }


def path_members(path: str) -> dict[str, str]:
    """A path in JSON. If it is not UTF-8, it is escaped for people and added in base64 for programs."""
    members = {"path": words.shown(path)}
    try:
        path.encode()
    except UnicodeEncodeError:
        members["path_base64"] = base64.b64encode(os.fsencode(path)).decode()
    return members


def problem_document(problem: Problem) -> dict[str, Any]:
    return path_members(problem.path) | {
        "severity": problem.severity,
        "key": problem.key,
        "reason": problem.reason,
        "detail": words.shown(problem.detail),
        "meaning": problem.meaning,
        "next": problem.next,
        "subject": problem.subject.document if problem.subject else None,
    }


def kubelet_document(found: Finding) -> dict[str, Any]:
    """A kubelet file without its content."""
    assert found.kubelet
    kubelet = found.kubelet
    return path_members(found.path) | {
        "kind": kubelet.kind,
        "format": kubelet.format,
        "verdict": kubelet.verdict,
        "reason": kubelet.reason,
        "detail": kubelet.detail,
        "expected": kubelet.expected,
        "actual": kubelet.actual,
        "warnings": list(kubelet.warnings),
        "kubelet_version": kubelet.kubelet_version,
        "loads_in": dict(kubelet.loads_in),
    }


def lock_document(lock: LockState) -> dict[str, Any]:
    owner = lock.owner
    return {
        "state": lock.held,
        "pids": list(lock.pids),
        "holder": {name: getattr(owner, name) for name in ("pid", "host", "command", "since")} | {"owner": owner.label}
        if owner
        else None,
    }


def _path_document(tally: Tally, *, strict: bool) -> dict[str, Any]:
    around = tally.around
    this, earlier, unknown = tally.boots_counted()
    return path_members(tally.path) | {
        "type": "directory" if tally.is_directory else "file",
        "of_kubelet": around.of_kubelet,
        "exit_code": tally.exit_code(strict=strict),
        "files": tally.files,
        "states": {state: tally.states[state] for state in State if state is not State.FOREIGN},
        "damaged": dict(tally.reasons),
        "kinds": [
            {"kind": kind, "version": version, "count": number}
            for (kind, version), number in sorted(tally.kinds.items())
        ],
        "generations": {"lowest": tally.lowest_generation, "highest": tally.highest_generation},
        "boots": {"this": this, "earlier": earlier, "unknown": unknown},
        "bytes": {"total": tally.octets, "largest": tally.largest},
        "previous": {"count": around.previous, "torn": len(around.torn), "orphans": around.orphans},
        "temp_files": len(around.temps),
        "quarantined": around.quarantined,
        "foreign": around.foreign,
        "lock": lock_document(around.lock),
        "kubelet": [kubelet_document(found) for found in tally.kubelet],
    }

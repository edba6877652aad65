"""The JSON documents, for programs. README.md describes each member."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from checkpointmanager import __version__
from checkpointmanager.format import Header, encode_key

from ..findings.agent import LockState
from ..findings.finding import Finding, State, Subject
from ..findings.journal import Waiting
from ..findings.problem import NOTHING_FOUND, Problem, Severity
from ..findings.search import Search
from ..findings.summary import Summary
from . import phrases
from .report import holds_nothing, total, verdict_of

JSON_SCHEMA = 2  # rises only when a member is removed or changes its meaning, not when one is added


def verify_document(summaries: Sequence[Summary], searches: Sequence[Search], *, strict: bool) -> dict[str, Any]:
    """The members of verify's document."""
    return {
        "verdict": _verdict_word(summaries, strict=strict),
        "summary": verdict_of(summaries, strict=strict)[0],
        "paths": [_path_document(summary, strict=strict) for summary in summaries],
        "problems": [problem_document(problem) for summary in summaries for problem in summary.problems],
        "searches": [_search_document(done) for done in searches],
    }


def _search_document(done: Search) -> dict[str, Any]:
    return path_members(done.parent) | {
        "directories": done.searched,
        "found": len(done.found),
        "unreadable": len(done.closed),
        "left_out": {"mounts": len(done.mounts), "image_layers": done.layers},
    }


def _verdict_word(summaries: Sequence[Summary], *, strict: bool) -> str:
    warned = total(summaries, Severity.WARNING)
    if any(summary.states[State.DAMAGED] for summary in summaries) or (strict and warned):
        return "damaged"
    worst = next((severity for severity in (Severity.UNUSABLE, Severity.UNSEEN) if total(summaries, severity)), None)
    if worst is Severity.UNSEEN and all(map(holds_nothing, summaries)):
        return NOTHING_FOUND
    return worst or ("warnings" if warned else "good")


def print_document(command: str, code: int, members: dict[str, Any]) -> None:
    """Print the one JSON document of a command."""
    json.dump(preamble(command, code) | members, sys.stdout, indent=2)
    sys.stdout.write("\n")


def preamble(command: str, code: int) -> dict[str, Any]:
    """The members that all JSON documents of this tool begin with."""
    return {
        "schema": JSON_SCHEMA,
        "tool": f"checkpoint-verify {__version__}",
        "command": command,
        "time": in_utc(datetime.now(UTC), "seconds"),
        "exit_code": code,
    }


def in_utc(time: datetime, timespec: str = "microseconds") -> str:
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def path_members(path: str) -> dict[str, str]:
    """A path in JSON. If it is not UTF-8, it is escaped for people and added in base64 for programs."""
    members = {"path": phrases.shown(path)}
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
        "detail": phrases.shown(problem.detail),
        "meaning": problem.meaning,
        "next": problem.next,
        "subject": subject_document(problem.subject),
    }


def finding_document(found: Finding) -> dict[str, Any]:
    """A finding as JSON, without data."""
    return path_members(found.path) | {
        "state": found.state,
        "reason": found.reason,
        "detail": phrases.shown(found.detail),
        "key": found.key,
        "bytes": found.size,
        "waits_in_journal": found.waits,
        "header": _header_document(found.header),
        "kubelet": kubelet_document(found) if found.kubelet else None,
    }


def _header_document(header: Header | None) -> dict[str, Any] | None:
    if header is None:
        return None
    return {
        "kind": header.kind,
        "version": header.version,
        "readable_by": header.readable_by,
        "key": encode_key(header.key),
        "generation": header.generation,
        "boot": header.boot,
        "written": in_utc(header.written),
    }


def subject_document(subject: Subject | None) -> dict[str, Any] | None:
    """The complete subject."""
    if subject is None:
        return None
    return {
        "claims": [phrases.shown(claim) for claim in subject.claims],
        "pods": [phrases.shown(pod) for pod in subject.pods],
        "devices": [phrases.shown(device) for device in subject.devices],
        "phase": phrases.shown(subject.phase),
        "source": subject.source,
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


def _journal_document(journal: Waiting | None) -> dict[str, Any] | None:
    """A journal that waits for the next owner."""
    if journal is None:
        return None
    since = in_utc(journal.since) if journal.since else None
    return {"since": since, "changes": journal.changes, "keys": list(journal.names), "damaged": journal.damaged}


def _path_document(summary: Summary, *, strict: bool) -> dict[str, Any]:
    scan = summary.scan
    this, earlier, unknown = summary.boots_counted()
    return path_members(summary.path) | {
        "type": "directory" if summary.is_directory else "file",
        "of_kubelet": scan.of_kubelet,
        "exit_code": summary.exit_code(strict=strict),
        "files": summary.files,
        "states": {state: summary.states[state] for state in State if state is not State.FOREIGN},
        "damaged": dict(summary.reasons),
        "kinds": [
            {"kind": kind, "version": version, "count": number}
            for (kind, version), number in sorted(summary.kinds.items())
        ],
        "generations": {"lowest": summary.lowest_generation, "highest": summary.highest_generation},
        "boots": {"this": this, "earlier": earlier, "unknown": unknown},
        "bytes": {"total": summary.octets, "largest": summary.largest},
        "previous": {"count": scan.previous, "torn": len(scan.torn), "orphans": len(scan.orphans)},
        "temp_files": len(scan.temps),
        "quarantined": scan.quarantined,
        "foreign": scan.foreign,
        "lock": lock_document(scan.lock),
        "journal": _journal_document(scan.journal),
        "kubelet": [kubelet_document(found) for found in summary.kubelet],
    }

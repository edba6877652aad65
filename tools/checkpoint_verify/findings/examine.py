"""Examines one file and returns one Finding: which program it belongs to, and whether it is as it was written.

Damage is reported only if two looks agree: the first may catch a file while it is being replaced.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from enum import Enum, auto

import orjson
from xxhash import xxh3_64_intdigest

from checkpointmanager.format import (
    LOCK,
    MAX_BYTES,
    PREVIOUS,
    QUARANTINE,
    SUFFIX,
    Damaged,
    Header,
    Reason,
    TooNew,
    checksum_matches,
    decode_key,
    describe_error,
    encode_key,
    is_removal,
    open_any,
    open_sealed,
    parse_copy,
)

from ..registry import KUBELET_NAMES, NEWEST_VERSIONS, KubeletFile, Verdict, inspect
from ..screens import phrases
from . import disk
from .damage import UNRECOGNISED, looks_ours, what_is_left
from .finding import TOO_NEW, Finding, State
from .journal import Waiting, waiting_in

LOOKS = 8  # at a file that is different each time
PAUSE_SECONDS = 0.02
PARSED_BYTES = 1 << 20  # the data of larger checkpoints is not parsed, which would take much memory

_VERDICTS = {Verdict.VALID: State.GOOD, Verdict.DAMAGED: State.DAMAGED, Verdict.UNKNOWN: State.UNKNOWN}


class Among(Enum):
    """The kind of directory a file is in: it decides what an unrecognisable file must have been."""

    CHECKPOINTS = auto()  # every <key>.json there is a checkpoint
    KUBELET = auto()  # only kubelet's own names are state
    ANYTHING = auto()  # a directory without a sign of the library: a JSON document may belong to any program


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known about a file before it is opened."""

    named: bool = False  # on the command line: then it must be a state file
    among: Among = Among.CHECKPOINTS
    kubelet_version: str | None = None
    content: bool = False  # also keep the bytes
    journal: Waiting | None = None  # of the directory: what it holds may be newer than the file
    mounted: frozenset[str] = frozenset()  # names in the directory that belong to other file systems: never touched


def examine_path(path: str, *, content: bool = False, kubelet_version: str | None = None) -> Finding:
    """Examine a file by its path."""
    try:
        journal = waiting_in(os.path.dirname(path) or ".")
    except OSError as error:
        return unreadable(path, error)
    circumstances = Circumstances(named=True, content=content, kubelet_version=kubelet_version, journal=journal)
    found = examine(path, None, circumstances)
    return found or unreadable(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


def examine(path: str, folder: int | None, circumstances: Circumstances) -> Finding | None:
    """Examine the file at `path`, by its name in the open folder if one is given. None if it was removed meanwhile."""
    before: tuple[int, ...] | None = None
    for _ in range(1 + LOOKS):
        found, identity = _look(path, folder, circumstances)
        if found is None or found.state is not State.DAMAGED or identity == before:
            return found
        if before is not None:
            time.sleep(PAUSE_SECONDS)
        before = identity
    return unreadable(path, OSError(errno.EAGAIN, "it changes while it is read"))


def key_of(name: str) -> str:
    """The key of a file with this name, as file names and screens show it; "" if no checkpoint can have the name."""
    if name.startswith(PREVIOUS):
        key = name.removeprefix(PREVIOUS)
    else:
        key = name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else ""
    return key if decode_key(key) is not None else ""


def stands_in_a_place(path: str) -> bool:
    """True for a folder with a checkpoint's name in a directory of checkpoints, unless the path ends with a slash."""
    folder, name = os.path.split(path)
    return bool(key_of(name)) and os.path.isdir(path) and os.path.lexists(os.path.join(folder, LOCK))


def key_at(path: str) -> str:
    """Like key_of, for a path, which may also be a copy in quarantine."""
    folder, name = os.path.split(path)
    kept = parse_copy(name) if os.path.basename(folder) == QUARANTINE else None
    return encode_key(kept.key) if kept else key_of(name)


def _look(path: str, folder: int | None, circumstances: Circumstances) -> tuple[Finding | None, tuple[int, ...]]:
    """The finding of one look, and the identity of the file that was examined."""
    name = os.path.basename(path)
    key = key_at(path) if circumstances.named else key_of(name)
    waits: bytes | None = None
    try:
        if name in circumstances.mounted:
            raise disk.other_file_system()
        if circumstances.journal and (waits := circumstances.journal.content_of(name)) is not None:
            look = disk.Look(circumstances.journal.status, waits)
        else:
            look = disk.look(path if folder is None else name, folder)
    except FileNotFoundError:
        return None, ()
    except disk.NotAFile as what:
        return _of_something_else(path, key, str(what), circumstances), ()
    except disk.TooLarge as size:
        return _damaged(path, key, Damaged(Reason.TOO_LARGE, str(size))), ()
    except OSError as error:
        return unreadable(path, error), ()
    real_key = decode_key(key) or ""
    if is_removal(look.blob, real_key):
        return None, ()
    finding = _judge(look.blob, path, key, real_key, circumstances)
    finding.status, finding.waits = look.status, waits is not None
    if circumstances.content or finding.waits:
        finding.blob = look.blob
    if finding.state is State.GOOD:
        return finding, ()
    return finding, (look.status.st_ino, look.status.st_size, xxh3_64_intdigest(look.blob))


def _of_something_else(path: str, key: str, what: str, circumstances: Circumstances) -> Finding:
    """A finding for anything but a regular file, which was not opened."""
    name = phrases.base_name(path)
    if not circumstances.named:
        if name in KUBELET_NAMES and "link" in what:
            return unreadable(path, OSError(errno.ELOOP, f"{what}, which is not followed; give the path of its target"))
        if circumstances.among is not Among.CHECKPOINTS and name not in KUBELET_NAMES:
            return Finding(path, State.FOREIGN)
    return _damaged(path, key, Damaged(Reason.NOT_A_FILE, f"{what} has its name"))


def _judge(blob: bytes, path: str, key: str, real_key: str, circumstances: Circumstances) -> Finding:
    if checksum_matches(blob):
        return _judge_sealed(blob, path, key, real_key)
    if len(blob) > MAX_BYTES:
        detail = f"{len(blob)} bytes, over the limit of {MAX_BYTES}, and not a checkpoint with a matching checksum"
        return _damaged(path, key, Damaged(Reason.TOO_LARGE, detail))
    if not looks_ours(blob):
        if kubelet := inspect(blob, path, circumstances.kubelet_version):
            return _of_kubelet(kubelet, path)
        if _may_be_foreign(blob, circumstances.among):
            return Finding(path, State.FOREIGN, key=key)
        if not key or circumstances.named or what_is_left(blob)[0] == UNRECOGNISED:
            return _unrecognised(blob, path, key)
    return _judge_sealed(blob, path, key, real_key)  # says why its checksum does not hold


def _may_be_foreign(blob: bytes, among: Among) -> bool:
    if among is Among.ANYTHING:
        return what_is_left(blob)[0] == UNRECOGNISED
    return among is Among.KUBELET


def _judge_sealed(blob: bytes, path: str, key: str, real_key: str) -> Finding:
    """A file of ours. If its name belongs to no key, the key in its header counts."""
    try:
        header, data = open_sealed(blob, real_key) if key else open_any(blob)
        if len(blob) <= PARSED_BYTES:
            orjson.loads(data)
    except orjson.JSONDecodeError:
        return _damaged(path, key, Damaged(Reason.NOT_JSON, "the checksum holds, but the data is not JSON"))
    except Damaged as damage:
        return _damaged(path, key, damage)
    except TooNew as newer:
        return Finding(path, State.TOO_NEW, key=key, reason=TOO_NEW, detail=str(newer))
    if newer_version := _beyond_this_installation(header):
        return Finding(path, State.TOO_NEW, key=key, header=header, reason=TOO_NEW, detail=newer_version)
    warnings: tuple[str, ...] = ()
    if len(blob) > MAX_BYTES:
        limit = phrases.size(MAX_BYTES)
        warnings = (f"Larger than {limit}: the agent reads it only if it was configured with a larger max_bytes.",)
    return Finding(path, State.GOOD, key=encode_key(header.key), header=header, warnings=warnings)


def _beyond_this_installation(header: Header) -> str:
    """Why this installation's agent cannot read a whole checkpoint; "" if it can, or if its kind is unknown."""
    known = NEWEST_VERSIONS.get(header.kind)
    if known is None or header.readable_by <= known:
        return ""
    return (
        f"version {header.version} of kind {header.kind}, which only version {header.readable_by} or later may read; "
        f"this installation has version {known}"
    )


def _of_kubelet(kubelet: KubeletFile, path: str) -> Finding:
    return Finding(
        path,
        _VERDICTS[kubelet.verdict],
        key=kubelet.kind,
        kubelet=kubelet,
        reason=kubelet.reason,
        detail=kubelet.detail,
        expected=kubelet.expected,
        actual=kubelet.actual,
        warnings=kubelet.warnings,
    )


def _unrecognised(blob: bytes, path: str, key: str) -> Finding:
    reason, what = what_is_left(blob)
    if reason == UNRECOGNISED:
        return Finding(path, State.DAMAGED, key=key, reason=reason, detail=what)
    guess = f"by its name probably the checkpoint of key {key!r}" if key else "nothing shows what it was"
    return Finding(path, State.DAMAGED, key=key, reason=reason, detail=f"{what}; {guess}")


def _damaged(path: str, key: str, damage: Damaged) -> Finding:
    return Finding(
        path,
        State.DAMAGED,
        key=key,
        reason=damage.reason,
        detail=damage.detail,
        expected=damage.expected,
        actual=damage.actual,
    )


def unreadable(path: str, error: OSError) -> Finding:
    return Finding(
        path,
        State.UNREADABLE,
        key=key_of(phrases.base_name(path)),
        reason=Reason.UNREADABLE,
        detail=describe_error(error),
        errno=error.errno or 0,
    )

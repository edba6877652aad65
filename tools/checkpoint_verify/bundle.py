"""A bundle: everything that a directory of checkpoints holds, in one tar file.

`files/` has the files as they are; `manifest.json`, the last member, describes them and has the report of verify. The
journal is read last, so that it is never older than a file. Redacted, a bundle has no data: checkpoints and the journal
are sealed again around `null`, and what cannot be read is left out.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import stat
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_64_hexdigest

from checkpointmanager.format import (
    JOURNAL,
    LOCK,
    PREVIOUS,
    QUARANTINE,
    Change,
    Damaged,
    TooNew,
    describe_error,
    open_any,
    padded,
    parse_copy,
    read_journal,
    seal,
    seal_journal,
    seal_record,
)

from .exitcodes import UsageError
from .findings import disk
from .findings.examine import key_of
from .registry import DEVICE_PLUGINS, KUBELET_NAMES
from .screens import phrases

SCHEME = "bundle://"  # how a bundle's files are named on screens: bundle:///root/claims.tar/pod-7.json
MANIFEST = "manifest.json"
_FILES = "files/"
_NOUNS = {
    "checkpoint": ("checkpoint", "checkpoints"),
    "previous": ("previous generation", "previous generations"),
    "copy": ("copy in quarantine", "copies in quarantine"),
    "journal": ("journal", "journals"),
    "lock": ("lock file", "lock files"),
    "kubelet": ("file of kubelet or a driver", "files of kubelet or a driver"),
}


@dataclass(slots=True)
class Content:
    """What went into a bundle, and what did not."""

    files: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        counts = Counter(file["sort"] for file in self.files)
        parts = [phrases.count(counts[sort], *nouns) for sort, nouns in _NOUNS.items() if counts[sort]]
        left = f"; {phrases.count(len(self.left_out), 'file')} left out" if self.left_out else ""
        return f"{', '.join(parts) or 'nothing'}{left}"


def write(path: str, directory: str, report: dict[str, Any], *, redact: bool) -> Content:
    """Write a bundle, which appears under its name only when it is complete. Raises FileExistsError and OSError."""
    if os.path.lexists(path):
        raise FileExistsError(17, "exists already, and is not overwritten", path)
    temp = f"{path}.{secrets.token_hex(4)}.tmp"
    content = Content()
    descriptor = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for name, sort in _names(directory):
                    _add(tar, directory, name, sort, content, redact=redact)
                manifest = report | {"redacted": redact, "files": content.files, "left_out": content.left_out}
                _put(tar, tarfile.TarInfo(MANIFEST), json.dumps(manifest, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        os.link(temp, path)  # fails if a file has that name by now
    finally:
        with suppress(OSError):
            os.unlink(temp)
    return content


def unpack(path: str, folder: str) -> None:
    """Write the files of a bundle into a private folder. Raises UsageError if it is not whole."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                if member.isreg() and member.size <= disk.MAX_BYTES:
                    content = tar.extractfile(member)
                    found[member.name] = content.read() if content else b""
        manifest = json.loads(found[MANIFEST])
        files = {file["name"]: file for file in manifest["files"]}
    except (tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{phrases.shown(path)} is not a whole bundle: {phrases.shown(str(error))}") from None
    os.makedirs(os.path.join(folder, QUARANTINE), mode=0o700)
    os.makedirs(os.path.join(folder, DEVICE_PLUGINS), mode=0o700)
    for name, file in files.items():
        blob = found.get(_FILES + name)
        if blob is None or not _sort_of(name) or _checksum(blob) != file["checksum"]:
            raise UsageError(f"{phrases.shown(path)} is damaged: {phrases.shown(name)} is not as it was put in")
        target = os.path.join(folder, name)
        with open(target, "xb", opener=lambda place, flags: os.open(place, flags, 0o600)) as written:
            written.write(blob)
        os.utime(target, (file["modified"], file["modified"]))
    if manifest["redacted"]:
        with open(os.path.join(folder, ".redacted"), "xb"):
            pass


def is_redacted(folder: str) -> bool:
    """True for the folder of a bundle without data."""
    return folder.startswith(SCHEME) and os.path.lexists(os.path.join(folder, ".redacted"))


def bundle_in(word: str) -> str:
    """The path of the bundle that a word of the command line names, or names a file in; "" if there is none."""
    path = word.removeprefix(SCHEME)
    while path.strip("/"):
        if os.path.isfile(path):
            return path if _is_tar(path) else ""
        path = os.path.dirname(path)
    return ""


def _is_tar(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(262)[257:] == b"ustar"
    except OSError:
        return False


def _names(directory: str) -> Iterator[tuple[str, str]]:
    """The names of what belongs to a directory, the journal last."""
    found = os.listdir(directory)
    for below in (QUARANTINE, DEVICE_PLUGINS):
        if below in found and not os.path.islink(os.path.join(directory, below)):
            with suppress(NotADirectoryError):
                found += [f"{below}/{name}" for name in os.listdir(os.path.join(directory, below))]
    for name in sorted(found, key=lambda name: (name == JOURNAL, name)):
        if sort := _sort_of(name):
            yield name, sort


def _sort_of(name: str) -> str:
    """What a file is by its name; "" if it does not belong in a bundle."""
    folder, _, last = name.rpartition("/")
    if folder == QUARANTINE:
        return "copy" if parse_copy(last) else ""
    if last in KUBELET_NAMES and folder in ("", DEVICE_PLUGINS):
        return "kubelet"
    if folder:
        return ""
    if name in (JOURNAL, LOCK):
        return name[1:]
    return ("previous" if name.startswith(PREVIOUS) else "checkpoint") if key_of(name) else ""


def _add(tar: tarfile.TarFile, directory: str, name: str, sort: str, content: Content, *, redact: bool) -> None:
    try:
        status, blob = disk.look(os.path.join(directory, name))
    except FileNotFoundError:
        return  # removed meanwhile
    except (OSError, disk.NotAFile, disk.TooLarge) as why:
        content.left_out.append({"name": name, "why": describe_error(why) if isinstance(why, OSError) else str(why)})
        return
    if redact and sort != "lock":
        redacted = _redacted(blob, is_journal=sort == "journal")
        if redacted is None:
            content.left_out.append({"name": name, "why": "redacted"})
            return
        blob = redacted
    info = tarfile.TarInfo(_FILES + name)
    info.mtime, info.mode, info.uid, info.gid = int(status.st_mtime), 0o600, status.st_uid, status.st_gid
    _put(tar, info, blob)
    facts = {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "uid": status.st_uid, "gid": status.st_gid}
    file = {"name": name, "sort": sort, "bytes": len(blob), "checksum": _checksum(blob), "modified": status.st_mtime}
    content.files.append(file | facts)


def _redacted(blob: bytes, *, is_journal: bool) -> bytes | None:
    """The same without data; None if it cannot be read."""
    try:
        if not is_journal:
            return seal(open_any(blob)[0], b"null")
        found = read_journal(blob)
    except (Damaged, TooNew):
        return None
    lines = [seal_journal(found.since)] if found.since else []
    for number, record in enumerate(found.records, 1):
        changes = [Change(one.key, one.generation, _redacted_change(one.blob)) for one in record.changes]
        lines.append(seal_record(changes, number))
    return padded(b"".join(lines))


def _redacted_change(blob: bytes | None) -> bytes | None:
    return None if blob is None else seal(open_any(blob)[0], b"null")


def _put(tar: tarfile.TarFile, info: tarfile.TarInfo, blob: bytes) -> None:
    info.size = len(blob)
    tar.addfile(info, io.BytesIO(blob))


def _checksum(blob: bytes) -> str:
    return f"xxh3:{xxh3_64_hexdigest(blob)}"

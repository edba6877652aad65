"""A member of a transaction that is made once more, because nobody knows which of its names are durable."""

from __future__ import annotations

import errno
from contextlib import nullcontext, suppress

from .._format.names import SUFFIX
from .._format.record import Member, MemberKind
from .._store import Current
from .directory import Directory
from .newfiles import NewFiles
from .quarantine import Quarantine
from .unfinished import Candidate, Standing, read_file


def made_ready(candidate: Candidate, quarantine: Quarantine) -> Current:
    """What is to become of that which stands there; damaged bytes are kept before they are replaced."""
    member = candidate.member
    if candidate.standing is Standing.DONE:  # it must not become its own previous generation
        return Current.DAMAGED if member.kind is MemberKind.PUT else Current.ABSENT
    if candidate.damage:
        with suppress(OSError) if member.kind is MemberKind.REMOVE else nullcontext():  # it must always be possible
            quarantine.keep(member.key + SUFFIX, member.key, candidate.damage)
    return candidate.current


def copied(candidate: Candidate, directory: Directory, files: NewFiles) -> Member:
    """The member with a new file, which holds what counts for its key now."""
    member = candidate.member
    if member.kind is MemberKind.REMOVE:
        return member
    blob = read_file(directory, candidate.name)
    if blob is None:
        raise FileNotFoundError(errno.ENOENT, f"{candidate.name} is gone")
    return member._replace(file=files.add(blob, member.key))

"""Prepares a member of a transaction to be applied again, because it is unknown which names are durable."""

from __future__ import annotations

import errno
import sys
from contextlib import nullcontext, suppress

from .._format.names import SUFFIX
from .._format.reason import Damaged
from .._format.record import Member, MemberKind
from .._store import Current
from .directory import Directory
from .newfiles import NewFiles
from .quarantine import Quarantine
from .reading import read_to_judge
from .unfinished import Progress, Standing


def made_ready(progress: Progress, quarantine: Quarantine) -> Current:
    """How to treat the content of the key's name. Keeps damaged bytes before they are replaced."""
    member = progress.member
    if progress.standing is Standing.DONE:  # it must not become its own previous generation
        return Current.DAMAGED if member.kind is MemberKind.PUT else Current.ABSENT
    if progress.damage:
        # A removal must always be possible.
        with suppress(OSError) if member.kind is MemberKind.REMOVE else nullcontext():
            quarantine.keep(member.key + SUFFIX, member.key, progress.damage)
    return progress.current


def copied(progress: Progress, directory: Directory, files: NewFiles) -> Member:
    """The member with a new file that holds the bytes that count for its key now."""
    member = progress.member
    if member.kind is MemberKind.REMOVE:
        return member
    try:
        blob = read_to_judge(directory, progress.name, sys.maxsize)
    except Damaged as damage:
        raise OSError(errno.EBADMSG, f"{progress.name}: {damage.detail}") from damage
    return member._replace(file=files.add(blob, member.key))

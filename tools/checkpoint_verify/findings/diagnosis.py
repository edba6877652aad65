"""What most likely happened to a damaged checkpoint: the cause, how certain it is, and the evidence.

Works on bytes and on the file's metadata. remedies.py has what can be done.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from checkpointmanager import Reason
from checkpointmanager.format import MAX_SEARCH_BYTES, Repair, generation_in, legible_data

from ..etcd import SCHEME
from ..screens import phrases
from . import damage
from .damage import UNRECOGNISED, Flip, Spot, looks_ours
from .finding import TOO_NEW, Finding

BLOCKS = (4096, 512)  # the bytes that disks and file systems write in one piece, larger first
PROVED, LIKELY, GUESS = "proved", "likely", "a guess"
LATER_SECONDS = 2.0  # a file modified this much later than its header says was changed after it was written


@dataclass(slots=True)
class Diagnosis:
    """`cause` is a sentence; `certainty` says how far to trust it."""

    cause: str
    certainty: str
    evidence: list[str] = field(default_factory=list)
    cure: Repair | None = None
    spot: Spot | None = None
    unverified_data: Any = None  # what can still be parsed of the data; nothing vouches for it


_NO_SEARCH = {  # reasons that are the cause
    TOO_NEW: "A newer program wrote this file. It is not damaged.",
    UNRECOGNISED: "This was never a checkpoint: a user or another program put it here.",
    Reason.NOT_A_FILE: "A user or another program put something else in the file's place.",
}


def diagnose(found: Finding, other_path: str) -> Diagnosis:
    """The most likely cause. The tests are tried in turn, the most certain first.

    `other_path` is the path of the key that the file's header names, if that is not its own.
    """
    if cause := _NO_SEARCH.get(found.reason):
        return Diagnosis(cause, PROVED, [phrases.sentence(found.detail)])
    blob = found.blob
    cure, flip = damage.mended(blob)
    spot = damage.damaged_spot(blob, flip)
    diagnosis = (
        _written_so(found, other_path)
        or _exactly_mended(cure, flip)
        or _in_etcd(found)
        or _empty(blob)
        or _nul_filled(blob)
        or _lost_block(spot)
        or _edited(blob)
        or _truncated(blob, spot)
        or _overwritten(blob, spot)
    )
    diagnosis.cure = cure
    diagnosis.spot = spot
    diagnosis.unverified_data = None if cure else legible_data(blob)
    diagnosis.evidence += _circumstances(found)
    return diagnosis


def _written_so(found: Finding, other_path: str) -> Diagnosis | None:
    """If the checksum holds, the bytes are as they were written: wrong from the start, or meant for another place."""
    if found.reason == Reason.WRONG_KEY:
        there = "still there" if os.path.lexists(other_path) else "no longer in this directory"
        evidence = [phrases.sentence(found.detail), f"The checkpoint of that key is {there}"]
        return Diagnosis("The file was copied or renamed from another key.", PROVED, evidence)
    if found.reason in (Reason.WRONG_SHAPE, Reason.NOT_JSON) and "checksum holds" in found.detail:
        cause = "Another program wrote this: the checksum is right, the content is wrong."
        return Diagnosis(cause, PROVED, [phrases.sentence(found.detail)])
    return None


def _exactly_mended(cure: Repair | None, flip: Flip | None) -> Diagnosis | None:
    if cure is None:
        return None
    if flip:
        cause = "A single bit flipped, in memory or on the disk."
        evidence = [phrases.sentence(str(flip)), "With this bit flipped back, the checksum holds"]
        return Diagnosis(cause, PROVED, evidence)
    if "reformatted" in cure.finding:
        evidence = ["It has line breaks, spaces or escapes where the library writes none"]
        evidence.append("Without them the checksum holds: only the layout was changed")
        return Diagnosis("The file was reformatted, with an editor or a tool such as jq.", PROVED, evidence)
    cause = (
        "Bytes were appended to a whole checkpoint." if "foreign" in cure.finding else "The last bytes were cut off."
    )
    return Diagnosis(cause, PROVED, [f"If {cure.finding}, the checksum holds"])


def _in_etcd(found: Finding) -> Diagnosis | None:
    """No disk, power loss or full file system changes a value in etcd."""
    if not found.path.startswith(SCHEME):
        return None
    cause = "Another program wrote this: etcd returns exactly the bytes that were put into it."
    return Diagnosis(cause, LIKELY, [phrases.sentence(found.detail)])


def _empty(blob: bytes) -> Diagnosis | None:
    if blob.strip():
        return None
    evidence = ["The file has no content", "The library syncs the content before it gives the file its name"]
    cause = "Another program emptied the file, a copy failed on a full disk, or fsck cleared it."
    return Diagnosis(cause, LIKELY, evidence)


def _nul_filled(blob: bytes) -> Diagnosis | None:
    text = len(blob.rstrip(b"\0"))
    if text == len(blob):
        return None
    evidence = [phrases.sentence(damage.what_is_left(blob)[1]), *_at_boundary("They begin", text)]
    cause = "The machine lost power, or was reset, before the data reached the disk."
    return Diagnosis(cause, LIKELY, evidence)


def _lost_block(spot: Spot | None) -> Diagnosis | None:
    if spot is None or not spot.what.startswith("a run of NUL"):
        return None
    evidence = [f"{spot.length} NUL bytes at offset {spot.offset}, with text before and after"]
    evidence += _at_boundary("They begin", spot.offset)
    return Diagnosis("A block of the disk was lost, or never written.", LIKELY, evidence)


def _edited(blob: bytes) -> Diagnosis | None:
    """A whole JSON document with a wrong checksum: the program that changed it knew JSON, but not the checksum."""
    try:
        document = json.loads(blob)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not looks_ours(blob):
        return None
    evidence = ["The file is a whole JSON document, but its checksum does not match"]
    if blob.rstrip().count(b"\n") or b": " in blob[:40]:
        evidence.append("It has line breaks or spaces where the library writes none")
    return Diagnosis("The file was edited, by hand or with a tool such as sed or jq.", LIKELY, evidence)


def _truncated(blob: bytes, spot: Spot | None) -> Diagnosis | None:
    if spot is None or spot.offset < len(blob):
        return None
    evidence = [f"The document ends after {len(blob)} bytes, before it is complete"]
    cause = "A copy was interrupted, or a program that writes into files instead of replacing them."
    if where := _at_boundary("It ends", len(blob)):
        cause = "The machine lost power, or the disk was full, while the file was written."
    return Diagnosis(cause, LIKELY, [*evidence, *where])


def _overwritten(blob: bytes, spot: Spot | None) -> Diagnosis:
    evidence = (
        [f"At offset {spot.offset}: {spot.what}"] if spot else ["The checksum does not show where it was changed"]
    )
    if not looks_ours(blob):
        evidence.append("No part of a checkpoint's header can be recognised")
        return Diagnosis("Something else was written over the file, or it was never a checkpoint.", LIKELY, evidence)
    if len(blob) <= MAX_SEARCH_BYTES:
        evidence.append("More than one bit is wrong: every single bit was tried")
    else:
        evidence.append(
            f"The file is larger than {phrases.size(MAX_SEARCH_BYTES)}, so no search for a single flipped bit was made"
        )
    return Diagnosis("Several bytes were changed: a failing disk or memory, or a stray write.", GUESS, evidence)


def _at_boundary(begins: str, offset: int) -> list[str]:
    """A sentence if blocks of a disk or file system end at this offset."""
    for size in BLOCKS:
        if offset and offset % size == 0:
            return [f"{begins} exactly at a block boundary ({offset // size} × {size} bytes)"]
    return []


def _circumstances(found: Finding) -> list[str]:
    evidence = []
    written = _stated_time(found.blob)
    if written and found.modified - written.timestamp() > LATER_SECONDS:
        later = phrases.age(found.modified - written.timestamp())
        evidence.append(f"The file was modified {later} after the time in its header")
    elif written and found.modified > 0:
        evidence.append("Its modification time matches the header: no later change through the file system")
    with suppress(OSError):
        owner = os.stat(os.path.dirname(found.path) or ".").st_uid
        if found.status and found.status.st_uid != owner:
            evidence.append(f"The file belongs to user {found.status.st_uid}, its directory to user {owner}")
    if generation := generation_in(found.blob):
        evidence.append(f"It claims to be generation {generation}")
    if found.expected and found.actual:
        evidence.append(f"Its header says {found.expected}, its bytes hash to {found.actual}")
    return evidence


def _stated_time(blob: bytes) -> datetime | None:
    start = blob.find(b'"written":"', 0, 4096)
    if start < 0:
        return None
    text = blob[start + 11 : start + 38].partition(b'"')[0]
    try:
        return datetime.fromisoformat(text.decode("ascii")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None

"""What damaged bytes still show: whether they were a checkpoint, and where the damage is. Pure."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import orjson

from checkpointmanager.format import Reason, Repair, encode_key, is_key, repair

_LOST_BLOCK = re.compile(rb"\0{64,}")
UNRECOGNISED = "unrecognised"  # a whole document of another program

HEADER_BYTES = 4096  # a header with the longest names is shorter than that
_HEADER_MEMBERS = (re.compile(rb'"readable_by"\s*:'), re.compile(rb'"generation"\s*:'))
_OPENING = b'{"checksum":"'
_KEY = re.compile(rb'"key"\s*:\s*("(?:[^"\\]|\\.){1,1200}")')


class Spot(NamedTuple):
    """A place in the bytes, and what is wrong there."""

    offset: int
    length: int
    what: str


class Flip(NamedTuple):
    """A single bit that has changed since it was written."""

    offset: int
    bit: int
    found: int
    written: int

    def __str__(self) -> str:
        return (
            f"byte {self.offset}, bit {self.bit}: written as 0x{self.written:02x} {_letter(self.written)}, "
            f"found as 0x{self.found:02x} {_letter(self.found)}"
        )


def mended(blob: bytes) -> tuple[Repair | None, Flip | None]:
    """The exact repair, if there is one, and the bit that it flips back, if that is all it does."""
    cure = repair(blob)
    if cure is None or "flipped" not in cure.finding:
        return cure, None
    offset = next(index for index, (a, b) in enumerate(zip(blob, cure.blob, strict=True)) if a != b)
    found, written = blob[offset], cure.blob[offset]
    return cure, Flip(offset, (found ^ written).bit_length() - 1, found, written)


def damaged_spot(blob: bytes, flip: Flip | None) -> Spot | None:
    """Where to look first; None if only the checksum shows that something is wrong."""
    if flip:
        return Spot(flip.offset, 1, "this bit flipped")
    text = blob.rstrip(b"\0")
    if len(text) < len(blob):
        return Spot(len(text), len(blob) - len(text), "only NUL bytes from here on")
    if lost := _LOST_BLOCK.search(blob):
        return Spot(lost.start(), len(lost[0]), "a run of NUL bytes")
    line = blob.find(b"\n") + 1
    if 0 < line < len(blob) and blob[line - 2 : line] == b"}\n" and not _is_json(blob):
        return Spot(line, len(blob) - line, "the checkpoint ends here; other bytes follow")
    return _where_json_breaks(blob)


def _letter(byte: int) -> str:
    return repr(chr(byte)) if 32 <= byte < 127 else "(not printable)"


def _is_json(blob: bytes) -> bool:
    try:
        json.loads(blob)
    except (ValueError, RecursionError):
        return False
    return True


def _where_json_breaks(blob: bytes) -> Spot | None:
    """The first place where the text stops being JSON. The damage is there or earlier."""
    try:
        text = blob.decode()
    except UnicodeDecodeError as error:
        return Spot(error.start, 1, "not UTF-8 from here on")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        if offset >= len(blob.rstrip()) or error.msg.startswith("Unterminated"):
            return Spot(len(blob), 0, "the file ends here, in the middle of the document")
        return Spot(offset, 1, "not JSON from here on")
    except RecursionError:
        return None
    return None


def looks_ours(blob: bytes) -> bool:
    """True if the bytes, damaged or not, can only come from a checkpoint of this library."""
    head = blob[:HEADER_BYTES]
    if head.startswith(_OPENING):
        return True
    if not all(member.search(head) for member in _HEADER_MEMBERS):
        return False
    try:
        document = orjson.loads(blob)
    except orjson.JSONDecodeError:
        return True
    # Other documents may contain checkpoints, as an export does: only the top level counts.
    return isinstance(document, dict) and {"readable_by", "generation"} <= document.keys()


def what_is_left(blob: bytes) -> tuple[str, str]:
    """Why bytes of no known file cannot be used, and a few words about them."""
    if not blob.strip(b" \t\r\n"):
        return Reason.EMPTY, "the file has no content"
    text = blob.rstrip(b"\0")
    if len(text) < len(blob):
        what = (
            f"NUL bytes from offset {len(text)} to the end at {len(blob)}" if text else f"all {len(blob)} bytes are NUL"
        )
        return Reason.NUL_FILLED, what
    try:
        document = orjson.loads(blob)
    except orjson.JSONDecodeError:
        if blob.lstrip()[:1] in (b"{", b"["):
            return Reason.TRUNCATED, "a JSON document begins, but is not complete"
        return Reason.NOT_JSON, "not a JSON document"
    if isinstance(document, dict) and str(document.get("tool", "")).startswith("checkpoint-verify "):
        return UNRECOGNISED, f"the output of checkpoint-verify {document.get('command')}"
    return UNRECOGNISED, "a JSON document, but neither a checkpoint nor a state file of kubelet's"


def stated_key(blob: bytes) -> str:
    """The name of the key that a header states; "" if it states none."""
    found = _KEY.search(blob, 0, HEADER_BYTES)
    try:
        key = orjson.loads(found[1]) if found else ""
    except orjson.JSONDecodeError:
        return ""
    return encode_key(key) if is_key(key) else ""

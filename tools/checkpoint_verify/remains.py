"""What bytes with a wrong checksum still show: whether they were a checkpoint, and what is left of it. Pure."""

from __future__ import annotations

import re

import orjson

from checkpointmanager._format.reason import Reason

UNRECOGNISED = "unrecognised"  # a whole document of another program

_HEADER_BYTES = 4096  # a header with the longest names is shorter than that
_HEADER_MEMBERS = (re.compile(rb'"readable_by"\s*:'), re.compile(rb'"generation"\s*:'))
_OPENING = b'{"checksum":"'


def looks_ours(blob: bytes) -> bool:
    """True if the bytes, damaged or not, can only come from a checkpoint of this library."""
    head = blob[:_HEADER_BYTES]
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

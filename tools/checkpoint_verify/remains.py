"""What bytes whose checksum does not hold still show: whether they were a checkpoint, and what is left. Pure."""

from __future__ import annotations

import re

import orjson

from checkpointmanager._format.reason import Reason

UNRECOGNISED = "unrecognised"  # a whole document of somebody else

_HEADER_BYTES = 4096  # a header with the longest names is shorter than that
_HEADER_MEMBERS = (re.compile(rb'"readable_by"\s*:'), re.compile(rb'"generation"\s*:'))
_OPENING = b'{"checksum":"'


def looks_ours(blob: bytes) -> bool:
    """True if the bytes, damaged or not, can only be those of a checkpoint of this library."""
    head = blob[:_HEADER_BYTES]
    if head.startswith(_OPENING):
        return True
    if not all(member.search(head) for member in _HEADER_MEMBERS):
        return False
    try:
        document = orjson.loads(blob)
    except orjson.JSONDecodeError:
        return True
    # Others' documents may have checkpoints in them, as an export has: it is the top that counts.
    return isinstance(document, dict) and {"readable_by", "generation"} <= document.keys()


def what_is_left(blob: bytes) -> tuple[str, str]:
    """The reason why bytes that are nobody's known file cannot be used, and a few words about them."""
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
            return Reason.TRUNCATED, "a JSON document begins, but does not come to its end"
        return Reason.NOT_JSON, "no JSON document"
    if isinstance(document, dict) and str(document.get("tool", "")).startswith("checkpoint-verify "):
        return UNRECOGNISED, f"what checkpoint-verify {document.get('command')} printed"
    return UNRECOGNISED, "a JSON document, but neither a checkpoint nor a state file of kubelet"

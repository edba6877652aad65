"""checkpoint.json of NVIDIA's DRA driver: one member per version of the form, each with its own checksum.

The driver hashes what it would write now, not the bytes of the file. So another driver version may compute another
checksum for a whole file (kubernetes-sigs/dra-driver-nvidia-gpu#1080). Here the bytes of the file are hashed: if they
match, the file is as it was written. If not, the reason cannot be determined here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from draState.kubelet import Node, Number, Object

from .checksum import fnv32a
from .verdict import Judgement, unknown, valid

BEGINNING = rb'"checksum"\s*:\s*\d+\s*,\s*"v[123]"\s*:\s*\{'

MAX_BYTES = 4 << 20  # more would take seconds to hash

_MEMBERS = ("v1", "v2", "v3")
_OWN_CHECKSUM = re.compile(r'\{"checksum":(\d{1,20})')


def is_checkpoint(document: Object) -> bool:
    """True for a checksum followed by known members only."""
    names = [name for name, _ in document.members]
    if names[:1] != ["checksum"] or not set(names[1:]) <= set(_MEMBERS) or len(names) < 2:
        return False
    members = [value for _, value in document.members]
    return isinstance(members[0], Number) and all(isinstance(value, Object) for value in members[1:])


class DriverState:
    """One such file. Kubelet never reads it, so its version does not matter."""

    def __init__(self, document: Node, blob: bytes) -> None:
        members = document.members if isinstance(document, Object) else []
        self._forms = [name for name, _ in members if name in _MEMBERS]
        self._judgement = self._judge(blob)

    def judge(self, minor: int) -> Judgement:
        """Valid if every checksum matches the bytes; otherwise unverified, never damaged."""
        return self._judgement

    def _judge(self, blob: bytes) -> Judgement:
        form = "+".join(self._forms)
        if len(blob) > MAX_BYTES:
            return unknown(form, f"Larger than {MAX_BYTES >> 20} MiB: the checksums were not verified.")
        try:
            members = dict(_raw_members(blob.decode("utf-8")))
            stored, wrong = int(members["checksum"]), list(_wrong(members))
        except (ValueError, KeyError, RecursionError):
            return unknown(form, "The content can be read, but no checksums were found in it.")
        if not wrong:
            return valid(form, "The file is as NVIDIA's driver wrote it: every checksum matches its bytes.", stored)
        detail = (
            f"The bytes of {' and '.join(wrong)} do not match their checksum: they were changed, "
            "or the driver version that wrote them computes checksums differently."
        )
        return unknown(form, detail, stored)


def _wrong(members: dict[str, str]) -> Iterator[str]:
    """The members whose checksum does not match their bytes."""
    first = f',"v1":{members["v1"]}' if "v1" in members else ""
    if _checksum(f'{{"checksum":0{first}}}') != int(members["checksum"]):
        yield "v1"
    for name in _MEMBERS[1:]:
        if name not in members:
            continue
        own = _OWN_CHECKSUM.match(members[name])
        if own is None or _checksum('{"checksum":0' + members[name][own.end() :]) != int(own[1]):
            yield name


def _checksum(text: str) -> int:
    """Kubelet's checksum of a Go []byte: its dump prints every byte as a number."""
    return fnv32a(f"([]uint8)[{' '.join(map(str, text.encode()))}]")


def _raw_members(text: str) -> Iterator[tuple[str, str]]:
    """The members of an object, with the exact text of their values. Raises ValueError if it is not an object."""
    decoder = json.JSONDecoder()
    place = _skip(text, text.index("{") + 1)
    while text[place : place + 1] != "}":
        name, place = decoder.raw_decode(text, place)
        place = _skip(text, _skip(text, place) + 1)  # the colon
        start = place
        _, place = decoder.raw_decode(text, place)
        yield name, text[start:place]
        place = _skip(text, place)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place

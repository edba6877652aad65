"""The inputs that are always tried: the saved corpus, and every file under tests/data in the form a target takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from checkpointmanager.format import CHECKSUM_BYTES, Damaged, TooNew, open_sealed

from .targets import KINDS, SCHEMAS

CORPUS = Path(__file__).with_name("corpus")
DATA = Path(__file__).parents[1] / "data"
LARGEST = 16 << 10  # bytes: the few larger files contain nothing new


def of(target: str) -> list[bytes]:
    """The seeds of one target, all different, in an order that does not change."""
    saved = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]
    return list(dict.fromkeys([*saved, *_FROM_DATA[target]()]))


def files(below: str = "") -> list[bytes]:
    """Every file that is data of a test, good or damaged."""
    blobs = [path.read_bytes() for path in sorted((DATA / below).rglob("*")) if path.is_file()]
    return [blob for blob in blobs if len(blob) <= LARGEST]


def _decode() -> list[bytes]:
    """Each file whole, without its checksum, and its data alone for every schema."""
    seeds = []
    for blob in [*files("golden"), *files("draState")]:
        seeds += [b"\0" + blob, b"\1" + blob[CHECKSUM_BYTES:]]
        try:
            header, found = open_sealed(blob, _key_of(blob))
        except (Damaged, TooNew):
            data, version = blob, 1
        else:
            data, version = bytes(found), header.version
        seeds += [bytes([2, choice + (version - 1) * len(SCHEMAS)]) + data for choice in range(len(SCHEMAS))]
    return seeds


def _key_of(blob: bytes) -> str:
    return blob.partition(b'"key":"')[2].partition(b'"')[0].decode(errors="replace")


def _kubelet() -> list[bytes]:
    return [bytes([choice]) + blob for blob in files("kubelet") for choice in (0, 1, len(KINDS) - 1)]


def _dra_state() -> list[bytes]:
    """Each file whole, and the text inside it."""
    blobs = [*files("draState/kubelet"), *files("kubelet/dra_manager_state")]
    return [*blobs, *(b"\1" + text for blob in blobs if (text := _data_in(blob)))]


def _data_in(blob: bytes) -> bytes:
    try:
        document = json.loads(blob)
    except ValueError:
        return b""
    text = document.get("Data") if isinstance(document, dict) else None
    return text.encode(errors="replace") if isinstance(text, str) else b""


def _holder() -> list[bytes]:
    return [b'{"pid":1,"host":"node","command":"agent","since":"2026-11-16T08:15:30+00:00","owner":"x"}\n']


_FROM_DATA: dict[str, Callable[[], list[bytes]]] = {
    "decode": _decode,
    "kubelet": _kubelet,
    "dra_state": _dra_state,
    "holder": _holder,
}

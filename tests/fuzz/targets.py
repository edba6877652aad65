"""Each target gives any bytes to one of our readers, and raises only if that reader breaks its promise.

The promise of every reader: no bytes make it raise anything but its own errors. Beyond that, what was read can be
written, and then reads the same.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from checkpoint_verify.kubelet import KUBELET_NAMES, inspect
from checkpointmanager import Schema, UnknownFields, UnstorableValue, unknown_fields
from checkpointmanager._schema import Misfit
from checkpointmanager.format import (
    Damaged,
    Header,
    LockOwner,
    TooNew,
    checksum_of,
    generation_in,
    is_name,
    open_sealed,
    seal,
)
from draState import CLAIMS, POD_CONFIGS, read_dra_manager_state, write_dra_manager_state

from ..checkpoint_verify.kubelet.verdicts import agreed

KEY = "pod-7"
WRITTEN = datetime(2026, 11, 16, 8, 15, 30, 123456, UTC)
KINDS = (*KUBELET_NAMES, "")
MAX_VERSION = 6  # above the version of every schema here


class Colour(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Leaf:
    number: int
    ratio: float = 0.5
    unknown: UnknownFields = unknown_fields()


@dataclass
class Tree:
    """Every sort of type that a schema can hold."""

    name: str
    uid: UUID | None = None
    since: datetime | None = None
    colour: Colour = Colour.RED
    mode: Literal["on", "off", 3] = "on"
    flags: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    leaves: list[Leaf] = field(default_factory=list)
    by_name: dict[str, Leaf] = field(default_factory=dict)
    by_uid: dict[UUID, bool] = field(default_factory=dict)
    by_number: dict[int, Leaf] = field(default_factory=dict)
    either: Leaf | str | list[int] | None = None
    below: list[Tree] = field(default_factory=list)
    anything: Any = None


def _renamed(plain: Any) -> Any:
    """A migration as people write it: it trusts its input."""
    plain["name"] = plain.pop("title")
    return plain


SCHEMAS: tuple[Schema[Any], ...] = (
    Schema("Lease", version=2),
    Schema("Lease", version=4, type=Tree, migrations={1: _renamed, 3: dict}, readable_by=2),
    Schema("Lease", version=2, encode=lambda value: value, decode=lambda plain: {**plain, "seconds": plain["seconds"]}),
    CLAIMS,
    POD_CONFIGS,
)


def decode(blob: bytes) -> None:
    """A file as it is on the disk."""
    generation_in(blob)
    try:
        header, data = open_sealed(blob, KEY)
    except (Damaged, TooNew):
        return
    if is_name(header.kind) and (not header.boot or is_name(header.boot)):
        assert open_sealed(seal(header, data), KEY) == (header, data)
    for schema in SCHEMAS:
        _decode_with(schema, data, header.version, header.readable_by)


def decode_body(body: bytes) -> None:
    """A file with a valid checksum, whatever else it says: only a program can have written it."""
    decode(checksum_of(body) + body)


def decode_data(choice: int, data: bytes) -> None:
    """A file with a valid header, and any bytes as its data."""
    schema = SCHEMAS[choice % len(SCHEMAS)]
    version = 1 + choice // len(SCHEMAS) % MAX_VERSION
    readable_by = 1 if choice >= 128 else version
    header = Header(schema.kind, version, readable_by, KEY, 1, "", WRITTEN)
    opened, found = open_sealed(seal(header, data), KEY)
    assert (opened, bytes(found)) == (header, data)
    _decode_with(schema, found, version, readable_by)


def _decode_with(schema: Schema[Any], data: bytes | memoryview, version: int, readable_by: int) -> None:
    try:
        value, unknowns = schema.decode(data, version, readable_by)
    except (Damaged, TooNew, Misfit):
        return
    with suppress(UnstorableValue):  # refused if nested deeper than we write
        encoded = schema.encode(value, unknowns)
        assert schema.decode(encoded.json, encoded.version, encoded.readable_by)[0] == value


def any_decode(data: bytes) -> None:
    """One of the three above; the first byte says which. This is what the fuzzer calls an execution of decode."""
    form = data[0] % 4 if data else 0
    if form == 0:
        decode(data[1:])
    elif form == 1:
        decode_body(data[1:])
    else:
        decode_data(data[1] if len(data) > 1 else 0, data[2:])


def kubelet(data: bytes) -> None:
    """inspect has no errors at all: under a well-known name there is always an answer."""
    name = KINDS[data[0] % len(KINDS)] if data else ""
    found = inspect(data[1:], name)
    assert found or not name


def dra_state(data: bytes) -> None:
    """A file as it is on the disk; or, after a first byte of 1, the text inside one whose checksum is right.

    The import and checkpoint-verify agree on it.
    """
    if data[:1] == b"\1":
        text = data[1:].decode(errors="replace")
        _read_and_write_dra_state(json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode())
    _read_and_write_dra_state(data)


def _read_and_write_dra_state(blob: bytes) -> None:
    if agreed(blob) == "damaged":
        return
    claims = read_dra_manager_state(blob).claims
    assert read_dra_manager_state(write_dra_manager_state(claims)).claims == claims


def holder(blob: bytes) -> None:
    """The text in a lock file, which any program may have written."""
    str(LockOwner.parse(blob))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decode": any_decode,
    "kubelet": kubelet,
    "dra_state": dra_state,
    "holder": holder,
}

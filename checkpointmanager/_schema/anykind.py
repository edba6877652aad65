"""The schema for tools that know no schemas: it accepts every kind and version whose file is whole and JSON."""

from __future__ import annotations

from typing import Any, NoReturn

import orjson

from .._errors import UnstorableValue
from .._interruption import pass_on_interruption
from ..format import Damaged, Reason
from . import Schema, Unknowns


class _AnyKind(Schema[Any]):
    def __init__(self) -> None:
        super().__init__("any")

    def accepts(self, kind: str) -> bool:
        return True

    def encode(self, value: Any, unknowns: Unknowns | None = None) -> NoReturn:
        raise UnstorableValue("$", "ANY_KIND reads, repairs and removes; to write, open the directory with its schema")

    def decode(self, data: bytes | memoryview, version: int, readable_by: int) -> tuple[Any, None]:
        try:
            return orjson.loads(data), None
        except orjson.JSONDecodeError as error:
            pass_on_interruption(error)
        raise Damaged(Reason.NOT_JSON, "the checksum holds, but the data is not JSON")

    def __repr__(self) -> str:
        return "ANY_KIND"


ANY_KIND: Schema[Any] = _AnyKind()
"""Pass it instead of a schema to list, load, verify, recover and remove checkpoints of every kind and version."""

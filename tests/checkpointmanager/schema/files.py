"""Files with any data and version, as other programs may have written them; the manager reads and rewrites them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from checkpointmanager import CheckpointManager, MemoryStore, Schema, SchemaMismatch, UnstorableValue
from checkpointmanager.format import Header, open_sealed, seal

KEY = "k"
SECRET = "hunter2"


def file_with(data: bytes, version: int = 1, readable_by: int = 1, *, kind: str) -> MemoryStore:
    store = MemoryStore()
    header = Header(kind, version, readable_by, KEY, 1, "", datetime(2026, 11, 18, tzinfo=UTC))
    store.current[KEY] = seal(header, data)
    return store


def stored(schema: Schema[Any], value: Any) -> bytes:
    """The JSON that a file holds for this value."""
    store = MemoryStore()
    CheckpointManager(store, schema).create_checkpoint(KEY, value)
    return bytes(open_sealed(store.current[KEY], KEY)[1])


def loaded(schema: Schema[Any], data: bytes, version: int = 1, readable_by: int = 1) -> Any:
    store = file_with(data, version, readable_by, kind=schema.kind)
    return CheckpointManager(store, schema).get_checkpoint(KEY).data


def rewritten(
    schema: Schema[Any],
    data: bytes,
    version: int = 1,
    readable_by: int = 1,
    change: Callable[[Any], Any] = lambda value: value,
) -> tuple[Header, Any]:
    """The header and the plain data after an update."""
    store = file_with(data, version, readable_by, kind=schema.kind)
    CheckpointManager(store, schema).update_checkpoint(KEY, change)
    header, left = open_sealed(store.current[KEY], KEY)
    return header, orjson.loads(left)


def mismatch(schema: Schema[Any], data: bytes, version: int = 1) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as caught:
        loaded(schema, data, version)
    return caught.value


def refusal(schema: Schema[Any], value: Any) -> UnstorableValue:
    with pytest.raises(UnstorableValue) as caught:
        stored(schema, value)
    assert "nothing was written" in str(caught.value)
    return caught.value


def everything_shown(error: BaseException) -> str:
    """All that a crash reporter would show of an error and its causes, without the data that a program may ask for."""
    shown = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        attributes = {name: value for name, value in vars(seen).items() if name != "unverified_data"}
        shown += repr(seen) + str(seen) + repr(attributes)
        seen = seen.__cause__ or seen.__context__
    return shown

"""What a program needs that judges kubelet's files as kubelet does: JSON as Go reads it, and one verdict.

Kubelet accepts what Go accepts: names in any letter case, unknown fields, a field given twice. `parse` keeps what that
depends on, and `decode` fills a Go type, described by the classes here, as encoding/json would. The verdict on
`dra_manager_state` is made here for checkpoint-verify and for `draState.read_dra_manager_state` alike. Nothing here
touches a file.

    >>> found = decode(Struct("T", (Field("Name", STRING),)), parse(b'{"NAME": "a", "other": 1}'), {"Name": ""})
    >>> found.value, found.problems, [spelled(path) for path in found.unknown]
    ({'Name': 'a'}, [], ['other'])
"""

from __future__ import annotations

from ._gotypes import (
    CHECKSUM,
    EMPTY_STRUCT,
    INT,
    STRING,
    STRINGS,
    UINT64,
    Bytes,
    Custom,
    Decoded,
    Field,
    GoType,
    Integer,
    JsonPath,
    Map,
    Pointer,
    Slice,
    String,
    Struct,
    UnmarshalError,
    decode,
    decode_text,
    spelled,
)
from ._statefile import StateFile, judge_dra_manager_state
from ._syntax import Escaped, Missing, Node, NotJSONError, Number, Object, fold, parse

__all__ = [
    "CHECKSUM",
    "EMPTY_STRUCT",
    "INT",
    "STRING",
    "STRINGS",
    "UINT64",
    "Bytes",
    "Custom",
    "Decoded",
    "Escaped",
    "Field",
    "GoType",
    "Integer",
    "JsonPath",
    "Map",
    "Missing",
    "Node",
    "NotJSONError",
    "Number",
    "Object",
    "Pointer",
    "Slice",
    "StateFile",
    "String",
    "Struct",
    "UnmarshalError",
    "decode",
    "decode_text",
    "fold",
    "judge_dra_manager_state",
    "parse",
    "spelled",
]

"""Kubernetes resource quantities ("500m", "2Gi"): only whether kubelet can read one, not what it is worth."""

from __future__ import annotations

import re

from .gotypes import STRING, Custom, UnmarshalError
from .syntax import Node, Number

_QUANTITY = re.compile(
    rb"[+-]?[0-9]*(?:\.[0-9]*)?(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?",
)


def _unmarshal(node: Node) -> str:
    if node is None:
        return "0"
    # Kubelet looks at the raw text between the quotes, so an escape inside is an error.
    raw = node if isinstance(node, bytes) else node.encode("ascii") if isinstance(node, Number) else b""
    text = raw.strip(b" \t\r\n")
    if not text or not _QUANTITY.fullmatch(text):
        raise UnmarshalError("not a resource quantity")
    return text.decode("ascii")


QUANTITY = Custom(STRING, _unmarshal)

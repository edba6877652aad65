"""Kubernetes resource quantities ("500m", "2Gi"): checks whether kubelet can read one, not its value."""

from __future__ import annotations

import re

from draState._kubelet.gotypes import STRING, Custom, UnmarshalError
from draState._kubelet.syntax import Escaped, Node, Number

_QUANTITY = re.compile(
    r"[+-]?[0-9]*(?:\.[0-9]*)?(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?",
    re.ASCII,
)


def _unmarshal(node: Node) -> str:
    if node is None:
        return "0"
    # Kubelet looks at the raw text between the quotes, so an escape inside is an error.
    raw = node.text if isinstance(node, Number) else node
    text = raw.strip(" \t\r\n") if isinstance(raw, str) and not isinstance(raw, Escaped) else ""
    if not text or not _QUANTITY.fullmatch(text):
        raise UnmarshalError("not a resource quantity")
    return text


QUANTITY = Custom(STRING, _unmarshal)

"""The checksum of all kubelet state files except dra_manager_state. It is 32 bits wide."""

from __future__ import annotations

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def fnv32a(text: str) -> int:
    """FNV-1a, 32 bits, of a dump: for files whose structs are hashed."""
    digest = _FNV_OFFSET
    for octet in text.encode("utf-8"):
        digest = ((digest ^ octet) * _FNV_PRIME) & 0xFFFFFFFF
    return digest


def fnv32a_of_string(text: str) -> int:
    """FNV-1a of the dump of a Go string: for files that carry their data as text."""
    return fnv32a("(string)" + text)

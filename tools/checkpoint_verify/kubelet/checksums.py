"""The two checksums of kubelet's state files. Neither is more than 32 bits wide."""

from __future__ import annotations

import zlib

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def crc32(text: str) -> int:
    """CRC-32 (IEEE) of the text: dra_manager_state."""
    return zlib.crc32(text.encode("utf-8"))


def fnv32a(text: str) -> int:
    """FNV-1a, 32 bits, of a dump text: the struct-hashed files."""
    digest = _FNV_OFFSET
    for octet in text.encode("utf-8"):
        digest = ((digest ^ octet) * _FNV_PRIME) & 0xFFFFFFFF
    return digest


def fnv32a_of_string(text: str) -> int:
    """FNV-1a of the dump of a Go string: the files that carry their data as text."""
    return fnv32a("(string)" + text)

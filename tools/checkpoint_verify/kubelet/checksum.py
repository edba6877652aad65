"""The checksum of all kubelet state files except dra_manager_state: FNV-1a, 32 bits, of the dump of a Go value.

The dump is that of k8s.io/utils/dump, which is spew's %#v with sorted keys. Each value prints its type unless the
printer is set to skip it. One oddity is part of the format: a nil pointer does not reset the "skip", so the next struct
field after it prints without its type.
"""

from __future__ import annotations

from typing import Any

from draState.kubelet import Bytes, Custom, GoType, Integer, Map, Pointer, Slice, String, Struct

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


_NIL = "<nil>"


def dump_value(gotype: GoType, value: Any) -> str:
    """The dump of a value that is passed by value."""
    printer = _Printer()
    printer.value(gotype, value)
    return "".join(printer.parts)


def dump_pointer(struct: Struct, value: Any, name: str = "") -> str:
    """The dump of a pointer to a struct, under another type name if one is passed."""
    printer = _Printer(skip=True)
    printer.parts.append(f"(*{name or struct.name})")
    printer.value(struct, value)
    return "".join(printer.parts)


class _Printer:
    def __init__(self, skip: bool = False) -> None:
        self.parts: list[str] = []
        self._skip = skip

    def value(self, gotype: GoType, value: Any) -> None:
        while isinstance(gotype, Custom):
            gotype = gotype.shape
        if isinstance(gotype, Pointer):
            self._pointer(gotype, value)
            return
        if not self._skip:
            self.parts.append(f"({gotype.name})")
        self._skip = False
        match gotype:
            case String() | Integer():
                self.parts.append(str(value))
            case Struct():
                self._struct(gotype, value)
            case Map():
                self._map(gotype, value)
            case Slice():
                self._slice(gotype, value)
            case Bytes():
                self.parts.append(_NIL if value is None else f"[{' '.join(map(str, value))}]")

    def _pointer(self, gotype: Pointer, value: Any) -> None:
        if value is None:
            self.parts.append(_NIL)
            return
        self.parts.append("<*>")
        self._skip = True
        self.value(gotype.target, value)

    def _struct(self, gotype: Struct, value: Any) -> None:
        separator = "{"
        for field in gotype.fields:
            self.parts.append(f"{separator}{field.name}:")
            self.value(field.type, value[field.name])
            separator = " "
        self.parts.append("}" if gotype.fields else "{}")

    def _map(self, gotype: Map, value: Any) -> None:
        if value is None:
            self.parts.append(_NIL)
            return
        separator = "map["
        # Code point order is UTF-8 byte order, since decoded strings hold no surrogates.
        for key in sorted(value):
            self.parts.append(f"{separator}{key}:")
            self._skip = True
            self.value(gotype.element, value[key])
            separator = " "
        self.parts.append("]" if value else "map[]")

    def _slice(self, gotype: Slice, value: Any) -> None:
        if value is None:
            self.parts.append(_NIL)
            return
        separator = "["
        for element in value:
            self.parts.append(separator)
            self._skip = True
            self.value(gotype.element, element)
            separator = " "
        self.parts.append("]" if value else "[]")

"""The forms in which kubelet's CPU and memory managers have written their state, and a document read in each.

The text form carries `data` (JSON text) with `dataChecksum`, beside a copy for older kubelets. The two
forms before it hash the struct itself: one with pod entries, one plain. This module only reads and
hashes; `policystate` decides which form counts for which kubelet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from draState._kubelet.decoded import Decoded
from draState._kubelet.gotypes import CHECKSUM, STRING, Field, Map, Struct, Value, decode, decode_text
from draState._kubelet.syntax import Node

from . import versions
from .checksums import fnv32a, fnv32a_of_string
from .dump import dump_pointer

_SEAL = (Field("Data", STRING, "data"), Field("DataChecksum", CHECKSUM, "dataChecksum"))


@dataclass(frozen=True)
class Forms:
    """What differs between the two managers. `refusal` returns reason and sentence if content cannot be loaded."""

    text: str
    pods: str
    plain: str
    pods_struct: Struct
    plain_struct: Struct
    text_struct: Struct
    refusal: Callable[[Value, int], tuple[str, str] | None]
    policies: tuple[str, ...]
    pods_aliases: tuple[str, ...] = ()  # further type names whose dump the newest kubelet accepts
    plain_aliases: tuple[str, ...] = ()
    zero_accepted_since: int = versions.OLDEST  # checksum 0 passes unchecked
    zero_unknown_in: tuple[int, ...] = ()


class Reading:
    """One document decoded in all forms, each on first use."""

    def __init__(self, document: Node, forms: Forms) -> None:
        self._document = document
        self.forms = forms

    @cached_property
    def outer(self) -> Decoded:
        """The text form: the copy for older kubelets and the sealed text."""
        plain = self.forms.plain_struct
        return self._decode(replace(plain, fields=plain.fields + _SEAL))

    @cached_property
    def inner(self) -> Decoded:
        """The content of the sealed text."""
        struct = self.forms.text_struct
        return decode_text(struct, self.outer.value["Data"], _preset(struct), "data")

    @cached_property
    def pods(self) -> Decoded:
        """The struct form with pod entries."""
        return self._decode(self.forms.pods_struct)

    @cached_property
    def plain(self) -> Decoded:
        """The struct form without pod entries, which every kubelet knows."""
        return self._decode(self.forms.plain_struct)

    @property
    def sealed(self) -> bool:
        """True if kubelet takes this for the text form, and so never falls back to an older form."""
        return bool(self.outer.value["Data"] or self.outer.value["DataChecksum"])

    @property
    def has_pods(self) -> bool:
        """True if there are entries that the plain form would lose."""
        return bool(self.pods.value["PodEntries"])

    @property
    def shape(self) -> str:
        """The form that the document appears to have."""
        if self.sealed:
            return self.forms.text
        return self.forms.pods if self.has_pods else self.forms.plain

    @property
    def copy_agrees(self) -> bool:
        """True if the copy for older kubelets says the same as the text."""
        copy, text = self.plain.value, self.inner.value
        return all((copy[name] or None) == (text[name] or None) for name in copy if name != "Checksum")

    @cached_property
    def text_checksum(self) -> int:
        """The checksum of the sealed text."""
        return fnv32a_of_string(self.outer.value["Data"])

    @cached_property
    def pods_checksums(self) -> tuple[int, ...]:
        """The checksums that pass for the form with pod entries; the first is the one that kubelet writes."""
        return _checksums(self.forms.pods_struct, self.pods.value, self.forms.pods_aliases)

    @cached_property
    def plain_checksums(self) -> tuple[int, ...]:
        """The checksums that pass for the plain form; the first is the one that kubelet writes."""
        return _checksums(self.forms.plain_struct, self.plain.value, self.forms.plain_aliases)

    def _decode(self, struct: Struct) -> Decoded:
        return decode(struct, self._document, _preset(struct))


def _preset(struct: Struct) -> Value:
    """The value that kubelet decodes over: zero values, but empty maps at the top level."""
    return {field.name: {} if isinstance(field.type, Map) else field.type.zero() for field in struct.fields}


def _checksums(struct: Struct, value: Value, aliases: tuple[str, ...]) -> tuple[int, ...]:
    unsigned = value | {"Checksum": 0}
    return tuple(fnv32a(dump_pointer(struct, unsigned, name)) for name in ("", *aliases))

"""The state of kubelet's CPU and memory managers: the forms in which it was written, and how kubelet loads them.

The text form carries `data` (JSON text) with `dataChecksum`, beside a copy for older kubelets. The two forms before it
hash the struct itself: one with pod entries, one plain. Kubelet 1.37 tries the text form, then the struct with pod
entries, then the plain struct; a document that shows any sign of the text form is never tried as another. Older
kubelets know only the plain struct, which every text form carries along as a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from draState.kubelet import CHECKSUM, STRING, Decoded, Field, Map, Node, Struct, decode, decode_text

from .checksum import dump_pointer, fnv32a, fnv32a_of_string
from .verdict import (
    NEWEST,
    OLDEST,
    Judgement,
    Verdict,
    corrupted,
    damaged,
    member_warnings,
    undecodable,
    unknown,
    valid,
    version_name,
)

TEXT_FORM_SINCE = 37
POD_FORM_IN = 36  # only with the alpha gate PodLevelResourceManagers
_NEWEST = version_name(NEWEST)


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
    refusal: Callable[[Any, int], tuple[str, str] | None]
    policies: tuple[str, ...]
    pods_aliases: tuple[str, ...] = ()  # further type names whose dump the newest kubelet accepts
    plain_aliases: tuple[str, ...] = ()
    zero_accepted_since: int = OLDEST  # checksum 0 passes unchecked
    zero_unknown_in: tuple[int, ...] = ()


def _preset(struct: Struct) -> Any:
    """The value that kubelet decodes over: zero values, but empty maps at the top level."""
    return {field.name: {} if isinstance(field.type, Map) else field.type.zero() for field in struct.fields}


def _checksums(struct: Struct, value: Any, aliases: tuple[str, ...]) -> tuple[int, ...]:
    unsigned = value | {"Checksum": 0}
    return tuple(fnv32a(dump_pointer(struct, unsigned, name)) for name in ("", *aliases))


class PolicyState:
    """One document of a policy manager, decoded in all forms, each on first use, and judged by any kubelet version."""

    def __init__(self, document: Node, forms: Forms) -> None:
        self._document = document
        self._forms = forms

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        read = (self.outer, self.inner) if self.sealed else (self.pods,)
        return self._judge(minor).warn(*member_warnings(minor, *read))

    def _judge(self, minor: int) -> Judgement:
        if minor < TEXT_FORM_SINCE:
            return self._judge_older(minor)
        return self._judge_text(minor) if self.sealed else self._judge_structs(minor)

    def _judge_text(self, minor: int) -> Judgement:
        form = self._forms.text
        if self.outer.problems:
            return undecodable(form, self.outer.problems[0], minor)
        stored, expected = self.outer.value["DataChecksum"], self.text_checksum
        if stored != expected:
            return corrupted(form, "data", minor, expected, stored)
        if self.inner.problems:
            return undecodable(form, self.inner.problems[0], minor, expected, stored)
        return self._loaded(form, self.inner.value, minor, stored, expected).warn(*self._copy_warnings)

    def _judge_structs(self, minor: int) -> Judgement:
        forms = self._forms
        stored = self.plain.value["Checksum"]
        if not self.pods.problems and stored in self.pods_checksums:
            return self._loaded(forms.pods, self.pods.value, minor, stored, stored)
        if self.plain.problems:
            return undecodable(self.shape, self.plain.problems[0], minor)
        if stored == 0:
            return self._taken_unchecked(minor)
        if stored in self.plain_checksums:
            return self._loaded(forms.plain, self.plain.value, minor, stored, stored)
        expected = (self.pods_checksums if self.has_pods else self.plain_checksums)[0]
        return corrupted(self.shape, "the content", minor, expected, stored)

    def _judge_older(self, minor: int) -> Judgement:
        forms = self._forms
        if self.plain.problems:
            return undecodable(self.shape, self.plain.problems[0], minor)
        stored, expected = self.plain.value["Checksum"], self.plain_checksums[0]
        if stored == expected:
            loaded = self._loaded(self.shape, self.plain.value, minor, stored, expected)
            return loaded.warn(self._seal_warning)
        if stored == 0 and minor in forms.zero_unknown_in:
            detail = f"Whether kubelet {version_name(minor)} accepts checksum 0 is not known."
            return unknown(self.shape, detail, stored)
        if stored == 0 and minor >= forms.zero_accepted_since:
            return self._taken_unchecked(minor)
        newest = self._judge(NEWEST)
        if stored == 0 or newest.verdict is not Verdict.VALID:
            return corrupted(self.shape, "the content", minor, expected, stored)
        return self._judge_newer_form(newest, minor, stored)

    def _judge_newer_form(self, newest: Judgement, minor: int, stored: int) -> Judgement:
        """A document that the newest kubelet loads, but whose plain form does not match its checksum."""
        version, expected = version_name(minor), self.plain_checksums[0]
        refused = f"Kubelet {version} refuses this file as corrupted, though {_NEWEST} loads it: "
        if self.sealed:
            detail = refused + "the copy for older kubelets does not match its checksum."
            return damaged(newest.format, "compat-copy", detail, expected, stored)
        if minor == POD_FORM_IN and stored in self.plain_checksums:
            detail = f"Whether kubelet {version} accepts this checksum is not known."
            return unknown(newest.format, detail, stored)
        if minor == POD_FORM_IN and stored == self.pods_checksums[0]:
            gate = f"Kubelet {version} loads this form only with the feature gate PodLevelResourceManagers."
            return replace(newest, detail=gate, loads=None).warn(gate)
        detail = refused + f"it is of a form that {version} does not read."
        return damaged(newest.format, "other-version", detail, expected, stored)

    def _taken_unchecked(self, minor: int) -> Judgement:
        loaded = self._loaded(self.shape, self.plain.value, minor, 0, self.plain_checksums[0])
        return loaded.warn(
            "The checksum is 0 or missing: kubelet accepts the content unchecked.",
            "Kubelet reads this file without its podEntries." if self.has_pods else "",
        )

    def _loaded(self, form: str, value: Any, minor: int, stored: int, expected: int) -> Judgement:
        """The checksum passed; now check whether kubelet can use the content."""
        refusal = self._forms.refusal(value, minor)
        if refusal:
            return damaged(form, *refusal, expected, stored)
        policy = value["PolicyName"]
        detail = f"Kubelet {version_name(minor)} loads this file, if its policy is {policy}."
        loaded = valid(form, detail, stored, expected)
        if policy in self._forms.policies:
            return loaded
        return loaded.warn(f"No kubelet is known to have a policy {policy!r}.")

    @property
    def _copy_warnings(self) -> tuple[str, ...]:
        sound = self.plain.value["Checksum"] == self.plain_checksums[0]
        return (
            "" if self.copy_agrees else "The copy for older kubelets differs from data.",
            "" if sound else "The copy for older kubelets (before 1.37) does not match its checksum.",
        )

    @property
    def _seal_warning(self) -> str:
        if not self.sealed or self._judge_text(NEWEST).verdict is Verdict.VALID:
            return ""
        return f"Only the copy for older kubelets is sound: kubelet {_NEWEST} refuses this file."

    @cached_property
    def outer(self) -> Decoded:
        """The text form: the copy for older kubelets and the sealed text."""
        plain = self._forms.plain_struct
        return self._decode(replace(plain, fields=plain.fields + _SEAL))

    @cached_property
    def inner(self) -> Decoded:
        """The content of the sealed text."""
        struct = self._forms.text_struct
        return decode_text(struct, self.outer.value["Data"], _preset(struct), "data")

    @cached_property
    def pods(self) -> Decoded:
        """The struct form with pod entries."""
        return self._decode(self._forms.pods_struct)

    @cached_property
    def plain(self) -> Decoded:
        """The struct form without pod entries, which every kubelet knows."""
        return self._decode(self._forms.plain_struct)

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
            return self._forms.text
        return self._forms.pods if self.has_pods else self._forms.plain

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
        return _checksums(self._forms.pods_struct, self.pods.value, self._forms.pods_aliases)

    @cached_property
    def plain_checksums(self) -> tuple[int, ...]:
        """The checksums that pass for the plain form; the first is the one that kubelet writes."""
        return _checksums(self._forms.plain_struct, self.plain.value, self._forms.plain_aliases)

    def _decode(self, struct: Struct) -> Decoded:
        return decode(struct, self._document, _preset(struct))

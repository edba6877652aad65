"""How kubelet loads the state of its CPU and memory managers: the same sequence of forms for both.

Kubelet 1.37 tries the text form, then the struct with pod entries, then the plain struct; a document that
shows any sign of the text form is never tried as another. Older kubelets know only the plain struct, which
every text form carries along as a copy.
"""

from __future__ import annotations

from dataclasses import replace

from draState._kubelet.gotypes import Value
from draState._kubelet.syntax import Node

from . import notes, versions
from .policyforms import Forms, Reading
from .verdict import Judgement, Verdict, damaged, unknown, valid

TEXT_FORM_SINCE = 37
POD_FORM_IN = 36  # only with the alpha gate PodLevelResourceManagers
_NEWEST = versions.name(versions.NEWEST)


class PolicyState:
    """One document of a policy manager, to be judged by any kubelet version."""

    def __init__(self, document: Node, forms: Forms) -> None:
        self._forms = forms
        self._reading = Reading(document, forms)

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        reading = self._reading
        read = (reading.outer, reading.inner) if reading.sealed else (reading.pods,)
        return self._judge(minor).warn(*notes.about(minor, *read))

    def _judge(self, minor: int) -> Judgement:
        if minor < TEXT_FORM_SINCE:
            return self._judge_older(minor)
        return self._judge_text(minor) if self._reading.sealed else self._judge_structs(minor)

    def _judge_text(self, minor: int) -> Judgement:
        reading, form = self._reading, self._forms.text
        if reading.outer.problems:
            return damaged(form, "wrong-shape", _undecodable(reading.outer.problems[0], minor))
        stored, expected = reading.outer.value["DataChecksum"], reading.text_checksum
        if stored != expected:
            return damaged(form, "checksum-mismatch", _mismatch("data", minor), expected, stored)
        if reading.inner.problems:
            detail = _undecodable(reading.inner.problems[0], minor)
            return damaged(form, "wrong-shape", detail, expected, stored)
        return self._loaded(form, reading.inner.value, minor, stored, expected).warn(*self._copy_warnings)

    def _judge_structs(self, minor: int) -> Judgement:
        reading, forms = self._reading, self._forms
        stored = reading.plain.value["Checksum"]
        if not reading.pods.problems and stored in reading.pods_checksums:
            return self._loaded(forms.pods, reading.pods.value, minor, stored, stored)
        if reading.plain.problems:
            return damaged(reading.shape, "wrong-shape", _undecodable(reading.plain.problems[0], minor))
        if stored == 0:
            return self._taken_unchecked(minor)
        if stored in reading.plain_checksums:
            return self._loaded(forms.plain, reading.plain.value, minor, stored, stored)
        expected = (reading.pods_checksums if reading.has_pods else reading.plain_checksums)[0]
        return damaged(reading.shape, "checksum-mismatch", _mismatch("content", minor), expected, stored)

    def _judge_older(self, minor: int) -> Judgement:
        reading, forms = self._reading, self._forms
        if reading.plain.problems:
            return damaged(reading.shape, "wrong-shape", _undecodable(reading.plain.problems[0], minor))
        stored, expected = reading.plain.value["Checksum"], reading.plain_checksums[0]
        if stored == expected:
            loaded = self._loaded(reading.shape, reading.plain.value, minor, stored, expected)
            return loaded.warn(self._seal_warning)
        if stored == 0 and minor in forms.zero_unknown_in:
            detail = f"Whether kubelet {versions.name(minor)} accepts checksum 0 is not known."
            return unknown(reading.shape, detail, stored)
        if stored == 0 and minor >= forms.zero_accepted_since:
            return self._taken_unchecked(minor)
        newest = self._judge(versions.NEWEST)
        if stored == 0 or newest.verdict is not Verdict.VALID:
            return damaged(reading.shape, "checksum-mismatch", _mismatch("content", minor), expected, stored)
        return self._judge_newer_form(newest, minor, stored)

    def _judge_newer_form(self, newest: Judgement, minor: int, stored: int) -> Judgement:
        """A document that the newest kubelet loads, but whose plain form does not match its checksum."""
        version, expected = versions.name(minor), self._reading.plain_checksums[0]
        refused = f"Kubelet {version} refuses this file as corrupted, though {_NEWEST} loads it: "
        if self._reading.sealed:
            detail = refused + "the copy for older kubelets does not match its checksum."
            return damaged(newest.format, "compat-copy", detail, expected, stored)
        if minor == POD_FORM_IN and stored in self._reading.plain_checksums:
            detail = f"Whether kubelet {version} accepts this checksum is not known."
            return unknown(newest.format, detail, stored)
        if minor == POD_FORM_IN and stored == self._reading.pods_checksums[0]:
            gate = f"Kubelet {version} loads this form only with the feature gate PodLevelResourceManagers."
            return replace(newest, detail=gate, loads=None).warn(gate)
        detail = refused + f"it is of a form that {version} does not read."
        return damaged(newest.format, "other-version", detail, expected, stored)

    def _taken_unchecked(self, minor: int) -> Judgement:
        reading = self._reading
        loaded = self._loaded(reading.shape, reading.plain.value, minor, 0, reading.plain_checksums[0])
        return loaded.warn(
            "The checksum is 0 or missing: kubelet accepts the content unchecked.",
            "Kubelet reads this file without its podEntries." if reading.has_pods else "",
        )

    def _loaded(self, form: str, value: Value, minor: int, stored: int, expected: int) -> Judgement:
        """The checksum passed; now check whether kubelet can use the content."""
        refusal = self._forms.refusal(value, minor)
        if refusal:
            return damaged(form, *refusal, expected, stored)
        policy = value["PolicyName"]
        detail = f"Kubelet {versions.name(minor)} loads this file, if its policy is {policy}."
        loaded = valid(form, detail, stored, expected)
        if policy in self._forms.policies:
            return loaded
        return loaded.warn(f"No kubelet is known to have a policy {policy!r}.")

    @property
    def _copy_warnings(self) -> tuple[str, ...]:
        reading = self._reading
        sound = reading.plain.value["Checksum"] == reading.plain_checksums[0]
        return (
            "" if reading.copy_agrees else "The copy for older kubelets differs from data.",
            "" if sound else "The copy for older kubelets (before 1.37) does not match its checksum.",
        )

    @property
    def _seal_warning(self) -> str:
        if not self._reading.sealed or self._judge_text(versions.NEWEST).verdict is Verdict.VALID:
            return ""
        return f"Only the copy for older kubelets is sound: kubelet {_NEWEST} refuses this file."


def _mismatch(what: str, minor: int) -> str:
    version = versions.name(minor)
    return f"Kubelet {version} refuses this file as corrupted: its {what} does not match the checksum."


def _undecodable(problem: str, minor: int) -> str:
    return f"Kubelet {versions.name(minor)} cannot decode this file: {problem}."

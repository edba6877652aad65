"""Every public name says what it is, every field too, and every error what to do about it."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import pytest

from checkpointmanager import Checkpoint, CheckpointError, CheckpointManager, EventKind
from docs import names
from draState import DRAError

CLASSES = names.public_classes()
ERRORS = {name: cls for name, cls in CLASSES.items() if issubclass(cls, CheckpointError | DRAError)}
# Fields whose names explain them.
PLAIN = {
    *("key", "path", "uid", "name", "namespace", "driver_name", "pool_name", "device_name", "share_id"),
    *("claim_uid", "claim_name", "claim_namespace", "devices", "containers", "cdi_devices", "resources", "resource_id"),
    "health",
}
# The words by which an error says what its receiver can do.
ADVICE = r"\b(call|catch|check|create|delete|fix|make|open|pass|read|release|repeat|run|stop|try|use)\b"


def test_every_module_function_class_and_value_has_a_docstring() -> None:
    for module in map(importlib.import_module, names.MODULES):
        assert module.__doc__
        exported = names.public_names(module)
        assert exported
        assert [name for name, value in exported.items() if not described(module, name, value)] == []


def described(module: ModuleType, name: str, value: Any) -> bool:
    if isinstance(value, ModuleType):
        return bool(value.__doc__)
    if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value)):
        written = inspect.getdoc(value) or ""
        return bool(written) and not written.startswith(f"{name}(")  # a dataclass makes one of its own
    return bool(names.value_doc(module, name))


def test_every_method_and_property_has_a_docstring() -> None:
    # The tests that StoreConformance brings are sentences.
    methods = {(name, each): said for name, cls in CLASSES.items() for each, said in names.methods_of(cls).items()}
    assert [where for where, said in methods.items() if not said and not where[1].startswith("test_")] == []


def test_every_field_and_member_is_explained() -> None:
    fields = {(name, each): said for name, cls in CLASSES.items() for each, said in names.fields_of(cls).items()}
    silent = [(name, each) for (name, each), said in fields.items() if not said and each not in PLAIN]
    assert [(name, each) for name, each in silent if not names.is_mentioned(CLASSES[name], each)] == []


def test_every_error_says_what_to_do() -> None:
    advice = {name: re.search(ADVICE, inspect.getdoc(cls) or "", flags=re.IGNORECASE) for name, cls in ERRORS.items()}
    assert [name for name, found in advice.items() if not found] == []


def test_the_classes_errors_and_fields_above_are_found() -> None:
    # Otherwise the tests above would look at nothing.
    assert CLASSES["checkpointmanager.CheckpointManager"] is CheckpointManager
    assert {name.rpartition(".")[0] for name in CLASSES} >= {
        "checkpointmanager.aio",
        "checkpointmanager.testing",
        "draState",
    }
    assert ERRORS["checkpointmanager.CheckpointError"] is CheckpointError
    assert ERRORS["draState.DRAError"] is DRAError
    assert "create_checkpoint" in names.methods_of(CheckpointManager)
    assert set(names.fields_of(Checkpoint)) >= {"data", "key", "generation"}


def test_every_event_says_what_to_do_or_that_nothing_is_lost() -> None:
    explained = names.fields_of(EventKind)
    assert set(explained) == {kind.name for kind in EventKind}
    assert [kind for kind, said in explained.items() if len(said) < 40] == []


class Unexplained:
    """Says nothing."""

    gadget: int
    widget: int  # what it is
    gizmo: int
    """What it is."""


def test_a_field_without_an_explanation_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "LIBRARIES", ("tests",))
    assert names.fields_of(Unexplained) == {"gadget": "", "widget": "what it is", "gizmo": "What it is."}
    assert not names.is_mentioned(Unexplained, "gadget")

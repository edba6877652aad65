"""The persisted shape is frozen: a state class that changes needs a version of its own."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from draState import CLAIMS, ClaimInfoState

from .shapes import shape_of

BASELINE = Path(__file__).parent.parent / "data" / "draState" / "baseline.json"


def present() -> dict[str, Any]:
    return {"kind": CLAIMS.kind, "version": CLAIMS.version, "classes": shape_of(ClaimInfoState)}


def difference(frozen: dict[str, Any], found: dict[str, Any]) -> str:
    """What a developer who changed a class has to do; "" if nothing has changed."""
    if frozen == found:
        return ""
    before, now = frozen["classes"], found["classes"]
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if frozen["version"] == found["version"]:
        return f"{', '.join(changed)}: the persisted shape has changed; add a version to draState/_claimschema.py"
    return "a version was added: write its golden file, then freeze its shape in tests/data/draState/baseline.json"


def test_the_state_classes_are_those_of_the_baseline() -> None:
    message = difference(json.loads(BASELINE.read_text()), present())

    assert not message, message


@pytest.mark.parametrize("annotation", [int, str, "frozenset[str]"])
def test_a_class_with_another_field_is_told_to_add_a_version(annotation: Any) -> None:
    changed = present()
    wider = make_dataclass("Device", [("color", annotation)])
    changed["classes"] = changed["classes"] | shape_of(wider)

    assert "Device: the persisted shape has changed; add a version" in difference(present(), changed)


def test_a_new_version_is_told_to_bring_its_golden_file() -> None:
    changed = present() | {"version": CLAIMS.version + 1}

    assert "golden file" in difference(present(), changed)


def test_every_version_has_a_golden_file() -> None:
    missing = [n for n in range(1, CLAIMS.version + 1) if not (BASELINE.parent / f"v{n}.json").exists()]

    assert missing == []

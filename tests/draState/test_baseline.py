"""The persisted shapes are frozen: a changed state class needs a new version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import Schema
from checkpointmanager.testing import check_baseline
from draState import CLAIMS, DEVICE_HEALTH, POD_CONFIGS

DATA = Path(__file__).parent.parent / "data" / "draState"


BASELINES = {"baseline": CLAIMS, "devicehealth-baseline": DEVICE_HEALTH, "podconfig-baseline": POD_CONFIGS}


@pytest.mark.parametrize(("name", "schema"), BASELINES.items())
def test_the_state_classes_are_those_of_the_baseline(name: str, schema: Schema[Any]) -> None:
    check_baseline(schema, DATA / f"{name}.json")


def test_every_version_has_a_golden_file() -> None:
    missing = [n for n in range(1, CLAIMS.version + 1) if not (DATA / f"v{n}.json").exists()]

    assert missing == []

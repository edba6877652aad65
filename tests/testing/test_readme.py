"""The page on testing shows what pytest runs, and names everything that is public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import checkpointmanager.testing
from checkpointmanager.testing import StoreConformance, damage

from .test_plugin import pytest_run

PAGE = Path(checkpointmanager.testing.__file__).with_name("README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_example_passes_with_its_fixture(checkpoint_chaos: Any) -> None:
    names: dict[str, Any] = {}
    for example in EXAMPLES[:2]:
        exec(compile(example, "README.md", "exec"), names)
    names["test_a_prepared_claim_survives_every_power_loss"](checkpoint_chaos)


def test_the_suite_for_stores_runs_as_it_is_shown(tmp_path: Path) -> None:
    (example,) = [example for example in EXAMPLES if "StoreConformance" in example]
    (tmp_path / "test_my_store.py").write_text(example)
    tests = [name for name in dir(StoreConformance) if name.startswith("test_")]
    assert f" {len(tests)} passed" in pytest_run(tmp_path)


def test_every_damage_is_in_the_table() -> None:
    makers = [*damage.EVERYWHERE, *damage.ON_DISK, damage.swap, damage.replace_by]
    assert [maker.__name__ for maker in makers if f"`{maker.__name__}`" not in PAGE] == []


def test_everything_that_is_public_is_on_the_page() -> None:
    failures = {"Death", "Error", "Interruption", "Killed", "ShortWrite"}
    returned = {"Crashes", "Fault", "Faults", "Damage", "Injector"} | failures
    assert [name for name in checkpointmanager.testing.__all__ if name not in PAGE and name not in returned] == []

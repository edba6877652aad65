"""The page of the API has every public name, and is what the docstrings say today."""

from __future__ import annotations

import importlib
import inspect
import re

from docs import api, names

PAGE = api.PAGE.read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert api.text() == PAGE, "run tools/docs/build --api"


def test_every_public_name_and_method_is_on_it() -> None:
    headings = set(re.findall(r"^### (\w+)$", PAGE, flags=re.MULTILINE))
    for module in names.MODULES:
        exported = names.public_names(importlib.import_module(module))
        assert {name for name, value in exported.items() if not inspect.ismodule(value)} <= headings
    for cls in names.public_classes().values():
        assert [name for name in names.methods_of(cls) if not re.search(rf"`(await )?{name}\b", PAGE)] == []

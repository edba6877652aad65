"""The programs of the two pages are short, and the modules and names that they refer to exist."""

from __future__ import annotations

import re
from pathlib import Path

import draState

PACKAGE = Path(draState.__file__).parent
ROOT = PACKAGE.parent
PAGES = (PACKAGE / "README.md", ROOT / "tools" / "docs" / "guides" / "kubelet.md")
README = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_every_module_that_is_named_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", README))

    assert named >= {"_manager/manager.py", "_claims/cache.py", "kubelet/_statefile.py"}
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_every_class_and_function_that_is_named_is_public_or_where_it_is_said_to_be() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"`(?:\w+\.)*(\w+)(?:\([^`]*\))?`", README)) - {"checkpointmanager", "py", "null"}

    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", sources)] == []

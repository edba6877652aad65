"""The line between public and private: who may import what."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.names import LIBRARIES, MODULES

ROOT = Path(__file__).parents[1]

# Each room, and the private packages of other rooms that it may enter.
ROOMS: dict[str, tuple[str, ...]] = {
    "draState": (),
    "tools/dra_agent": (),
    "tools/checkpoint_verify": (),
    "tools/bench": (),
    "tools/demo_kills.py": (),
    "tools/soak_run.py": (),
    "tests/upgrades/agents": (),
}


def files_of(room: str) -> list[Path]:
    path = ROOT / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import of one of our libraries by another one; name is "" for `import module`."""
    own = path.relative_to(ROOT).parts[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        else:
            continue
        yield from ((module, name) for module, name in found if module.split(".")[0] in {*LIBRARIES} - {own})


def names_of(module: str) -> set[str]:
    return {*getattr(importlib.import_module(module), "__all__", ()), "__version__", ""}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_public_names_of_the_others(room: str) -> None:
    imported = [(path, *found) for path in files_of(room) for found in imports_of(path)]
    assert imported
    for path, module, name in imported:
        private = any(module == allowed or module.startswith(f"{allowed}.") for allowed in ROOMS[room])
        public = module in MODULES and name in names_of(module)
        assert private or public, f"{path.relative_to(ROOT)} imports {name or 'all'} of {module}"


def test_every_other_module_has_an_underscore_or_lives_in_a_package_that_has_one() -> None:
    for library in LIBRARIES:
        for path in files_of(library):
            if path.name == "__main__.py":  # a command, not a module to import
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(part for part in parts if part != "__init__")
            private = any(part.startswith("_") for part in module.split("."))
            assert private or module in MODULES, f"{module} is neither public nor private"

"""The package as a whole: what it imports, and that its example is true."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path
from types import ModuleType

import pytest

import checkpoint_verify
import draState.kubelet
from checkpoint_verify import kubelet


@pytest.mark.parametrize(("package", "lines"), [(kubelet, 3), (draState.kubelet, 2)])
def test_the_example_in_the_package_docstring_is_true(package: ModuleType, lines: int) -> None:
    result = doctest.testmod(package)

    assert (result.failed, result.attempted) == (0, lines)


def test_what_knows_draState_or_kubelet_is_registered_in_one_place() -> None:
    tool = Path(checkpoint_verify.__file__).parent
    knowing = set()
    for module in tool.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names.append((node.module or "") if isinstance(node, ast.ImportFrom) else "")
            if any(part in ("draState", "kubelet") for name in names for part in name.split(".")):
                knowing.add(module.relative_to(tool).parts[0])

    assert knowing == {"registry.py", "kubelet"}

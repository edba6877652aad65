"""The package as a whole: what it imports, and that its example is true."""

from __future__ import annotations

import ast
import doctest
import sys
from pathlib import Path

from checkpoint_verify import kubelet


def test_the_readers_import_nothing_but_the_standard_library_and_the_reader_of_draState() -> None:
    modules = sorted(Path(kubelet.__file__).parent.glob("*.py"))
    assert len(modules) > 10

    for module in modules:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module or "")
            foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
            assert all(name.startswith("draState._kubelet.") for name in foreign), module.name


def test_the_example_in_the_package_docstring_is_true() -> None:
    result = doctest.testmod(kubelet)

    assert (result.failed, result.attempted) == (0, 3)

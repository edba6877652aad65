"""The tool stands on what the library promises: public names, and the private package of the file format."""

from __future__ import annotations

import ast
from pathlib import Path

import checkpoint_verify
import checkpointmanager

FOLDER = Path(checkpoint_verify.__file__).parent
FORMAT = "checkpointmanager._format"


def imports_of(path: Path) -> list[tuple[str, str]]:
    """(module, name) for each `from module import name`, and (module, "") for each `import module`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found += [(node.module or "", name.name) for name in node.names]
        elif isinstance(node, ast.Import):
            found += [(name.name, "") for name in node.names]
    return found


def test_nothing_private_is_imported_but_the_file_format() -> None:
    public = {*checkpointmanager.__all__, "__version__"}
    ours = [
        (path.name, module, name)
        for path in FOLDER.rglob("*.py")
        for module, name in imports_of(path)
        if module.split(".")[0] == "checkpointmanager"
    ]
    assert len(ours) > 30
    for file, module, name in ours:
        allowed = name in public if module == "checkpointmanager" else module.startswith(FORMAT + ".")
        assert allowed, f"{file} imports {module} {name}"

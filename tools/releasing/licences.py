"""The licences of everything inside the single file, found from PyInstaller's own lists."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

RULE = "=" * 120
# Added by the two builders themselves and missing from their lists.
BUILDERS = ("pyinstaller", "staticx")
BESIDES = ("/lib/{triplet}/libc.so.6", "/lib/{triplet}/libz.so.1")


def inside(lists: Path, packages: Path) -> dict[str, str]:
    """The text of each licence, by name and version of the component."""
    files = [Path(source) for source in _sources(lists)]
    texts = dict(_of_wheels(files, packages))
    texts.update(_of_debian(file for file in files if packages not in file.parents))
    return texts


def document(texts: dict[str, str]) -> str:
    """One text: the list first, then every licence in full."""
    names = sorted(texts, key=str.lower)
    parts = ["checkpoint-verify, as a single file, contains:\n", *(f"  {name}" for name in names), ""]
    for name in names:
        parts += [RULE, name, RULE, "", texts[name].strip(), ""]
    return "\n".join(parts) + "\n"


def _sources(lists: Path) -> Iterator[str]:
    """The files that went in; PyInstaller's lists are Python literals."""
    (_, modules) = ast.literal_eval((lists / "PYZ-00.toc").read_text(encoding="utf-8"))
    package = ast.literal_eval((lists / "PKG-00.toc").read_text(encoding="utf-8"))
    for _, source, kind in [*modules, *package[2]]:
        if kind in ("PYMODULE", "BINARY", "EXTENSION") and not source.startswith(str(lists)) and source != "-":
            yield source


def _of_wheels(files: Iterable[Path], packages: Path) -> Iterator[tuple[str, str]]:
    tops = {file.relative_to(packages).parts[0] for file in files if packages in file.parents}
    for distribution in distributions(path=[str(packages)]):
        held = {path.parts[0] for path in distribution.files or () if path.suffix in (".py", ".so")}
        if held & tops or distribution.name in BUILDERS:
            yield f"{distribution.name} {distribution.version}", _text(distribution)


def _text(distribution: Distribution) -> str:
    found = [
        Path(str(distribution.locate_file(path))).read_text(encoding="utf-8")
        for path in distribution.files or ()
        if path.parts[0].endswith(".dist-info") and any(word in path.name.upper() for word in ("LICEN", "COPYING"))
    ]
    return "\n".join(found) or str(distribution.metadata["License"])


def _of_debian(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    files = list(files)
    triplet = next(file.parent.name for file in files if file.name.startswith("libpython"))
    paths = {str(file) for file in files} | {path.format(triplet=triplet) for path in BESIDES}
    # Debian lists a library under one of two names, because /lib is a link to /usr/lib.
    searched = sorted(paths | {f"/usr{path}" for path in paths if path.startswith("/lib/")})
    owners = _output("dpkg-query", "--search", *searched)
    for package in sorted({line.partition(": ")[0].split(":")[0] for line in owners.splitlines()}):
        version = _output("dpkg-query", "--show", "--showformat=${Version}", package)
        text = Path("/usr/share/doc", package, "copyright").read_text(encoding="utf-8")
        yield f"{package} {version} (Debian)", text


def _output(*command: str) -> str:
    # It fails if no package owns one of the paths, but still lists the others.
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout

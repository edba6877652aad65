"""The command `tools/release`: builds everything, in order, into dist/."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from . import distributions, onefile, toolbox
from .distributions import Commit

ROOT = Path(__file__).parent.parent.parent
DIST = ROOT / "dist"


def main() -> int:
    """Build everything; if a requirement is missing, say so before building anything."""
    description = "Builds sdist, wheel, checkpoint-verify as a single file, its licences and SHA256SUMS into dist/."
    argparse.ArgumentParser("tools/release", description=description).parse_args()
    if missing := toolbox.missing():
        print(toolbox.advice(missing), file=sys.stderr)
        return 2
    commit = Commit.last(ROOT)
    if commit.differs:
        print("Warning: uncommitted changes are not included in the release.")
    tools = toolbox.environment(ROOT)
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        work = Path(folder)
        source = commit.export(work / "source")
        built = work / "dist"
        print("Building sdist and wheel ...", flush=True)
        wheel = distributions.build(source, built, tools.python, commit.epoch).wheel
        print("Building the single file ...", flush=True)
        name = f"checkpoint-verify-{distributions.version(source)}-linux-{platform.machine()}"
        onefile.build(wheel, built / name, tools, work / "onefile", commit.epoch)
        distributions.write_checksums(built)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(built, DIST)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

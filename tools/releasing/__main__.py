"""`tools/release`: all of it, in order, into dist/."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from . import checksums, distributions, onefile, toolbox
from .commit import Commit

ROOT = Path(__file__).parent.parent.parent
DIST = ROOT / "dist"


def main() -> int:
    """Build everything, or say what is missing before anything is built."""
    description = "Builds sdist, wheel, the one file checkpoint-verify, its licences and SHA256SUMS, into dist/."
    argparse.ArgumentParser("tools/release", description=description).parse_args()
    if missing := toolbox.missing():
        print(toolbox.advice(missing), file=sys.stderr)
        return 2
    commit = Commit.last(ROOT)
    if commit.differs:
        print("There are changes that are not committed. They will not be in it.")
    tools = toolbox.environment(ROOT)
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        work = Path(folder)
        source = commit.export(work / "source")
        built = work / "dist"
        print("Building sdist and wheel ...", flush=True)
        wheel = distributions.build(source, built, tools.python, commit.epoch).wheel
        print("Building the one file ...", flush=True)
        name = f"checkpoint-verify-{distributions.version(source)}-linux-{platform.machine()}"
        onefile.build(wheel, built / name, tools, work / "onefile", commit.epoch)
        checksums.write(built)
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(built, DIST)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

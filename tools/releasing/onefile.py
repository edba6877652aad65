"""Builds checkpoint-verify as a single file, for nodes without Python, pip or network.

PyInstaller puts the command and its Python into one file; staticx adds the C library. The result needs only a kernel,
/proc and a folder in which programs may be unpacked and run.
"""

from __future__ import annotations

from pathlib import Path

from . import licences, toolbox
from .toolbox import Toolbox

START = "import sys\nfrom checkpoint_verify.cli import main\nsys.exit(main())\n"

# PyInstaller finds these, but the command never uses them. Without them the file has half the size, starts in half
# the time, and contains no OpenSSL to keep up to date.
UNUSED = (
    "_bz2", "_hashlib", "_lzma", "_multibytecodec", "_sqlite3", "_ssl", "_uuid",
    "_codecs_cn", "_codecs_hk", "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw",
    "concurrent.futures.process", "doctest", "markdown_it", "multiprocessing", "pydoc", "pygments", "setuptools",
    "sqlite3", "ssl", "unittest", "xml",
)  # fmt: skip


def build(wheel: Path, target: Path, tools: Toolbox, work: Path, epoch: int) -> None:
    """Build it from the released wheel, and write the licences of everything inside next to it."""
    work.mkdir()
    toolbox.install(tools, "--force-reinstall", "--no-deps", str(wheel))
    toolbox.install(tools, f"{wheel}[cli]")
    start = work / "start.py"
    start.write_text(START, encoding="utf-8")
    words = ["--onefile", "--strip", "--noconfirm", "--name", "checkpoint-verify"]
    folders: list[str | Path] = ["--distpath", work, "--workpath", work / "work", "--specpath", work]
    unused = [word for name in UNUSED for word in ("--exclude-module", name)]
    # PyInstaller stores sets in the order of their hashes, so these must not be random.
    same = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "1"}
    toolbox.run([tools.python, "-m", "PyInstaller", *words, *folders, *unused, start], cwd=work, **same)
    adapted = Path(__file__).with_name("staticx_adapted.py")
    toolbox.run([tools.python, adapted, work / "checkpoint-verify", target], cwd=work, **same)
    target.chmod(0o755)
    texts = licences.inside(work / "work" / "checkpoint-verify", tools.packages)
    target.with_name(f"{target.name}.licences.txt").write_text(licences.document(texts), encoding="utf-8")

"""The one file, in an empty root. Built in the long form only: it takes a minute and needs a package index."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, __version__
from checkpointmanager.testing import damage

from ..long import LONG

ROOT = Path(__file__).parents[2]
README = (ROOT / "tools" / "releasing" / "README.md").read_text(encoding="utf-8")
MIRROR = "http://deb.debian.org/debian"
AGENT = 1234  # a user id that no system knows

pytestmark = [
    pytest.mark.skipif(not LONG, reason="built in the long form only (CHECKPOINT_LONG=1)"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new clone of the last commit in which tools/release has run."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    release(folder)
    return folder


def release(clone: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    ended = subprocess.run(["tools/release"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode == 2:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def onefile(clone: Path) -> Path:
    (found,) = (path for path in (clone / "dist").glob("checkpoint-verify-*") if path.suffix != ".txt")
    return found


class Jail:
    """A root directory that holds the one file, /proc, a folder for TMPDIR and one for state, and nothing else."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        for name in ("proc", "tmp", "state"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(program, folder / "checkpoint-verify")

    def run(self, *words: str, tmp: str = "/tmp") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["chroot", self.folder, "/checkpoint-verify", *words],
            env={"TMPDIR": tmp, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )

    @contextlib.contextmanager
    def mounted(self, kind: str, name: str, options: str = "rw") -> Iterator[None]:
        subprocess.run(["mount", "-t", kind, "-o", options, kind, self.folder / name], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", self.folder / name], check=True)


@pytest.fixture
def jail(onefile: Path, tmp_path: Path) -> Jail:
    if os.geteuid():
        pytest.skip("needs root, to mount /proc in another root directory")
    made = Jail(tmp_path / "jail", onefile)
    with CheckpointManager(made.state) as manager:
        for number in range(3):
            manager.create_checkpoint(f"claim-{number}", {"number": number})
    for path in (made.state, *made.state.iterdir()):
        os.chown(path, AGENT, AGENT)
    return made


def test_it_verifies_and_repairs_where_nothing_else_is(jail: Jail) -> None:
    with jail.mounted("proc", "proc"):
        version = jail.run("--version")
        good = jail.run("/state")
        damage.flip_bit(jail.state, "claim-1")
        damaged = jail.run("/state")
        repaired = jail.run("repair", "--yes", "--all", "/state")
        listed = jail.run("list", "/state")

    assert (version.returncode, version.stdout) == (0, f"checkpoint-verify {__version__}\n")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("GOOD: 3 checkpoints in /state")
    assert damaged.returncode == 1
    assert damaged.stdout.startswith("DAMAGED: 1 of 3 checkpoints")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert (jail.state / "claim-1.json").stat().st_uid == AGENT, "root repairs as the agent's user"
    assert listed.stdout.count("good") == 3
    assert list((jail.folder / "tmp").iterdir()) == [], "it removes what it unpacked"


def test_every_subcommand_finds_what_it_needs_inside(jail: Jail) -> None:
    runs = {
        "show": ["/state", "claim-1"], "diff": ["/state", "claim-0", "claim-1"], "diagnose": ["/state", "claim-1"],
        "list": ["/state"], "bundle": ["/state", "/tmp/claims.tar"], "verify": ["--json", "/state"],
        "repair": ["--dry-run", "--all", "/state"], "--print-completion": ["bash"],
    }  # fmt: skip
    with jail.mounted("proc", "proc"):
        for command, words in runs.items():
            ended = jail.run(command, *words)
            assert (ended.returncode, ended.stderr) == (0, ""), command
        missing = jail.run("/nothing")

    assert missing.returncode == 3


def test_it_says_what_it_lacks_and_never_looks_like_a_verdict(jail: Jail) -> None:
    without_proc = jail.run("/state")
    with jail.mounted("proc", "proc"):
        without_folder = jail.run("/state", tmp="/nothing")
        with jail.mounted("tmpfs", "tmp", "noexec"):
            not_executable = jail.run("/state")
        with jail.mounted("tmpfs", "tmp", "size=8m"):
            full = jail.run("/state")

    assert "/proc/self/exe: No such file or directory" in without_proc.stderr
    assert "temporary directory in /nothing: No such file or directory" in without_folder.stderr
    assert re.search(r"Set TMPDIR to run /tmp/\S+: Permission denied", not_executable.stderr)
    assert "TMPDIR: unpacking failed" in full.stderr
    for ended in (without_proc, without_folder, not_executable, full):
        assert ended.returncode in (2, 3)
        assert ended.stdout == ""
        (said,) = re.findall(r"(/proc/self/exe|directory in|Set TMPDIR to run|TMPDIR: unpacking)", ended.stderr)
        assert said in README, "the manual has the message and what to do about it"


def test_it_runs_on_an_old_libc(onefile: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, for debootstrap and chroot")
    if not shutil.which("debootstrap"):
        pytest.skip("needs debootstrap: apt-get install debootstrap")
    bullseye = tmp_path / "bullseye"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", "bullseye", bullseye, MIRROR], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"debootstrap could not make a bullseye system: {made.stdout[-200:]}{made.stderr[-200:]}")
    node = Jail(bullseye, onefile)
    with CheckpointManager(node.state) as manager:
        manager.create_checkpoint("claim-0", {})

    with node.mounted("proc", "proc"):
        ended = node.run("/state")

    assert list(bullseye.glob("lib/*/libc-2.31.so")), "an old libc"
    assert not list(bullseye.glob("usr/bin/python3*")), "and no Python"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("GOOD: 1 checkpoint in /state")


def test_a_second_build_gives_the_same_bytes(clone: Path) -> None:
    sums = (clone / "dist" / "SHA256SUMS").read_text()

    release(clone)

    assert (clone / "dist" / "SHA256SUMS").read_text() == sums
    assert len(sums.splitlines()) == 4


def test_the_manual_lists_the_licences_of_all_that_is_inside(onefile: Path) -> None:
    text = onefile.with_name(f"{onefile.name}.licences.txt").read_text(encoding="utf-8")
    inside = set(re.findall(r"^  (\S+) \S+(?: \(Debian\))?$", text.split("=" * 80)[0], flags=re.MULTILINE))
    table = README[README.index("| inside |") : README.index("\n\n", README.index("| inside |"))]

    assert inside == set(re.findall(r"`([\w.+-]+)`", table))
    assert len(text) > 100_000, "the licences in full"


def test_it_is_executable_and_no_larger_than_the_manual_says(onefile: Path) -> None:
    (megabytes,) = re.findall(r"about (\d+) MB", README)

    assert stat.S_IMODE(onefile.stat().st_mode) == 0o755
    assert onefile.stat().st_size < (int(megabytes) + 0.5) * 1e6

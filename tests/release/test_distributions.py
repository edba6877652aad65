"""sdist and wheel: what is in them, that two builds are the same bytes, and that the wheel installs and runs."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from checkpointmanager import __version__
from releasing import distributions
from releasing.distributions import Distributions

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_000
PACKAGES = {"checkpointmanager", "draState", "checkpoint_verify", "dra_agent"}
PAGES = {
    "checkpointmanager/ETCD.md",
    "checkpointmanager/FORMAT.md",
    "checkpointmanager/py.typed",
    "checkpointmanager/testing/README.md",
    "checkpoint_verify/README.md",
    "checkpoint_verify/screen.svg",
    "draState/README.md",
    "draState/plugin/rehearsal/README.md",
    "draState/py.typed",
    "dra_agent/README.md",
    "dra_agent/daemonset.yaml",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return distributions.build(ROOT, tmp_path_factory.mktemp("dist"), Path(sys.executable), EPOCH)


@pytest.fixture(scope="module")
def unpacked(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, as in the sdist alone."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder)
    (top,) = folder.iterdir()
    return top


def test_the_wheel_holds_the_packages_with_their_pages_and_nothing_else(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    information = f"checkpointmanager-{__version__}.dist-info"

    assert {name.split("/")[0] for name in names} == PACKAGES | {information}
    assert f"{information}/licenses/LICENSE" in names
    assert {name for name in names if not name.endswith(".py") and not name.startswith(information)} == PAGES


def test_the_sdist_holds_the_same_sources_and_what_builds_them(built: Distributions, unpacked: Path) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    paths = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    sources = {path.removeprefix("tools/") for path in paths if "/" in path}

    assert sources == in_wheel
    # .gitignore is hatchling's doing: with it a build from the sdist leaves out what a build from the clone does.
    assert paths - {path for path in paths if "/" in path} == {
        "PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore",
    }  # fmt: skip


def test_building_again_and_building_from_the_sdist_gives_the_same_bytes(
    built: Distributions, unpacked: Path, tmp_path: Path
) -> None:
    again = distributions.build(unpacked, tmp_path, Path(sys.executable), EPOCH)

    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_the_time_of_the_commit_is_in_the_wheel(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_the_wheel_installs_in_a_new_environment_and_its_commands_run(built: Distributions, tmp_path: Path) -> None:
    # Its dependencies come from the tests' environment by a path: no test uses the network.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    install = ["install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", str(built.wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, timeout=500)

    for command in ("checkpoint-verify", "dra-agent"):
        run = subprocess.run(
            [python.with_name(command), "--help"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert (run.returncode, run.stderr) == (0, "")
    where = subprocess.run(
        [python, "-c", "import checkpoint_verify; print(checkpoint_verify.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=500,
    )  # fmt: skip
    assert where.stdout.startswith(str(packages)), "this is the wheel, and not the clone"
    version = subprocess.run(
        [python.with_name("checkpoint-verify"), "--version"], capture_output=True, text=True, check=True, timeout=500
    )
    assert version.stdout == f"checkpoint-verify {__version__}\n"


def test_nothing_that_an_extra_asks_for_is_this_project_itself(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        text = archive.read(f"checkpointmanager-{__version__}.dist-info/METADATA").decode()
    wanted = Parser().parsestr(text).get_all("Requires-Dist", [])

    assert len(wanted) > 10
    assert [name for name in wanted if re.match(r"checkpoint.?manager", name, flags=re.IGNORECASE)] == []


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")

    distributions.write_checksums(tmp_path)
    distributions.write_checksums(tmp_path)  # an existing list is not one of the files

    checked = subprocess.run(
        ["sha256sum", "--check", distributions.SUMS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "a: OK\nb: OK\n")

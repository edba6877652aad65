"""The plugin in a pytest run of its own: it is found, reports the story of a failure, and costs other runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUGIN = "checkpointmanager"  # the name under which pytest knows it
MODULE = "checkpointmanager.testing._plugin"
ROOT = Path(__file__).parents[2]

AGENT_TEST = """
from checkpointmanager import CheckpointManager
from checkpointmanager.testing import acknowledge

def prepare(directory):
    with CheckpointManager(directory, durability="{durability}") as manager:
        manager.create_checkpoint("claim", 1)
        acknowledge("claim")

def test_the_claim_survives(checkpoint_chaos):
    for crash in checkpoint_chaos(prepare):
        with CheckpointManager(crash.directory) as manager:
            assert set(crash.acknowledged) <= set(manager)

def test_the_claim_survives_faults(checkpoint_faults):
    for fault in checkpoint_faults(prepare, errors=[5]):
        with CheckpointManager(fault.directory) as manager:
            assert set(fault.acknowledged) <= set(manager)
"""


def pytest_run(folder: Path, *arguments: str, path: Path | None = None) -> str:
    """As a user would: outside of this project, with the package on the path."""
    (folder / "pytest.ini").write_text("[pytest]\n")  # otherwise this project's settings apply below its folder
    places = os.pathsep.join(str(place) for place in (path, ROOT) if place)
    environment = {**os.environ, "PYTHONPATH": places, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def installed(folder: Path) -> Path:
    """What an installation leaves of the entry point in pyproject.toml."""
    place = folder / "site"
    about = place / "checkpointmanager-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: checkpointmanager\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[pytest11]\n{PLUGIN} = {MODULE}\n")
    assert f'{PLUGIN} = "{MODULE}"' in (ROOT / "pyproject.toml").read_text()
    return place


def test_it_is_found_where_the_package_is_installed_and_no_warning_is_raised(tmp_path: Path) -> None:
    """Dead processes have finalizers, which must not complain."""
    (tmp_path / "test_agent.py").write_text(AGENT_TEST.format(durability="full"))
    assert "2 passed" in pytest_run(tmp_path, "-W", "error", path=installed(tmp_path))


def test_a_failure_reports_the_story_of_the_crash_also_where_the_plugin_is_named_as_well(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(AGENT_TEST.format(durability="atomic"))
    output = pytest_run(tmp_path, "-p", PLUGIN, "-k", "not faults", path=installed(tmp_path))
    assert "1 failed" in output
    assert "checkpoint_chaos" in output
    assert "the power failed after:" in output
    assert "and this was acknowledged: 'claim'" in output
    assert "does not survive a reboot" not in output, "not for each of a thousand folders in memory"


def test_a_run_that_does_not_use_it_loads_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n"
        "def test_nothing_is_loaded():\n"
        "    loaded = [name for name in sys.modules if name.startswith('checkpointmanager.testing.')]\n"
        f"    assert loaded == ['{MODULE}']\n"
        "    assert 'pyfakefs' not in sys.modules or 'pyfakefs.pytest_plugin' in sys.modules\n"
    )
    assert "1 passed" in pytest_run(tmp_path, "-p", PLUGIN)


def test_the_library_does_not_load_its_testing_part() -> None:
    code = (
        "import sys, checkpointmanager; sys.exit('checkpointmanager.testing' in sys.modules or 'pytest' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_testing_works_without_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; sys.modules['pyfakefs'] = None\n"
        "from checkpointmanager.testing import *\n"
        "print(every_crash(lambda directory: (directory / 'file').touch()).check(print).states)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "2"

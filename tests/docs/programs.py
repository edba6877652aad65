"""The programs of a page, run as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def output_of(program: str, folder: Path) -> list[str]:
    """The lines that the program prints, with DIR for a directory of its own. It fails on warnings too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = re.sub(rf"{re.escape(tempfile.gettempdir())}/\w+/", "DIR/", done.stdout)
    return re.sub(r"passed \d+ tests", "passed N tests", printed).splitlines()

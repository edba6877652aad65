"""The command `tools/docs/build`."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import site
from .pages import ROOT


def parser() -> argparse.ArgumentParser:
    """The command line of tools/docs/build."""
    made = argparse.ArgumentParser(
        "tools/docs/build",
        description="Builds the documentation: the pages of this repository, the reference of the API and of the "
        "commands. The result is a static site that needs no network; open its index.html.",
    )
    made.add_argument(
        "out", nargs="?", type=Path, default=ROOT / "tools/docs/site", help="folder to write (default: tools/docs/site)"
    )
    return made


def main() -> None:
    """Build the site and print where it starts."""
    out = parser().parse_args().out.resolve()
    count = site.build(out)
    print(f"{count} pages; open {out / 'index.html'}")


if __name__ == "__main__":
    main()

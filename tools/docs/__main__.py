"""The command `tools/docs/build`."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import site
from .pages import ROOT


def main() -> None:
    """Build the site and print where it starts."""
    parser = argparse.ArgumentParser(
        "tools/docs/build",
        description="Builds the documentation: the pages of this repository and the reference of the API. The result "
        "is a static site that needs no network; open its index.html.",
    )
    default = ROOT / "tools/docs/site"
    parser.add_argument("out", nargs="?", type=Path, default=default, help="folder to write (default: tools/docs/site)")
    out = parser.parse_args().out.resolve()
    count = site.build(out)
    print(f"{count} pages; open {out / 'index.html'}")


if __name__ == "__main__":
    main()

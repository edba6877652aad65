"""The command `tools/docs/build`."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import api, site
from .pages import ROOT


def main() -> None:
    """Build the site and print where it starts, or write the page of the API."""
    parser = argparse.ArgumentParser(
        "tools/docs/build",
        description="Builds the documentation: the pages of this repository and the reference of the API. The result "
        "is a static site that needs no network; open its index.html.",
    )
    default = ROOT / "tools/docs/site"
    parser.add_argument("out", nargs="?", type=Path, default=default, help="folder to write (default: tools/docs/site)")
    parser.add_argument("--api", action="store_true", help="only write tools/docs/api.md again, and build no site")
    given = parser.parse_args()
    if given.api:
        api.PAGE.write_text(api.text(), encoding="utf-8")
        return
    out = given.out.resolve()
    count = site.build(out)
    print(f"{count} pages; open {out / 'index.html'}")


if __name__ == "__main__":
    main()

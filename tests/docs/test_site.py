"""The site builds without a warning, shows every page and everything public, and needs no network."""

from __future__ import annotations

import html
import importlib
import os
import posixpath
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from docs import names, pages, site


def test_the_site_builds_without_a_warning_and_shows_everything(tmp_path: Path) -> None:
    out = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "docs", str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # One test, because parallel workers would each build the site.
    every_page_of_the_repository_is_in_it(out)
    every_public_name_is_on_the_page_of_its_module(out)
    every_link_leads_to_a_place_of_the_site_and_none_to_a_network(out)
    an_example_in_a_docstring_keeps_its_lines(out)


@cache
def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def every_page_of_the_repository_is_in_it(built: Path) -> None:
    assert [page for page in pages.all_pages() if not (built / pages.as_site_path(page)).exists()] == []
    assert (built / "index.html").read_bytes() == (built / "README.html").read_bytes()


def every_public_name_is_on_the_page_of_its_module(built: Path) -> None:
    for name in names.MODULES:
        shown = (built / "reference" / site.reference_of(name)).read_text(encoding="utf-8")
        exported = names.public_names(importlib.import_module(name))
        assert [own for own in exported if f'id="{own}"' not in shown and own != "damage"] == []


def every_link_leads_to_a_place_of_the_site_and_none_to_a_network(built: Path) -> None:
    for page in built.rglob("*.html"):
        text, place = markup_of(page), page.relative_to(built).as_posix()
        for link in re.findall(r'(?:href|src)="([^"]+)', text):
            if re.match(r"(https?:|mailto:|data:)", link):
                continue
            target, _, anchor = html.unescape(link).partition("#")
            path = built / posixpath.normpath(posixpath.join(posixpath.dirname(place), target)) if target else page
            assert path.is_file(), f"{place}: {link}"
            ours = not path.is_relative_to(built / "reference")  # pdoc also links to inherited members, without a place
            assert not anchor or not ours or f'id="{anchor}"' in markup_of(path), f"{place}: {link}"
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', text), place


@cache
def markup_of(page: Path) -> str:
    """The page without its scripts, which contain HTML of their own."""
    written = page.read_text(encoding="utf-8")
    return re.sub(r"(<script[^>]*>).*?</script>", r"\1", written, flags=re.DOTALL)


def an_example_in_a_docstring_keeps_its_lines(built: Path) -> None:
    shown = text_of(built / "reference" / site.reference_of("checkpointmanager.aio"))
    assert 'LEASES)) as leases:\n    await leases.put("pod-7"' in shown

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

from checkpointmanager import EventKind
from docs import names, pages, reference


def test_the_site_builds_without_a_warning_and_shows_everything(tmp_path: Path) -> None:
    out = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-W", "error", "-m", "docs", str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    # One test, because parallel workers would each build the site.
    every_page_of_the_repository_is_in_it(out)
    every_public_name_with_its_fields_is_on_the_page_of_its_module(out)
    every_event_is_explained(out)
    every_link_leads_to_a_place_of_the_site_and_none_to_a_network(out)
    an_example_in_a_docstring_keeps_its_lines(out)


@cache
def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def every_page_of_the_repository_is_in_it(site: Path) -> None:
    assert [page for page in pages.all_pages() if not (site / pages.as_site_path(page)).exists()] == []
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()


def every_public_name_with_its_fields_is_on_the_page_of_its_module(site: Path) -> None:
    for name in names.MODULES:
        shown = (site / "reference" / reference.path_of(name)).read_text(encoding="utf-8")
        exported = names.public_names(importlib.import_module(name))
        assert [own for own in exported if f'id="{own}"' not in shown and own != "damage"] == []
    for name, cls in names.public_classes().items():
        shown = text_of(site / "reference" / reference.path_of(name.rpartition(".")[0]))
        assert [field for field in names.fields_of(cls) if not re.search(rf"\b{field}\b", shown)] == []


def every_event_is_explained(site: Path) -> None:
    shown = text_of(site / "reference" / reference.path_of("checkpointmanager"))
    beginnings = [" ".join(said.split()[:3]) for said in names.fields_of(EventKind).values()]
    assert [beginning for beginning in beginnings if beginning not in shown] == []


def every_link_leads_to_a_place_of_the_site_and_none_to_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text, place = markup_of(page), page.relative_to(site).as_posix()
        for link in re.findall(r'(?:href|src)="([^"]+)', text):
            if re.match(r"(https?:|mailto:|data:)", link):
                continue
            target, _, anchor = html.unescape(link).partition("#")
            path = site / posixpath.normpath(posixpath.join(posixpath.dirname(place), target)) if target else page
            assert path.is_file(), f"{place}: {link}"
            assert not anchor or f'id="{anchor}"' in markup_of(path), f"{place}: {link}"
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', text), place


@cache
def markup_of(page: Path) -> str:
    """The page without its scripts, which contain HTML of their own."""
    written = page.read_text(encoding="utf-8")
    return re.sub(r"(<script[^>]*>).*?</script>", r"\1", written, flags=re.DOTALL)


def an_example_in_a_docstring_keeps_its_lines(site: Path) -> None:
    shown = text_of(site / "reference" / reference.path_of("checkpointmanager.aio"))
    assert "def make():\n    return CheckpointCache(" in shown

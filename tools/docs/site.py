"""One static site of everything: the pages at their own paths, the reference beside them."""

from __future__ import annotations

import os
import posixpath
import shutil
from pathlib import Path

import pdoc.render
from pygments.formatters import HtmlFormatter

from . import commands, names, pages, reference
from .pages import ROOT

TEMPLATES = Path(__file__).parent / "templates"
INDEX = "tools/docs/README.md"  # its links give the order of the menu
START = {"README.md": "Overview", INDEX: "All pages"}
GROUPS: dict[str, tuple[str, ...]] = {
    "Guides": ("tools/docs/guides/",),
    "Concepts": ("tools/docs/concepts/", "tools/docs/stability.md"),
    "Manuals": (),  # all others
    "Contributing": (".github/", "tests/"),
}


def build(out: Path) -> int:
    """Write the site to a folder, in place of what was there, and return the number of its pages."""
    if out.exists() and any(out.iterdir()) and not (out / "style.css").exists():
        raise SystemExit(f"{out}: is not empty and is no site; give another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    listed = pages.all_pages()
    pdoc.render.configure(docformat="markdown", show_source=False, template_directory=TEMPLATES)
    pdoc.render.env.globals["menu"] = menu(listed)
    dark = HtmlFormatter(style="github-dark").get_style_defs(".pdoc-code")
    style = pdoc.render.env.get_template("style.css").render(dark_code=dark)
    (out / "style.css").write_text(style, encoding="utf-8")
    for page in listed:
        _write(out, _place(page), pages.title_of(page), (ROOT / page).read_text(encoding="utf-8"))
        _copy_what_it_links(out, page)
    _write(out, f"{reference.FOLDER}/events.html", "Events", reference.events_as_markdown())
    _write(out, f"{reference.FOLDER}/errors.html", "Errors", reference.errors_as_markdown())
    _write(out, f"{reference.FOLDER}/commands.html", "Commands", commands.as_markdown())
    return len(listed) + len(reference.ENTRIES) + reference.write_modules(out)


def menu(listed: list[str]) -> dict[str, dict[str, str]]:
    """The groups of the menu: in each the pages by their path in the site, with their titles."""
    linked = [
        posixpath.normpath(posixpath.join(posixpath.dirname(INDEX), link.target)) for link in pages.links_of(INDEX)
    ]
    groups: dict[str, dict[str, str]] = {name: {} for name in ("", *GROUPS)}
    groups[""] = {_place(page): title for page, title in START.items()}
    for page in sorted(listed, key=lambda page: linked.index(page) if page in linked else len(linked)):
        if page not in START:
            groups[_group(page)][_place(page)] = pages.title_of(page)
    modules = {reference.path_of(name): name for name in names.MODULES}
    groups["Reference"] = reference.ENTRIES | modules
    return groups


def _group(page: str) -> str:
    return next((name for name, folders in GROUPS.items() if page.startswith(folders)), "Manuals")


def _place(page: str) -> str:
    return "index.html" if page == "README.md" else pages.as_site_path(page)


def _write(out: Path, place: str, title: str, markdown: str) -> None:
    path = out / place
    path.parent.mkdir(parents=True, exist_ok=True)
    root = "../" * place.count("/")
    html = pages.as_html(markdown)
    if place != "index.html":  # the only page with another name here than in the repository
        html = html.replace(f'href="{root}README.html', f'href="{root}index.html')
    template = pdoc.render.env.get_template("page.html.jinja2")
    path.write_text(template.render(title=title, body=html, root=root, place=place), encoding="utf-8")


def _copy_what_it_links(out: Path, page: str) -> None:
    """Pictures and sources go to the same place in the site, so that links to them hold."""
    for link in pages.links_of(page):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.target))
        if link.target and not path.endswith(".md") and (ROOT / path).is_file():
            os.makedirs(os.path.dirname(out / path), exist_ok=True)
            shutil.copyfile(ROOT / path, out / path)

"""One static site: every page of the repository at its own path, and pdoc's pages of the public modules beside them."""

from __future__ import annotations

import importlib
import posixpath
import shutil
import warnings
from html import escape
from pathlib import Path

import pdoc.doc
import pdoc.render

from . import names, pages
from .pages import ROOT

STYLE = Path(__file__).with_name("style.css")
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}style.css">
<nav><a href="{root}index.html">Overview</a> · <a href="{root}tools/docs/README.html">All pages</a> ·
<a href="{root}reference/index.html">API reference</a></nav>
<main>{body}</main>
</html>
"""


def build(out: Path) -> int:
    """Write the site to a folder, in place of what was there, and return the number of its pages."""
    if out.exists() and any(out.iterdir()) and not (out / STYLE.name).exists():
        raise SystemExit(f"{out}: is not empty and is no site; give another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copyfile(STYLE, out / STYLE.name)
    listed = pages.all_pages()
    for page in listed:
        _write(out, page)
        _copy_what_it_links(out, page)
    shutil.copyfile(out / "README.html", out / "index.html")
    return len(listed) + _write_reference(out / "reference")


def _write(out: Path, page: str) -> None:
    path = out / pages.as_site_path(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = pages.as_html((ROOT / page).read_text(encoding="utf-8"))
    text = PAGE.format(title=escape(pages.title_of(page)), root="../" * page.count("/"), body=body)
    path.write_text(text, encoding="utf-8")


def _copy_what_it_links(out: Path, page: str) -> None:
    """Pictures and sources go to the same place in the site, so that links to them hold."""
    for link in pages.links_of(page):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.target))
        if link.target and not path.endswith(".md") and (ROOT / path).is_file():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, out / path)


def _write_reference(folder: Path) -> int:
    """Write pdoc's page of each public module, their index and the search; return how many modules there are."""
    pdoc.render.configure(docformat="markdown", show_source=False)
    with warnings.catch_warnings():  # pdoc looks up types where a class is exported, not where it is defined
        warnings.simplefilter("ignore", UserWarning)
        modules = {name: _documented(name) for name in names.MODULES}
        for name, module in modules.items():
            page = folder / reference_of(name)
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")
    return len(modules)


def reference_of(module: str) -> str:
    """The page of a module, below the folder of the reference."""
    return f"{module.replace('.', '/')}.html"


def _documented(name: str) -> pdoc.doc.Module:
    loaded = importlib.import_module(name)
    vars(loaded).update(names.public_names(loaded))  # some are imported only when they are used
    module = pdoc.doc.Module(loaded)
    module.docstring = names.tables_as_lists(module.docstring)
    for member in module.members.values():
        if isinstance(member, pdoc.doc.Class):
            member.docstring = names.tables_as_lists(names.docstring_of(member.obj))
        else:
            member.docstring = names.tables_as_lists(member.docstring)
    return module

"""The Markdown pages of the repository: which there are, their headings, links and code, and their HTML."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent.parent


class Link(NamedTuple):
    """A link or picture of a page."""

    target: str  # as it is written, without the anchor
    anchor: str  # without the "#"; "" if there is none


def all_pages() -> list[str]:
    """Every Markdown page of the repository, as a path from its top."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    if not listed:  # not a git checkout, such as an exported tree
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md") if ".venv" not in path.parts]
    return sorted(path for path in listed if (ROOT / path).exists())


@cache
def tokens_of(page: str) -> tuple[Token, ...]:
    """The parsed page."""
    return tuple(_parser().parse((ROOT / page).read_text(encoding="utf-8")))


def title_of(page: str) -> str:
    """The first heading of a page."""
    return next((text for _, text in _headings(tokens_of(page))), page)


def anchors_of(page: str) -> set[str]:
    """The anchors that links may name: the headings as GitHub spells them, and ids in HTML."""
    written = re.findall(r'\bid="([^"]+)"', (ROOT / page).read_text(encoding="utf-8"))
    return {*_slugs(tokens_of(page)).values(), *written}


def links_of(page: str) -> Iterator[Link]:
    """The links and pictures that stay inside the repository."""
    for token in _inline(tokens_of(page)):
        written = token.attrs.get("href") or token.attrs.get("src") if token.type in ("link_open", "image") else None
        targets = re.findall(r'(?:src|srcset|href)="([^"]+)"', token.content) if token.type.startswith("html_") else []
        for target in [str(written)] if written else targets:
            if not re.match(r"[a-z]+:", target):
                path, _, anchor = target.partition("#")
                yield Link(path, anchor)


def blocks_of(page: str, language: str) -> list[str]:
    """The code blocks of a page that are in a language."""
    return [token.content for token in tokens_of(page) if token.type == "fence" and token.info.strip() == language]


def as_html(markdown: str) -> str:
    """Markdown as HTML, with links to pages changed to links to their HTML, and an anchor at each heading."""
    parser = _parser()
    tokens = parser.parse(markdown)
    for opening, slug in _slugs(tokens).items():
        tokens[opening].attrSet("id", slug)
    for token in _inline(tokens):
        if token.type == "link_open" and not re.match(r"[a-z]+:", str(token.attrs["href"])):
            token.attrSet("href", as_site_path(str(token.attrs["href"])))
    return str(parser.renderer.render(tokens, parser.options, {}))


def as_site_path(target: str) -> str:
    """Where a file of the repository is in the site, relative or from the top."""
    path, mark, anchor = target.partition("#")
    if path.endswith(".md"):
        path = path.removesuffix(".md") + ".html"
    elif path and (path.endswith("/") or "." not in path.rpartition("/")[2]):  # a folder: its page
        path = path.rstrip("/") + "/README.html"
    return path + mark + anchor


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _inline(tokens: tuple[Token, ...] | list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _headings(tokens: tuple[Token, ...] | list[Token]) -> Iterator[tuple[int, str]]:
    """Each heading: the number of its opening token, and its text without marks."""
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            children = tokens[number + 1].children or []
            yield number, "".join(child.content for child in children if child.type in ("text", "code_inline"))


def _slugs(tokens: tuple[Token, ...] | list[Token]) -> dict[int, str]:
    """The anchor of each heading as GitHub makes it: lower case, dashes, and a number where it repeats."""
    slugs: dict[int, str] = {}
    for number, text in _headings(tokens):
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in slugs.values())
        slugs[number] = f"{slug}-{again}" if again else slug
    return slugs

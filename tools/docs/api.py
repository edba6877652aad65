"""The page api.md: every public name with its signature and what the source says about it, as Markdown.

Signatures come from the source, so the page is the same on every Python.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

from . import names

PAGE = Path(__file__).with_name("api.md")
OPENING = """# API

Every public name: what it is, its signature, its methods and fields. `help(name)` says more about a method. The page is
generated from the docstrings (`tools/docs/build --api`), and a test keeps it current.
"""


def text() -> str:
    """The whole page."""
    sections = [OPENING]
    described: set[int] = set()  # a class that two modules export appears once
    for name in names.MODULES:
        module = importlib.import_module(name)
        sections.append(f"## {name}\n\n{_first(module.__doc__)}\n")
        for own, value in sorted(names.public_names(module).items(), key=lambda item: item[0].lower()):
            if id(value) not in described and not isinstance(value, ModuleType):
                described.add(id(value))
                sections.append("\n".join(_described(module, own, value)) + "\n")
    return "\n".join(sections)


def _described(module: ModuleType, name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if inspect.isclass(value):
        constructor: Any = vars(value).get("__init__")
        # Errors are not for others to make, and what a dataclass generates says no more than its fields.
        if _is_written(constructor, value) and not issubclass(value, BaseException):
            yield from (f"    {line}" for line in _signatures(constructor, called=name))
            yield ""
        yield names.tables_as_lists(names.docstring_of(value))
        yield from _members(value)
    elif inspect.isfunction(inspect.unwrap(value)):
        yield from (f"    {line}" for line in _signatures(value))
        yield f"\n{names.tables_as_lists(inspect.getdoc(value) or '')}"
    else:
        yield names.value_doc(module, name)


def _members(cls: type) -> Iterator[str]:
    """A list of the fields that the docstring does not explain, and of the methods."""
    explained = names.tables_as_lists(names.docstring_of(cls))
    listed = [
        f"- `{field}`: {_one_line(said)}" if said else f"- `{field}`"
        for field, said in names.fields_of(cls).items()
        if f"**{field}**" not in explained and (said or not names.is_mentioned(cls, field))
    ]
    for name, said in names.methods_of(cls).items():
        member = vars(cls)[name]
        if isinstance(member, property):
            listed.append(f"- `{name}`: {_first(said)}")
        else:
            signatures = _signatures(getattr(member, "__func__", member))
            listed.append(f"- {', '.join(f'`{each}`' for each in signatures)}: {_first(said)}".removesuffix(": "))
    if listed:
        yield ""
        yield from listed


def _is_written(function: Any, cls: type) -> bool:
    return inspect.isfunction(function) and function.__code__.co_filename == inspect.getsourcefile(cls)


def _signatures(function: Callable[..., Any], called: str = "") -> list[str]:
    """How a function is called: one line, or one for each overload."""
    return [_signature(each, called) for each in get_overloads(function) or [function]]


def _signature(function: Callable[..., Any], called: str) -> str:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = re.sub(r"^(self|cls)(, /)?(, |$)", "", ast.unparse(node.args))
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and not called else ""
    awaited = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{awaited}{called or node.name}({arguments}){returned}"


def _first(docstring: str | None) -> str:
    """The first paragraph of a docstring."""
    return _one_line(inspect.cleandoc(docstring or "").partition("\n\n")[0])


def _one_line(said: str) -> str:
    return " ".join(said.split())

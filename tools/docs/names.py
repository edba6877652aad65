"""The public names, and what the source says about each of them: docstrings, and comments beside fields.

The tests ask it what is undocumented, and the site shows what it finds.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, is_typeddict

LIBRARIES = ("checkpointmanager", "draState")
MODULES = (
    "checkpointmanager",
    "checkpointmanager.aio",
    "checkpointmanager.etcd",
    "checkpointmanager.format",
    "checkpointmanager.metrics",
    "checkpointmanager.testing",
    "checkpointmanager.testing.damage",
    "draState",
    "draState.aio",
    "draState.kubelet",
    "draState.metrics",
    "draState.plugin",
    "draState.plugin.rehearsal",
)
# What a class does because a protocol asks for it is documented at the protocol.
PROTOCOLS = ("Store", "MetricsSink")


def public_names(module: ModuleType) -> dict[str, Any]:
    """Every name that a module exports, with its value."""
    exported = getattr(module, "__all__", None)
    if exported is None:  # a module of functions, such as testing.damage
        exported = [name for name, value in vars(module).items() if _is_made_in(module, name, value)]
    return {name: getattr(module, name) for name in exported}


@cache
def public_classes() -> dict[str, type]:
    """Every public class under its full name, each once."""
    found: dict[type, str] = {}
    for name in MODULES:
        for own, value in public_names(importlib.import_module(name)).items():
            if inspect.isclass(value):
                found.setdefault(value, f"{name}.{own}")
    return {name: value for value, name in found.items()}


def methods_of(cls: type) -> dict[str, str]:
    """The public methods and properties that a class defines, each with its docstring or its protocol's."""
    found = {}
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        found[name] = inspect.getdoc(function) or inspect.getdoc(getattr(cls, name)) or _of_protocol(cls, name)
    return found


def fields_of(cls: type) -> dict[str, str]:
    """The public fields, members and attributes of a class, each with what the source says about it, or ""."""
    found: dict[str, str] = {}
    for base in reversed(_bases(cls)):
        for name, said in _fields_in_source(base):
            found[name] = said or found.get(name, "") or _in_table(cls.__doc__, name)
    if issubclass(cls, enum.Enum):
        return {member.name: found.get(member.name, "") for member in cls}
    if dataclasses.is_dataclass(cls):
        made = {field.name for field in dataclasses.fields(cls)}
        found = {name: said for name, said in found.items() if name in made}
    own = [name for name in found if not name.startswith("_") and not hasattr(BaseException, name)]
    return {name: found[name] or _of_protocol(cls, name) for name in own}


def value_doc(module: ModuleType, name: str) -> str:
    """What the source says about a public value that is neither class nor function, where it is assigned."""
    homes = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ImportFrom)]
    home = next((node for node in homes if name in {alias.name for alias in node.names}), None)
    if home:
        package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
        return value_doc(importlib.import_module("." * home.level + (home.module or ""), package), name)
    source = inspect.getsource(module)
    comments = _comments(source)
    return next((said for own, said in _assigned(ast.parse(source).body, comments) if own == name), "")


def is_mentioned(cls: type, name: str) -> bool:
    """Whether a docstring of the class, or of one that it derives from, speaks of the name."""
    texts = [base.__doc__ or "" for base in _bases(cls)]
    return any(re.search(rf"\b{name}\b", text) for text in texts)


def docstring_of(cls: type) -> str:
    """The docstring of a class. Code keeps its indentation even if nothing else follows the first line."""
    written = inspect.getdoc(cls) or ""
    first, _, rest = written.partition("\n\n")
    is_code = first.endswith(":") and not rest.startswith((" ", "- ")) and tables_as_lists(rest) == rest
    return f"{first}\n\n{textwrap.indent(rest, ' ' * 4)}" if is_code else written


def tables_as_lists(docstring: str) -> str:
    """Lines like `name    what it is`, which a terminal shows as a table, as a list in Markdown."""
    lines: list[str] = []
    in_table = False
    for line in docstring.splitlines():
        if row := re.fullmatch(r"(\w[\w, ]*?) {2,}(\S.*)", line):
            if lines and lines[-1] and not in_table:
                lines.append("")
            lines.append(f"- **{row[1]}**: {row[2]}")
            in_table = True
        elif in_table and re.match(r" {8,}\S", line):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
            in_table = False
    return "\n".join(lines)


def _is_made_in(module: ModuleType, name: str, value: Any) -> bool:
    return not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__


def _bases(cls: type) -> list[type]:
    """The class and those it derives from, as far as they are ours."""
    bases: list[type] = [*cls.__mro__]
    if is_typeddict(cls):  # which keeps no trace of its bases in the method resolution order
        bases += [base for base in getattr(cls, "__orig_bases__", ()) if is_typeddict(base)]
    return [base for base in bases if base.__module__.split(".")[0] in LIBRARIES]


def _of_protocol(cls: type, name: str) -> str:
    library = importlib.import_module("checkpointmanager")
    for protocol in (getattr(library, each) for each in PROTOCOLS):
        wanted = {each for each in vars(protocol) if not each.startswith("_")}
        if cls is protocol or not wanted <= set(dir(cls)):
            continue
        if name in wanted:
            return inspect.getdoc(getattr(protocol, name)) or ""
        if said := dict(_fields_in_source(protocol)).get(name):
            return said
    return ""


def _in_table(docstring: str | None, name: str) -> str:
    row = re.search(rf"^ *{name} {{2,}}(\S.*)$", docstring or "", flags=re.MULTILINE)
    return row[1] if row else ""


@cache
def _fields_in_source(cls: type) -> list[tuple[str, str]]:
    """What is assigned or annotated in the body of a class, or to self in __init__."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    comments = _comments(source)
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = [*_assigned(body.body, comments)]
    for node in body.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            statements = [each for each in ast.walk(node) if isinstance(each, ast.stmt)]
            found += _assigned(statements, comments, of="self")
    return found


def _assigned(body: Sequence[ast.stmt], comments: dict[int, str], of: str = "") -> Iterator[tuple[str, str]]:
    """The names that statements assign, or the attributes `of` a name; with the string or comment beside each."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign | ast.Assign):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        said = _string(after) or comments.get(node.end_lineno or 0, "")
        if not of and isinstance(target, ast.Name):
            yield target.id, said
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == of:
            yield target.attr, said


def _string(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _comments(source: str) -> dict[int, str]:
    """The comment on each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}

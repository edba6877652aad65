"""The reference of the API: pdoc's pages of the public modules.

pdoc reads docstrings. What comments say beside a field is added here, from `names`.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pdoc.doc
import pdoc.render

from . import names


def path_of(module: str) -> str:
    """The page of a module, below the folder of the reference."""
    return f"{module.replace('.', '/')}.html"


def write(folder: Path) -> int:
    """Write the page of each public module, the index and the search; return how many modules there are."""
    pdoc.render.configure(docformat="markdown", show_source=False)
    modules = {name: _documented(name) for name in names.MODULES}
    for name, module in modules.items():
        page = folder / path_of(name)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")
    return len(modules)


def _documented(name: str) -> pdoc.doc.Module:
    """A module as pdoc sees it, with what `names` knows about fields and values added."""
    loaded = importlib.import_module(name)
    exported = names.public_names(loaded)
    vars(loaded).update(exported)  # some are imported only when they are used, and pdoc would not find those
    module = pdoc.doc.Module(loaded)
    module.docstring = names.tables_as_lists(module.docstring)
    for member in module.members.values():
        if isinstance(member, pdoc.doc.Class):
            _add_fields(member)
        elif isinstance(member, pdoc.doc.Function):
            member.docstring = names.tables_as_lists(member.docstring)
        elif isinstance(member, pdoc.doc.Variable):
            member.docstring = member.docstring or names.value_doc(loaded, member.name)
    return module


def _resolve_annotations(cls: type) -> None:
    """Give a generated constructor real types: pdoc would look for their names where the class is exported."""
    if not dataclasses.is_dataclass(cls) and not hasattr(cls, "_fields"):  # which a NamedTuple has
        return
    constructor: Any = getattr(cls, "__init__" if dataclasses.is_dataclass(cls) else "__new__")
    for base in cls.__mro__:
        for name, annotation in vars(base).get("__annotations__", {}).items():
            written = getattr(annotation, "__forward_arg__", annotation)
            if name in constructor.__annotations__ and isinstance(written, str):
                with suppress(NameError):  # imported for type checkers only
                    constructor.__annotations__[name] = eval(written, vars(sys.modules[base.__module__]))


def _add_fields(cls: pdoc.doc.Class) -> None:
    _resolve_annotations(cls.obj)
    fields, methods = names.fields_of(cls.obj), names.methods_of(cls.obj)
    with warnings.catch_warnings():  # pdoc is not sure of what a TypedDict inherits, and shows it where we want it
        warnings.filterwarnings("ignore", "Cannot determine where .* is taken from")
        members = cls.members
    for name, member in members.items():
        member.docstring = names.tables_as_lists(fields.get(name) or methods.get(name) or member.docstring)
    # pdoc would leave these out, because our classes live in private modules.
    cls.own_members += [
        member
        for (module, _), inherited in cls.inherited_members.items()
        for member in inherited
        if module.split(".")[0] in names.LIBRARIES and not member.name.startswith("_")
    ]
    cls.docstring = _with_fields(cls.obj, shown={member.name for member in cls.own_members})


def _with_fields(cls: type, shown: set[str] | None = None) -> str:
    """The docstring of a class, with a list of those fields that it does not name itself and that are not `shown`."""
    written = names.docstring_of(cls)
    listed = [
        f"- **{name}**: {said}" if said else f"- **{name}**"
        for name, said in names.fields_of(cls).items()
        if name not in (shown or ()) and not re.search(rf"\b{name}\b", written)
    ]
    return "\n\n".join([names.tables_as_lists(written), *(["\n".join(listed)] if listed else [])])

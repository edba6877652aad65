"""Objects are built as their class builds them, by its __init__ or, where that only assigns, slot by slot."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from checkpointmanager import Schema, SharedText

from .files import loaded, mismatch, stored


@dataclass
class Plain:
    name: str
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited(Slotted):
    colour: str | None = None


@dataclass(slots=True)
class Mutable:
    name: str
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Validated:
    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name is needed")


@dataclass(slots=True)
class OwnInit:
    name: str

    def __init__(self, name: str) -> None:
        self.name = name.lower()


@dataclass(frozen=True, slots=True)
class OwnNew:
    name: str

    def __new__(cls, name: str) -> typing.Self:
        raise PermissionError("not like this")


@dataclass(frozen=True, slots=True)
class Odd:
    """Names that the source of a codec uses itself."""

    cls: str
    value: str
    plain: int
    v0: int
    new: bool
    unknowns: str | None = None
    self: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    children: tuple[Tree, ...] = ()
    parent: Tree | None = None


@pytest.mark.parametrize(
    "value",
    [
        Plain("a", [1]),
        Frozen("a", (1,)),
        Slotted("a", (1,)),
        Inherited("a", (1,), "red"),
        Mutable("a", [1]),
        Keywords(name="a", sizes=(1,)),
        Validated("a"),
        OwnInit("a"),
        Odd("a", "b", 1, 2, new=True, unknowns=None, self="c"),
        Empty(),
        Tree("root", (Tree("leaf"), Tree("branch", (Tree("twig"),))), Tree("seed")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_comes_back_as_it_was(value: Any) -> None:
    schema: Schema[Any] = Schema("Object", type=type(value))
    back = loaded(schema, stored(schema, value))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("cls", [Plain, Frozen, Slotted, Inherited, Mutable, Keywords])
def test_what_is_missing_has_its_default_and_every_object_its_own(cls: Any) -> None:
    schema: Schema[Any] = Schema("Object", type=cls)
    one, other = (loaded(schema, b'{"name":"a"}') for _ in range(2))
    assert one == other == cls(name="a")
    if isinstance(one.sizes, list):
        assert one.sizes is not other.sizes


@dataclass
class Shy:
    name: str

    def __getattribute__(self, name: str) -> Any:
        if name == "name":
            raise PermissionError("not for you")
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("cls", "data", "by"),
    [
        (Validated, b'{"name":""}', "Validated with ValueError"),
        (OwnNew, b'{"name":"a"}', "OwnNew with PermissionError"),
        (Shy, b'{"name":"a","more":1}', "its type with PermissionError"),  # read, to find out what is unknown
    ],
)
def test_an_object_that_its_class_refuses_is_a_mismatch(cls: Any, data: bytes, by: str) -> None:
    assert mismatch(Schema("Object", type=cls), data).why == f"is refused by {by}"


def test_members_are_stored_in_the_order_of_the_class() -> None:
    data = stored(Schema("Object", type=Inherited), Inherited("a"))
    assert list(orjson.loads(data)) == ["name", "sizes", "colour"]


@dataclass(frozen=True, slots=True)
class Labelled:
    label: SharedText
    labels: tuple[SharedText, ...] = ()


def test_shared_text_is_kept_once_and_is_plain_text_otherwise() -> None:
    schema: Schema[Labelled] = Schema("Object", type=Labelled)
    value = Labelled("training job", ("training job", "batch job"))
    one, other = (loaded(schema, stored(schema, value)) for _ in range(2))
    assert one == other == value
    assert one.label is other.label is one.labels[0] is other.labels[0]
    assert one.labels[1] is other.labels[1]


@pytest.mark.parametrize("data", [b'{"label":1}', b'{"label":"a","labels":[null]}'])
def test_shared_text_must_be_text(data: bytes) -> None:
    assert mismatch(Schema("Object", type=Labelled), data).why.endswith("not str")

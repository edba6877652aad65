"""A frozen shape notices each change of a schema, says what it does to files already written, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime, timedelta
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal, NewType, Optional
from uuid import UUID

import pytest

from checkpointmanager import CheckpointManager, Schema, SchemaMismatch, SharedText, unknown_fields
from checkpointmanager.testing import BaselineChanged, check_baseline

Name = NewType("Name", str)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = -1
    HIGH = 1


@dataclass
class Port:
    number: int
    color: Color = Color.RED


@dataclass
class Lease:
    holder: str
    renewals: int = 0
    ports: tuple[Port, ...] = ()
    rest: Any = unknown_fields()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The baseline of version 1 of Lease."""
    baseline = tmp_path / "lease.json"
    check_baseline(lease(Lease), baseline, update=True)
    return baseline


def lease(cls: Any, version: int = 1, **options: Any) -> Schema[Any]:
    return Schema("Lease", version, type=cls, **options)


def changed(name: str = "Lease", *, without: str = "", **fields: Any) -> type:
    """Lease with other fields: a type for a required one, a type and a default for another."""
    kept = {"holder": str, "renewals": (int, 0), "ports": (tuple[Port, ...], ())} | fields
    kept.pop(without, None)
    made = [(key, value) if not isinstance(value, tuple) else (key, value[0], value[1]) for key, value in kept.items()]
    return make_dataclass(name, sorted(made, key=len))


def test_the_same_shape_passes_and_the_file_stays(path: Path) -> None:
    before = path.read_bytes()

    check_baseline(lease(Lease), path)
    check_baseline(lease(changed()), path, update=True)

    assert path.read_bytes() == before


def test_the_file_holds_types_and_defaults_of_persisted_fields(path: Path) -> None:
    assert json.loads(path.read_text()) == {
        "kind": "Lease",
        "version": 1,
        "type": "Lease",
        "classes": {
            "Lease": {
                "holder": {"type": "str", "default": "required"},
                "renewals": {"type": "int", "default": "0"},
                "ports": {"type": "tuple[Port, ...]", "default": "()"},
            },
            "Port": {
                "number": {"type": "int", "default": "required"},
                "color": {"type": "Color['red', 'blue']", "default": "<Color.RED: 'red'>"},
            },
        },
    }


def test_the_default_of_a_factory_is_its_name(tmp_path: Path) -> None:
    cls = make_dataclass("Lease", [("ports", tuple[Port, ...], field(default_factory=some_ports))])
    check_baseline(lease(cls), tmp_path / "b.json", update=True)
    fields = json.loads((tmp_path / "b.json").read_text())["classes"]["Lease"]
    assert fields["ports"]["default"] == "made by some_ports"


def some_ports() -> tuple[Port, ...]:
    raise AssertionError("may make another value each time")


def test_without_a_baseline_it_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(BaselineChanged, match=r"no baseline yet.*update=True, and commit") as raised:
        check_baseline(lease(Lease), tmp_path / "new.json")
    assert not raised.value.breaks
    assert not (tmp_path / "new.json").exists()


HARMLESS = "files already written load as before"
FOR_OLDER = "files already written load, but programs with the frozen shape cannot read new ones"
UNREAD = "files already written load, but what they hold there is no longer read"
BREAK = "files already written do not load"

CHANGES: dict[str, tuple[type, str]] = {
    "an optional field": (
        changed(note=(str | None, None)),
        f"Lease.note: added as str | None, with a default; {HARMLESS}",
    ),
    "a required field": (changed(note=str), f"Lease.note: added as str, without a default; {BREAK}"),
    "a removed field": (changed(without="renewals"), f"Lease.renewals: removed; {UNREAD}"),
    "another type": (changed(holder=int), f"Lease.holder: changed from str to int; {BREAK}"),
    "a wider type": (changed(holder=str | None), f"Lease.holder: changed from str to str | None; {FOR_OLDER}"),
    "the same in JSON": (
        changed(ports=(list[Port], ())),
        f"Lease.ports: changed from tuple[Port, ...] to list[Port]; {HARMLESS}",
    ),
    "another default": (changed(renewals=(int, 1)), f"Lease.renewals: default changed from 0 to 1; {HARMLESS}"),
    "a new default": (changed(holder=(str, "x")), f"Lease.holder: default changed from required to 'x'; {HARMLESS}"),
    "a lost default": (changed(renewals=int), f"Lease.renewals: default changed from 0 to required; {BREAK}"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_named_with_what_it_does_to_files(change: str, path: Path) -> None:
    cls, line = CHANGES[change]
    with pytest.raises(BaselineChanged) as raised:
        check_baseline(lease(cls), path)
    assert raised.value.changes == (line,)
    assert str(raised.value).startswith(f"{path}: the persisted shape of Lease version 1 has changed:\n  {line}\n")


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_says_about_files_is_true_of_files(change: str, path: Path, tmp_path: Path) -> None:
    cls, line = CHANGES[change]
    Older = make_dataclass("Lease", [("holder", str)])
    with CheckpointManager(tmp_path / "state", lease(Older)) as manager:
        manager.create_checkpoint("without-defaults", Older("node-a"))
    with CheckpointManager(tmp_path / "state", lease(Lease)) as manager:
        manager.create_checkpoint("whole", Lease("node-a", 3, (Port(80, Color.BLUE),)))

    with CheckpointManager(tmp_path / "state", lease(cls)) as manager:
        problems = [type(problem) for problem in manager.load().problems.values()]

    assert (SchemaMismatch in problems) == (BREAK in line)


@pytest.mark.parametrize("change", CHANGES)
def test_only_a_harmless_change_is_written_without_a_new_version(change: str, path: Path) -> None:
    cls, line = CHANGES[change]
    before = path.read_bytes()
    if HARMLESS in line:
        check_baseline(lease(cls), path, update=True)
        check_baseline(lease(cls), path)
        return
    with pytest.raises(BaselineChanged, match=r"Give the schema version 2.*delete the baseline") as raised:
        check_baseline(lease(cls), path, update=True)
    assert raised.value.breaks
    assert ("with a migration from version 1" in str(raised.value)) == (FOR_OLDER not in line)
    assert path.read_bytes() == before


def test_a_renamed_field_is_recognised(path: Path) -> None:
    with pytest.raises(BaselineChanged) as raised:
        check_baseline(lease(changed(without="renewals", renewed=(int, 0))), path)
    removed, added = raised.value.changes
    assert removed == f"Lease.renewals: removed, or renamed to renewed; {UNREAD}"
    assert added.startswith("Lease.renewed: added as int, with a default")


def test_a_field_that_may_have_one_of_two_new_names_is_only_removed(path: Path) -> None:
    with pytest.raises(BaselineChanged) as raised:
        check_baseline(lease(changed(without="renewals", renewed=(int, 0), count=(int, 0))), path)
    assert raised.value.changes[0] == f"Lease.renewals: removed; {UNREAD}"


def test_a_renamed_class_is_no_change(path: Path) -> None:
    Gate = make_dataclass("Gate", [("number", int), ("color", Color, Color.RED)])
    Rental = changed("Rental", ports=(tuple[Gate, ...], ()))  # type: ignore[valid-type]

    check_baseline(lease(Rental), path, update=True)

    assert set(json.loads(path.read_text())["classes"]) == {"Gate", "Rental"}


def test_a_change_of_a_nested_class_is_named_by_that_class(path: Path) -> None:
    Port = make_dataclass("Port", [("number", int), ("speed", int), ("color", Color, Color.RED)])
    with pytest.raises(BaselineChanged) as raised:
        check_baseline(lease(changed(ports=(tuple[Port, ...], ()))), path)  # type: ignore[valid-type]
    assert raised.value.changes == (f"Port.speed: added as int, without a default; {BREAK}",)


def test_a_new_version_with_its_migration_is_written_when_asked(path: Path) -> None:
    newer = lease(changed(note=str), 2, migrations={1: lambda data: data | {"note": ""}})
    with pytest.raises(BaselineChanged, match=r"Lease from version 1 to 2 has changed") as raised:
        check_baseline(newer, path)
    assert not raised.value.breaks

    check_baseline(newer, path, update=True)

    check_baseline(newer, path)
    assert json.loads(path.read_text())["version"] == 2


def test_a_new_version_without_the_migration_that_files_need_is_refused(path: Path) -> None:
    with pytest.raises(BaselineChanged, match="Add a migration from version 1 to the schema") as raised:
        check_baseline(lease(changed(note=str), 2), path, update=True)
    assert raised.value.breaks


def test_a_new_version_of_the_same_shape_is_named_as_that(path: Path) -> None:
    with pytest.raises(BaselineChanged, match="from version 1 to 2 has changed:\n  nothing but the version\n"):
        check_baseline(lease(Lease, 2), path)


@pytest.mark.parametrize("cls", [changed(without="renewals"), changed(holder=str | None), changed()])
def test_a_new_version_needs_no_migration_where_old_files_load(cls: type, path: Path) -> None:
    check_baseline(lease(cls, 2), path, update=True)
    check_baseline(lease(cls, 2), path)


def test_a_version_does_not_fall_and_a_baseline_has_one_kind(path: Path) -> None:
    check_baseline(lease(Lease, 2), path, update=True)
    with pytest.raises(BaselineChanged, match="Give the schema version 2 or a later one"):
        check_baseline(lease(Lease), path, update=True)
    with pytest.raises(BaselineChanged, match="baseline of kind Lease, and the schema is of kind Claim"):
        check_baseline(Schema("Claim", type=Lease), path, update=True)


def test_a_schema_without_a_type_is_refused(tmp_path: Path) -> None:
    pair: Schema[Any] = Schema("Lease", encode=lambda value: value, decode=lambda plain: plain)
    for schema in (pair, Schema("Lease")):
        with pytest.raises(TypeError, match="no type="):
            check_baseline(schema, tmp_path / "new.json")


def test_classes_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    one, other = make_dataclass("Port", [("a", int)]), make_dataclass("Port", [("b", int)])
    check_baseline(lease(make_dataclass("Lease", [("one", one), ("other", other)])), tmp_path / "b.json", update=True)
    classes = json.loads((tmp_path / "b.json").read_text())["classes"]
    assert (set(classes["Port"]), set(classes["Port_2"])) == ({"a"}, {"b"})


@dataclass
class Node:
    children: "list[Node]" = field(default_factory=list)  # noqa: UP037


def test_a_class_may_hold_itself(tmp_path: Path) -> None:
    check_baseline(lease(Node), tmp_path / "b.json", update=True)
    fields = json.loads((tmp_path / "b.json").read_text())["classes"]["Node"]
    assert fields == {"children": {"type": "list[Node]", "default": "[]"}}


MORE = Enum("MORE", {"RED": "red", "BLUE": "blue", "GREEN": "green"})
FEWER = Enum("FEWER", {"RED": "red"})
TYPES: list[tuple[Any, Any, str]] = [
    (Color, MORE, FOR_OLDER),
    (Color, FEWER, BREAK),
    (Color, Literal["blue", "red"], HARMLESS),
    (Color, str, FOR_OLDER),
    (str, Color, BREAK),
    (Level, int, FOR_OLDER),
    (Level, float, FOR_OLDER),
    (int, float, FOR_OLDER),
    (float, int, BREAK),
    (datetime, str, FOR_OLDER),
    (str, UUID, BREAK),
    (IPv4Address, str, FOR_OLDER),
    (str, IPv4Address, BREAK),
    (IPv4Address, IPv4Interface, BREAK),
    (Path, str, FOR_OLDER),
    (Path, PurePath, ""),
    (bytes, str, FOR_OLDER),
    (timedelta, int, FOR_OLDER),
    (int, timedelta, BREAK),
    (str, Name, ""),
    (str, SharedText, ""),
    (int | None, Optional[int], ""),  # noqa: UP045
    (int | None, int, BREAK),
    (int | None, None | int | str, FOR_OLDER),
    (list[int], set[int], BREAK),
    (set[int], list[int], FOR_OLDER),
    (list[int], list[int | None], FOR_OLDER),
    (tuple[int, str], tuple[int, str | None], FOR_OLDER),
    (tuple[int, str], tuple[int], BREAK),
    (tuple[int, str], list[int | str], FOR_OLDER),
    (list[int], tuple[int, int], BREAK),
    (dict[str, int], dict[str, int | None], FOR_OLDER),
    (dict[str, int], dict[int, int], BREAK),
    (tuple[str, int], dict[str, int], BREAK),
    (dict[str, int], dict, FOR_OLDER),
    (list[int], list, FOR_OLDER),
    (Port, Any, FOR_OLDER),
    (Port, dict[str, int], BREAK),
]


@pytest.mark.parametrize(("old", "new", "effect"), TYPES)
def test_a_changed_type_is_compared_by_what_files_hold(old: Any, new: Any, effect: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    check_baseline(lease(make_dataclass("Lease", [("value", old)])), path, update=True)
    check: Callable[[], None] = lambda: check_baseline(lease(make_dataclass("Lease", [("value", new)])), path)  # noqa: E731
    if not effect:
        check()
        return
    with pytest.raises(BaselineChanged) as raised:
        check()
    (change,) = raised.value.changes
    assert change.endswith(f"; {effect}")


def test_the_type_of_a_schema_itself_may_change(tmp_path: Path) -> None:
    check_baseline(Schema("Ports", type=list[int]), tmp_path / "b.json", update=True)
    with pytest.raises(BaselineChanged, match=r"the type of Ports: changed from list\[int\] to list\[str\]"):
        check_baseline(Schema("Ports", type=list[str]), tmp_path / "b.json")


@dataclass
class Agent:
    """A field of each type that agents have, frozen in tests/data."""

    address: IPv4Address
    address6: IPv6Address
    network: IPv4Network
    network6: IPv6Network
    interface: IPv4Interface
    interface6: IPv6Interface
    socket: Path
    mount: PurePath
    relative: PurePosixPath
    routes: dict[IPv4Network, IPv4Address]
    key: bytes = b""
    lifetime: timedelta = timedelta(hours=1)


def test_the_types_of_agents_are_those_of_the_baseline() -> None:
    check_baseline(Schema("Agent", type=Agent), Path(__file__).parents[2] / "data" / "schema" / "agent.json")


@dataclass
class Grant:
    holder: str
    kind: Literal["grant"] = "grant"


@dataclass
class Pool:
    free: int
    kind: Literal["pool"] = "pool"


def test_a_union_is_frozen_with_its_tags_as_required_fields(tmp_path: Path) -> None:
    check_baseline(Schema("State", type=Grant | Pool), tmp_path / "b.json", update=True)
    frozen = json.loads((tmp_path / "b.json").read_text())
    assert frozen["type"] == "Grant | Pool"
    assert {fields["kind"]["default"] for fields in frozen["classes"].values()} == {
        "required, because it tells the types apart"
    }


def test_a_second_type_needs_a_migration_that_adds_the_tag(tmp_path: Path) -> None:
    """The default of the tag does not help: without the tag, nobody knows which type has that default."""
    Alone: Any = make_dataclass("Grant", [("holder", str)])
    state, path = tmp_path / "state", tmp_path / "b.json"
    check_baseline(Schema("State", type=Alone), path, update=True)
    with CheckpointManager(state, Schema("State", type=Alone)) as manager:
        manager.create_checkpoint("a", Alone("node-a"))

    with pytest.raises(BaselineChanged) as raised:
        check_baseline(Schema("State", 1, type=Grant | Pool), path)
    assert raised.value.changes == (
        f"the type of State: changed from Grant to Grant | Pool; {FOR_OLDER}",
        f"Grant.kind: added as Literal['grant'], without a default; {BREAK}",
    )
    with CheckpointManager(state, Schema("State", 1, type=Grant | Pool)) as manager:
        assert isinstance(manager.load().problems["a"], SchemaMismatch)

    newer = Schema("State", 2, type=Grant | Pool, migrations={1: lambda plain: plain | {"kind": "grant"}})
    check_baseline(newer, path, update=True)
    with CheckpointManager(state, newer) as manager:
        assert manager.get_checkpoint("a").data == Grant("node-a")

"""Versions: defaults, migrations, readable_by; and that no text of the data ever gets into an error."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
import pytest

from checkpointmanager import CheckpointError, CheckpointManager, MemoryStore, Schema, UnstorableValue
from checkpointmanager._schema import Misfit
from checkpointmanager.format import Damaged, Reason, TooNew

from .test_codec import Colour


@dataclass
class Lease:
    holder: str
    seconds: int = 60
    tags: list[str] = field(default_factory=lambda: ["new"])


def test_missing_fields_get_their_defaults() -> None:
    value, _ = Schema("Lease", type=Lease).decode(b'{"holder":"a"}', 1, 1)
    assert value == Lease("a", 60, ["new"])


def test_each_value_has_a_default_of_its_own() -> None:
    schema = Schema("Lease", type=Lease)
    first, second = (schema.decode(b'{"holder":"a"}', 1, 1)[0] for _ in range(2))
    assert first.tags is not second.tags


def to_2(plain: Any) -> Any:
    return {"holder": plain["name"], "minutes": plain.get("minutes", 1)}


def to_3(plain: Any) -> Any:
    return {"holder": plain["holder"], "seconds": 60 * plain["minutes"], "tags": []}


LEASES = Schema("Lease", version=3, type=Lease, migrations={1: to_2, 2: to_3})


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, b'{"name":"a","minutes":2}'),
        (2, b'{"holder":"a","minutes":2}'),
        (3, b'{"holder":"a","seconds":120,"tags":[]}'),
    ],
)
def test_each_of_3_versions_is_read_as_the_present_one(version: int, data: bytes) -> None:
    value, unknowns = LEASES.decode(data, version, 1)
    assert value == Lease("a", 120, [])
    assert unknowns is None


def test_a_version_without_migration_passes_as_it_is() -> None:
    schema = Schema("Lease", version=3, type=Lease, migrations={2: to_3})
    assert schema.decode(b'{"holder":"a","minutes":2}', 1, 1)[0] == Lease("a", 120, [])


def test_what_was_migrated_is_written_in_the_present_version() -> None:
    value, unknowns = LEASES.decode(b'{"name":"a"}', 1, 1)
    encoded = LEASES.encode(value, unknowns)
    assert (encoded.version, encoded.readable_by) == (3, 3)
    assert encoded.json == b'{"holder":"a","seconds":60,"tags":[]}'


@pytest.mark.parametrize(("version", "kept"), [(1, False), (2, False), (3, True), (4, True)])
def test_unknown_fields_are_dropped_with_older_versions_only(version: int, kept: bool) -> None:
    schema = Schema("Lease", version=3, type=Lease)
    value, unknowns = schema.decode(b'{"holder":"a","gone":1}', version, 1)
    assert (b'"gone":1' in schema.encode(value, unknowns).json) is kept


@pytest.mark.parametrize("there", [(), ("seconds",), ("tags",), ("seconds", "tags")])
def test_unknown_fields_are_noticed_whatever_else_is_missing(there: tuple[str, ...]) -> None:
    """The number of members alone does not show it: one may be missing and another one unknown."""
    whole = {"holder": "a", "seconds": 3, "tags": []}
    plain = {name: value for name, value in whole.items() if name == "holder" or name in there}
    schema = Schema("Lease", type=Lease)
    for count in range(4):
        extra = {f"unknown-{number}": number for number in range(count)}
        value, unknowns = schema.decode(orjson.dumps(plain | extra), 1, 1)
        assert (unknowns is not None) is (count > 0)
        assert extra.items() <= orjson.loads(schema.encode(value, unknowns).json).items()


@pytest.mark.parametrize(("stated", "ours", "written"), [(1, 2, 2), (2, 1, 2), (1, 1, 1)])
def test_a_file_of_this_version_keeps_the_stricter_readable_by_with_its_unknown_fields(
    stated: int, ours: int, written: int
) -> None:
    typed = Schema("Lease", version=2, readable_by=ours, type=Lease)
    foreign: Schema[Any] = Schema("Lease", version=2, readable_by=ours, encode=lambda _: {}, decode=dict)
    for schema in (typed, foreign):
        nothing_unknown = schema.encode(Lease("a")).json
        for data, expected in ((b'{"holder":"a","more":1}', written), (nothing_unknown, ours)):
            value, unknowns = schema.decode(data, 2, stated)
            assert schema.encode(value, unknowns)[1:] == (2, expected)


def test_a_migration_that_fails_is_a_misfit() -> None:
    with pytest.raises(Misfit, match=r"refused by the migration from version 1 with KeyError") as caught:
        LEASES.decode(b'{"unknown":"a"}', 1, 1)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("version", "readable_by", "readable"),
    [(1, 1, True), (2, 1, True), (2, 2, True), (3, 1, True), (3, 2, True), (3, 3, False), (9, 2, True), (9, 3, False)],
)
def test_version_2_reads_what_allows_it_to(version: int, readable_by: int, readable: bool) -> None:
    schema = Schema("Lease", version=2, type=Lease)
    if readable:
        assert schema.decode(b'{"holder":"a"}', version, readable_by)[0].holder == "a"
        return
    with pytest.raises(
        TooNew, match=f"version {version} of kind Lease, this program knows version 2, {readable_by} or later"
    ):
        schema.decode(b'{"holder":"a"}', version, readable_by)


def test_a_newer_file_that_does_not_fit_is_too_new_and_not_damaged() -> None:
    with pytest.raises(TooNew, match=r"but \$.seconds is str, not int"):
        Schema("Lease", type=Lease).decode(b'{"holder":"a","seconds":"60s"}', 2, 1)


@pytest.mark.parametrize("data", [b"", b"{", b"nan", b"NaN", b'{"a":1}x', b'"\xff"', b"[" * 2000 + b"]" * 2000])
@pytest.mark.parametrize("version", [1, 2])
def test_data_that_is_not_json_is_named_so(data: bytes, version: int) -> None:
    with pytest.raises(Damaged) as caught:
        Schema("Any").decode(data, version, 1)
    assert caught.value.reason is Reason.NOT_JSON


SECRET = "hunter2"


@dataclass
class Guarded:
    word: str

    def __post_init__(self) -> None:
        if self.word != "open":
            raise ValueError(f"wrong word {self.word}")


@dataclass
class Vault:
    word: str = SECRET
    number: int = 0
    guarded: Guarded | None = None
    uuid: UUID | None = None
    colour: Colour | None = None
    colours: dict[Colour, int] = field(default_factory=dict)
    ids: list[UUID] = field(default_factory=list)


def refuse(plain: Any) -> Vault:
    raise ValueError(f"cannot read {plain}")


def everything_shown(error: BaseException) -> str:
    """All that a log, a debugger or a crash reporter would show of an error and of its causes."""
    shown = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        shown += repr(seen) + str(seen) + repr(getattr(seen, "__dict__", ""))
        seen = seen.__cause__ or seen.__context__
    return shown


BY_TYPE = Schema("Vault", type=Vault)
BY_PAIR: Schema[Vault] = Schema("Vault", encode=lambda vault: vault.word, decode=refuse)
BY_MIGRATION = Schema("Vault", version=2, type=Vault, migrations={1: refuse})


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (BY_TYPE, f'{{"number":"{SECRET}"}}'),
        (BY_TYPE, f'{{"guarded":{{"word":"{SECRET}"}}}}'),
        (BY_TYPE, f'{{"uuid":"{SECRET}"}}'),
        (BY_TYPE, f'{{"colour":"{SECRET}"}}'),
        (BY_TYPE, f'{{"colours":{{"{SECRET}":1}}}}'),
        (BY_TYPE, f'{{"ids":["{SECRET}"]}}'),
        (BY_TYPE, f'"{SECRET}"'),
        (BY_TYPE, f'{{"word":"{SECRET}"'),
        (BY_PAIR, f'{{"word":"{SECRET}"}}'),
        (BY_MIGRATION, f'{{"word":"{SECRET}","number":"x"}}'),
    ],
)
def test_no_error_of_reading_quotes_the_data(schema: Schema[Vault], data: str, version: int) -> None:
    with pytest.raises((Damaged, TooNew, Misfit)) as caught:
        schema.decode(data.encode(), version, 1)
    assert SECRET not in everything_shown(caught.value)


def test_not_even_the_manager_quotes_the_data() -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Vault")).create_checkpoint("v", {"guarded": {"word": SECRET}})
    with pytest.raises(CheckpointError) as caught:
        CheckpointManager(store, BY_TYPE).get_checkpoint("v")
    assert SECRET not in everything_shown(caught.value)


@pytest.mark.parametrize(
    "vault",
    [
        Vault(word=SECRET + "\ud800"),
        Vault(number=SECRET),  # type: ignore[arg-type]
        Vault(colour=SECRET),  # type: ignore[arg-type]
        Vault(colours={SECRET: 1}),  # type: ignore[dict-item]
        Vault(ids=[SECRET]),  # type: ignore[list-item]
        Vault(guarded=Vault()),  # type: ignore[arg-type]
    ],
)
def test_no_error_of_writing_quotes_the_data(vault: Vault) -> None:
    with pytest.raises(UnstorableValue) as caught:
        BY_TYPE.encode(vault)
    assert SECRET not in everything_shown(caught.value)


def test_no_error_about_plain_data_quotes_it() -> None:
    for value in ({"a": (SECRET,)}, {"a": SECRET + "\udfff"}, {"a": {(SECRET,): 1}}, [{SECRET}], SECRET.encode()):
        with pytest.raises(UnstorableValue) as caught:
            Schema("Any").encode(value)
        assert SECRET not in everything_shown(caught.value)

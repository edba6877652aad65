"""The journal: a whole record always counts, a damaged one never does, and neither changes what another says.

By enumeration over a journal with one record of each kind, and against rules that are written down here once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointmanager.format import (
    BLOCK_BYTES,
    MAX_GENERATION,
    Change,
    TooNew,
    change_in,
    checksum_matches,
    is_removal,
    padded,
    padded_size,
    read_journal,
    seal,
    seal_journal,
    seal_record,
    seal_removal,
    truth,
)
from checkpointmanager.format import _journal as journal

from ..samples import HEADER, flipped, with_checksum

SINCE = datetime(2026, 11, 18, 8, 0, 0, 5, UTC)


def put(key: str, generation: int, data: object = "x") -> Change:
    return Change(key, generation, seal(HEADER._replace(key=key, generation=generation), orjson.dumps(data)))


def removal(key: str, generation: int) -> Change:
    return Change(key, generation, None)


SINGLE = [put("a", 1)]
TRANSACTION = [put("b", 3), put("pod/7 ü", 7, {"checksum": "xxh3:0123456789abcdef", "record": 1}), removal("c", 4)]
REMOVAL = [removal("a", 2)]
LATER = [put("d", 1)]
RECORDS = [SINGLE, TRANSACTION, REMOVAL, LATER]
HEADER_LINE = seal_journal(SINCE)
LINES = [seal_record(changes, number) for number, changes in enumerate(RECORDS, 1)]
JOURNAL = b"".join([HEADER_LINE, *LINES])


def changes_in(blob: bytes) -> list[list[Change]]:
    return [list(record.changes) for record in read_journal(blob).records]


def spans() -> list[tuple[int, int]]:
    """Where each line begins and ends; the first is the header's."""
    ends = list(itertools.accumulate(map(len, [HEADER_LINE, *LINES])))
    return list(zip([0, *ends], ends, strict=False))


def without(line: int) -> list[list[Change]]:
    return [changes for number, changes in enumerate(RECORDS, 1) if number != line]


def line_of(place: int) -> int:
    return next(number for number, (_, end) in enumerate(spans()) if place < end)


def test_what_was_sealed_is_read() -> None:
    content = read_journal(JOURNAL)
    assert [list(record.changes) for record in content.records] == RECORDS
    assert [record.line for record in content.records] == LINES
    assert (content.since, content.damaged, content.end) == (SINCE, 0, BLOCK_BYTES)
    assert content.by_key() == {
        "a": [SINGLE[0], REMOVAL[0]],
        "b": TRANSACTION[:1],
        "pod/7 ü": TRANSACTION[1:2],
        "c": TRANSACTION[2:],
        "d": LATER,
    }


def test_every_line_is_json_that_other_programs_can_read() -> None:
    header, _, transaction, *_ = [orjson.loads(line) for line in JOURNAL.splitlines()]
    assert (header["format"], header["journal"]) == (1, "2026-11-18T08:00:00.000005Z")
    assert [change.get("key") for change in transaction["changes"]] == ["b", "pod/7 ü", None]
    assert transaction["changes"][2] == {"removed": "c", "generation": 4}
    assert (transaction["record"], len(transaction["sizes"])) == (2, 3)


def test_every_bit_flip_costs_the_line_that_it_is_in_and_no_other() -> None:
    """Also in the newline that ends a line: the next record still counts."""
    for bit in range(8 * len(JOURNAL)):
        content = read_journal(flipped(JOURNAL, bit))
        hit = line_of(bit // 8)
        assert [list(record.changes) for record in content.records] == without(hit), bit
        assert content.since == (None if hit == 0 else SINCE), bit
        assert content.damaged >= 1, bit


def test_every_byte_set_to_nul_newline_or_brace_costs_the_line_that_it_is_in_and_no_other() -> None:
    for place, byte in itertools.product(range(len(JOURNAL)), b"\0\n{"):
        if JOURNAL[place] != byte:
            changed = JOURNAL[:place] + bytes([byte]) + JOURNAL[place + 1 :]
            assert changes_in(changed) == without(line_of(place)), (place, byte)


def test_every_truncation_keeps_exactly_the_whole_records_before_it() -> None:
    for size in range(len(JOURNAL) + 1):
        content = read_journal(JOURNAL[:size])
        whole = sum(end <= size for _, end in spans()[1:])
        assert [list(record.changes) for record in content.records] == RECORDS[:whole], size
        assert (content.damaged == 0) == (size in {0, *(end for _, end in spans())}), size


def test_every_beginning_that_is_lost_costs_the_records_in_it_only() -> None:
    for start in range(len(JOURNAL)):
        left = sum(begin >= start for begin, _ in spans()[1:])
        assert changes_in(JOURNAL[start:]) == RECORDS[len(RECORDS) - left :], start
        assert changes_in(bytes(start) + JOURNAL[start:]) == RECORDS[len(RECORDS) - left :], start


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_records_count_wherever_they_stand(order: Sequence[int]) -> None:
    blob = b"".join(padded(LINES[number]) for number in order) + HEADER_LINE
    content = read_journal(blob)
    assert [list(record.changes) for record in content.records] == [RECORDS[number] for number in order]
    assert (content.since, content.damaged) == (SINCE, 0)


def test_blanks_and_padding_are_neither_records_nor_damage() -> None:
    blob = padded(HEADER_LINE) + padded(LINES[0] + LINES[1]) + padded(LINES[2]) + b"\n" * 3 * BLOCK_BYTES
    content = read_journal(blob)
    assert (len(content.records), content.damaged, content.end) == (3, 0, 3 * BLOCK_BYTES)
    assert read_journal(b"") == (None, (), 0, 0)
    assert read_journal(b"\n" * BLOCK_BYTES) == (None, (), 0, 0)


def test_new_records_go_behind_everything_that_is_not_blank() -> None:
    torn = padded(HEADER_LINE + LINES[0]) + LINES[1][:-5]
    content = read_journal(torn + b"\n" * BLOCK_BYTES)
    assert (content.damaged, content.end) == (1, 2 * BLOCK_BYTES)
    assert changes_in(padded(torn) + LINES[2]) == [SINGLE, REMOVAL]


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_padding_fills_the_last_block(size: int) -> None:
    blob = padded(b"x" * size)
    assert len(blob) == padded_size(size) == -(-size // BLOCK_BYTES) * BLOCK_BYTES
    assert blob.rstrip(b"\n") == b"x" * size


# Newer and hostile journals


def test_a_journal_of_a_newer_release_is_refused_as_a_whole() -> None:
    newer = with_checksum(b'"format":2,"journal":"2026-11-18T08:00:00.000005Z","more":1}\n')
    with pytest.raises(TooNew, match="its journal has format 2, this release knows 1"):
        read_journal(newer + LINES[0])
    assert changes_in(flipped(newer, 8 * 60) + LINES[0]) == [SINGLE], "damage is not a newer release"


def record(body: bytes, *sizes: int) -> bytes:
    listed = b",".join(b"%d" % size for size in sizes or (len(body),))
    return with_checksum(b'"record":1,"sizes":[%b],"changes":[%b]}\n' % (listed, body))


def checkpoint(**changed: Any) -> bytes:
    """A checkpoint with a checksum that holds, and any members."""
    members = orjson.loads(SINGLE[0].blob or b"")
    del members["checksum"]
    return with_checksum(orjson.dumps(members | changed)[1:] + b"\n")[:-1]


HOSTILE = {
    "no changes": with_checksum(b'"record":1,"sizes":[],"changes":[]}\n'),
    "an empty change": record(b"", 0),
    "not json": record(b"nonsense"),
    "a number": record(b"17"),
    "a list": record(b"[]"),
    "null": record(b"null"),
    "deep": record(b"[" * 5000 + b"]" * 5000),
    "a size too small": record(checkpoint(), len(checkpoint()) - 1),
    "a size too large": record(checkpoint(), len(checkpoint()) + 1),
    "a huge size": record(checkpoint(), 9_999_999_999),
    "a size of a million digits": record(checkpoint()).replace(b"[%d]" % len(checkpoint()), b"[" + b"9" * 10**6 + b"]"),
    "one size too many": record(checkpoint(), len(checkpoint()), 0),
    "a removal without a generation": record(b'{"removed":"a"}'),
    "a removal of nothing": record(b'{"removed":"","generation":1}'),
    "a removal of a number": record(b'{"removed":7,"generation":1}'),
    "a removal of a lone surrogate": record(b'{"removed":"\\ud800","generation":1}'),
    "a removal with a name that is too long": record(b'{"removed":"' + b"k" * 201 + b'","generation":1}'),
    "a removal with the generation 0": record(b'{"removed":"a","generation":0}'),
    "a removal with the generation -1": record(b'{"removed":"a","generation":-1}'),
    "a removal with the generation 1.0": record(b'{"removed":"a","generation":1.0}'),
    "a removal with the generation true": record(b'{"removed":"a","generation":true}'),
    "a removal with the generation 2^53": record(b'{"removed":"a","generation":%d}' % (MAX_GENERATION + 1)),
    "a removal with the generation 2^64": record(b'{"removed":"a","generation":%d}' % 2**64),
    "a removal with the generation 10^400": record(b'{"removed":"a","generation":1' + b"0" * 400 + b"}"),
    "a checkpoint with the generation 2^53": record(checkpoint(generation=MAX_GENERATION + 1)),
    "a checkpoint with the generation 2^64 - 1": record(checkpoint(generation=2**64 - 1)),
    "a checkpoint with the generation 0": record(checkpoint(generation=0)),
    "a checkpoint with a generation that is text": record(checkpoint(generation="1")),
    "a checkpoint without a key": record(checkpoint(key="")),
    "a checkpoint with a number as key": record(checkpoint(key=7)),
    "a checkpoint with a key that is too long": record(checkpoint(key="k" * 201)),
    "a checkpoint with a list as kind": record(checkpoint(kind=[])),
    "a damaged checkpoint in a whole record": record(flipped(checkpoint(), 8 * 100)),
    "the first change is good, the second is not": record(checkpoint() + b",17", len(checkpoint()), 2),
    "a header without a time": with_checksum(b'"format":1,"journal":17}\n'),
    "a header with a time that is none": with_checksum(b'"format":1,"journal":"yesterday"}\n'),
    "a header with a huge format": with_checksum(b'"format":' + b"1" * 5000 + b',"journal":"x"}\n'),
    "a header that goes on": with_checksum(b'"format":1,"journal":"2026-11-18T08:00:00.000005Z"} nonsense\n'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_line_whose_checksum_holds_but_that_makes_no_sense_does_not_count(name: str) -> None:
    content = read_journal(HEADER_LINE + LINES[0] + HOSTILE[name] + LINES[2])
    assert [list(found.changes) for found in content.records] == [SINGLE, REMOVAL]
    assert (content.since, content.damaged >= 1) == (SINCE, True)


@pytest.mark.parametrize("key", ["..", "../x", "/etc/passwd", ".lock", "-rf", "a\0b", "a\nb", "%2e", "ü" * 30])
def test_any_key_can_be_journalled_and_none_breaks_a_line(key: str) -> None:
    changes = [put(key, 1), removal(key, 2)]
    assert changes_in(LINES[0] + seal_record(changes, 9) + LINES[2]) == [SINGLE, changes, REMOVAL]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader_or_the_records_around_them(noise: bytes) -> None:
    assert changes_in(LINES[0] + noise + b"\n" + LINES[2]) == [SINGLE, REMOVAL]


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
numbers = st.integers(1, MAX_GENERATION)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(names, below, max_size=4),
    max_leaves=8,
)
any_change = st.builds(put, names, numbers, json_values) | st.builds(removal, names, numbers)
any_records = st.lists(st.lists(any_change, min_size=1, max_size=4), max_size=5)


@given(any_records)
def test_any_changes_come_back_as_they_were(records: list[list[Change]]) -> None:
    blob = HEADER_LINE + b"".join(seal_record(changes, 1) for changes in records)
    assert changes_in(blob) == records
    assert read_journal(blob).damaged == 0


@given(any_change)
def test_a_file_holds_a_checkpoint_or_a_removal(change: Change) -> None:
    blob = change.blob or seal_removal(change)
    assert change_in(blob, change.key, is_previous=False) == change
    assert is_removal(blob, change.key) == (change.blob is None)
    assert not is_removal(blob, change.key + "x")
    assert change_in(blob, change.key + "x", is_previous=False) is None


def test_every_bit_flip_in_the_file_of_a_removal_is_damage() -> None:
    blob = seal_removal(removal("a", 2))
    for bit in range(8 * len(blob)):
        assert not is_removal(flipped(blob, bit), "a")
        assert change_in(flipped(blob, bit), "a", is_previous=False) is None


# Time


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the lines that are hashed."""
    sizes: list[int] = []

    def counted(blob: bytes) -> bool:
        sizes.append(len(blob))
        return checksum_matches(blob)

    monkeypatch.setattr(journal, "checksum_matches", counted)
    return sizes


def large_and_damaged() -> dict[str, bytes]:
    lines = [seal_record([put(f"key-{number}", 1, "x" * 500)], number) for number in range(2000)]
    pieces = b"".join(lines).replace(b"\n", b" ")
    return {
        "one flip in each record": b"".join(flipped(line, 8 * 400) for line in lines),
        "every newline lost": pieces,
        "every newline lost, one whole record at the end": pieces + lines[0],
        "the beginnings of records only": b"".join(line[:60] for line in lines),
        "nothing but braces": b"{" * 1_000_000,
        "nothing but the beginning of a line": b'{"checksum":"xxh3:' * 50_000,
        "nothing but NUL": bytes(1_000_000),
    }


LARGE = large_and_damaged()


@pytest.mark.parametrize("name", LARGE)
def test_damage_is_hashed_once_at_most(hashed: list[int], name: str) -> None:
    """Counted in bytes, not in seconds. A thousand records in one piece would otherwise be hashed a thousand times."""
    content = read_journal(LARGE[name])
    assert len(content.records) == name.endswith("at the end")
    assert content.damaged >= 1
    assert sum(hashed) <= len(LARGE[name])


# The rule


def brute_force(changes: Sequence[Change], files: Sequence[Change | None]) -> tuple[Change | None, Change | None]:
    """The rule of FORMAT.md, as a person would apply it: strike out all but the two highest numbers."""
    seen = [*changes, *(file for file in files if file)]
    highest = max(change.generation for change in seen)
    (current, *_) = [change for change in seen if change.generation == highest]
    if current.blob is None:
        return None, None
    lower = [change for change in seen if change.generation < highest]
    second = max((change.generation for change in lower), default=0)
    (previous, *_) = [*(change for change in lower if change.generation == second), None]
    return current, previous if previous and previous.blob else None


CHECKPOINTS = [put("k", generation) for generation in (1, 2, 3)]
GENERATIONS = [*CHECKPOINTS, *(removal("k", generation) for generation in (1, 2, 3))]


def test_the_truth_is_that_of_the_rule_for_every_small_journal_and_every_pair_of_files() -> None:
    """Journals of up to three changes, in any order. No generation is both a checkpoint and a removal."""
    checked = 0
    for length in (1, 2, 3):
        for changes in itertools.product(GENERATIONS, repeat=length):
            for files in itertools.product([None, *CHECKPOINTS], repeat=2):
                seen = {*changes, *(file for file in files if file)}
                if len({change.generation for change in seen}) == len(seen):
                    assert truth(changes, *files) == brute_force(changes, files)
                    checked += 1
    assert checked == 1473


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.permutations(range(6)))
def test_the_order_of_records_has_no_meaning(generations: list[int], order: list[int]) -> None:
    changes = [put("k", generation) for generation in generations]
    shuffled = [changes[number] for number in order if number < len(changes)]
    assert truth(changes) == truth(shuffled)

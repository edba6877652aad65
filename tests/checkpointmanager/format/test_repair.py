"""Repair returns exactly the bytes that were written; where that cannot be proved it returns nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from xxhash import xxh3_64_intdigest

from checkpointmanager.format import (
    CALL_COST,
    CHECKSUM_BYTES,
    MAX_GENERATION,
    MAX_SEARCH_BYTES,
    SearchBudget,
    generation_in,
    repair,
    seal,
)
from checkpointmanager.format import _repair as module

from ...long import times
from ..samples import HEADER, SEALED, flipped, with_checksum

BITS = 8 * len(SEALED)


def sealed_with_size(size: int) -> bytes:
    blob = seal(HEADER, b'"' + b"x" * (size - len(seal(HEADER, b'""'))) + b'"')
    assert len(blob) == size
    return blob


def test_every_one_of_2128_single_bit_flips_is_repaired_exactly() -> None:
    for bit in range(BITS):
        repaired = repair(flipped(SEALED, bit))
        assert repaired is not None
        assert repaired.blob == SEALED
        assert repaired.finding == f"bit {bit % 8} of byte {bit // 8} had flipped, and was set back"
    assert BITS == 2128


def test_no_double_flip_is_repaired() -> None:
    chance = random.Random(2)
    for _ in range(times(600, 30_000)):
        first, second = chance.sample(range(BITS), 2)
        assert repair(flipped(flipped(SEALED, first), second)) is None


def test_two_flips_within_the_first_36_bytes_are_not_repaired() -> None:
    """There an intact body proves nothing about the digest, so only one bit may differ. Every 77th pair."""
    bits = range(8 * CHECKSUM_BYTES)
    for first in bits[::7]:
        for second in bits[first + 1 :: 11]:
            assert repair(flipped(flipped(SEALED, first), second)) is None


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 4096, b"x", b"\n", SEALED, SEALED[40:]])
def test_trailing_bytes_are_cut_off(tail: bytes) -> None:
    repaired = repair(SEALED + tail)
    assert repaired is not None
    assert repaired.blob == SEALED
    assert repaired.finding == f"{len(tail)} foreign bytes cut off at the end"


@pytest.mark.parametrize(
    "layout",
    [
        {"indent": 2},
        {"indent": 2, "ensure_ascii": False},
        {"indent": "\t"},
        {"separators": (", ", ": ")},
        {"ensure_ascii": True},
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_that_was_only_reformatted_is_compacted_again(layout: dict[str, Any], end: str) -> None:
    written = seal(HEADER, orjson.dumps({"ä": [1, 2.5, 1e100, -0.0, 1 << 63, None, "\U0001f600"], "nothing": {}}))
    reformatted = (json.dumps(json.loads(written), **layout) + end).encode()

    repaired = repair(reformatted)

    assert repaired is not None
    assert repaired.blob == written
    assert repaired.finding == "the JSON was reformatted, and is compact again"


def test_a_file_that_was_reformatted_and_changed_is_not_repaired() -> None:
    document = json.loads(SEALED)
    assert repair(json.dumps(document | {"generation": document["generation"] + 1}, indent=2).encode()) is None
    assert repair(json.dumps(document, indent=2, sort_keys=True).encode()) is None


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_closing_is_put_back(missing: int) -> None:
    repaired = repair(SEALED[:-missing])
    assert repaired is not None
    assert repaired.blob == SEALED
    assert repaired.finding == f"{missing} missing bytes restored at the end"


def test_no_other_truncation_is_repaired() -> None:
    assert all(repair(SEALED[:size]) is None for size in range(len(SEALED) - 2))


def test_what_is_whole_needs_no_repair() -> None:
    assert repair(SEALED) is None
    assert repair(with_checksum(b"sealed so")) is None


def test_upper_case_in_the_digest_is_one_flip_only_where_it_is_one_letter() -> None:
    """int(digest, 16) would take capitals for the digest itself, and call the file whole."""
    letters = [index for index in range(18, 34) if SEALED[index : index + 1].isalpha()]
    assert len(letters) >= 2
    shouted = SEALED[:18] + SEALED[18:34].upper() + SEALED[34:]
    assert repair(shouted) is None


@pytest.mark.parametrize("larger", [0, 1])
def test_a_flip_in_the_body_is_searched_for_in_files_of_up_to_64_kib(larger: int) -> None:
    blob = sealed_with_size(64 * 1024 + larger)
    repaired = repair(flipped(blob, 8 * 40))
    assert (repaired.blob if repaired else None) == (None if larger else blob)


def test_a_flip_in_the_checksum_of_a_larger_file_needs_no_search() -> None:
    blob = sealed_with_size(1 << 20)
    repaired = repair(flipped(blob, 8 * 20))
    assert repaired is not None
    assert repaired.blob == blob


@pytest.mark.parametrize("blob", [b"", b"\0", b"}\n", b"\0" * 4096, SEALED[:CHECKSUM_BYTES], b"x" * 300])
def test_what_never_was_a_checkpoint_is_not_made_one(blob: bytes) -> None:
    assert repair(blob) is None


def test_the_generation_is_found_in_damaged_bytes() -> None:
    assert generation_in(flipped(SEALED, 8 * 250)) == 17
    assert generation_in(SEALED[:130]) == 17
    assert generation_in(seal(HEADER._replace(generation=MAX_GENERATION), b"{}")[:-9]) == MAX_GENERATION


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        SEALED[:100],
        b'"generation":x,',
        b'"generation":%d,' % (MAX_GENERATION + 1),
        b'"generation":' + b"9" * 19 + b",",
    ],
)
def test_no_generation_is_invented(blob: bytes) -> None:
    assert generation_in(blob) == 0


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of everything that a search for a flipped bit has hashed."""
    sizes: list[int] = []
    digest = xxh3_64_intdigest

    def counted(body: bytearray) -> int:
        sizes.append(len(body))
        return digest(body)

    monkeypatch.setattr(module, "xxh3_64_intdigest", counted)
    return sizes


def ruined(blob: bytes) -> bytes:
    return flipped(flipped(blob, 8 * 40), 8 * 41)


def test_a_search_tries_every_bit_but_those_of_the_closing(hashed: list[int]) -> None:
    assert repair(ruined(SEALED)) is None
    assert len(hashed) == 8 * (len(SEALED) - CHECKSUM_BYTES - len(b"}\n"))


def test_a_file_without_its_closing_is_not_searched_beyond_its_last_two_bytes(hashed: list[int]) -> None:
    blob = sealed_with_size(MAX_SEARCH_BYTES)
    for size in (60, 100, 5000, MAX_SEARCH_BYTES - 3):
        assert repair(blob[:size]) is None
        assert repair(blob[:size].ljust(MAX_SEARCH_BYTES, b"\0")) is None
    assert len(hashed) == 8 * 16


def test_a_cut_just_behind_the_checksum_is_no_trouble() -> None:
    for size in range(CHECKSUM_BYTES - 1, CHECKSUM_BYTES + 4):
        assert repair(SEALED[:size]) is None


def test_a_budget_pays_for_a_whole_search_or_for_none(hashed: list[int]) -> None:
    searched = len(SEALED) - CHECKSUM_BYTES - 2
    cost = 8 * searched * (searched + CALL_COST)

    assert repair(flipped(SEALED, 8 * 60), SearchBudget(cost - 1)) is None
    assert hashed == []
    budget = SearchBudget(2 * cost)
    assert repair(ruined(SEALED), budget) is None
    assert repair(flipped(SEALED, 8 * 60), budget) is not None
    assert repair(flipped(SEALED, 8 * 60), budget) is None, "the budget is spent"


def test_what_needs_no_search_needs_no_budget(hashed: list[int]) -> None:
    for damaged in (SEALED + b"x", SEALED[:-1], SEALED[:-2], flipped(SEALED, 8 * 20)):
        repaired = repair(damaged, SearchBudget(0))
        assert repaired is not None
        assert repaired.blob == SEALED
    assert hashed == []

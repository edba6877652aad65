"""Which strings are keys, and the names that they get. That every operation checks its key: test_bad_keys.py."""

from __future__ import annotations

import string
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointmanager import InvalidKey, check_key
from checkpointmanager.format import decode_key, encode_key, is_key, is_name
from tests.long import sample

ENDS = string.ascii_letters + string.digits
PLAIN = ENDS + "-_."


SURROGATES = range(0xD800, 0xE000)
POINTS = [*range(0x800), *SURROGATES, *sample(range(0x110000), 97)]


def test_every_character_alone_is_a_key_unless_it_is_a_surrogate() -> None:
    assert {point for point in POINTS if not is_key(chr(point))} == {*SURROGATES}
    plain = {point for point in POINTS if point not in SURROGATES and encode_key(chr(point)) == chr(point)}
    assert plain == {ord(each) for each in ENDS + "_"}


def test_every_character_in_the_middle_has_a_name_that_leads_back_to_it() -> None:
    for point in POINTS:
        key = f"a{chr(point)}b"
        if is_key(key):
            name = encode_key(key)
            assert set(name) <= set(PLAIN + "%")
            assert (name == key) is (chr(point) in PLAIN)
            assert decode_key(name) == key
            assert decode_key(name.lower()) in (None, key.lower())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16))
def test_names_and_keys_lead_to_each_other(key: str) -> None:
    name = encode_key(key)
    assert decode_key(name) == key
    assert "/" not in name
    assert "\0" not in name
    assert not name.startswith((".", "-"))


@given(st.text(PLAIN + "%2eEfF/ é", max_size=8))
def test_a_name_that_is_no_canonical_encoding_is_nobodys(name: str) -> None:
    key = decode_key(name)
    assert key is None or encode_key(key) == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("../x", "%2E.%2Fx"),
        ("a/b", "a%2Fb"),
        ("a\0b", "a%00b"),
        ("%2e", "%252e"),
        (".hidden", "%2Ehidden"),
        ("-rf", "%2Drf"),
        ("é", "%C3%A9"),
        ("a.b-c_d", "a.b-c_d"),
        ("a.", "a."),
        ("_", "_"),
    ],
)
def test_the_name_of(key: str, name: str) -> None:
    assert encode_key(key) == name
    assert decode_key(name) == key


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "a/b", "%2e", "%41", "%C3", "%", "%4", "a%2", "%ED%A0%80", "é"])
def test_no_key_has_the_name(name: str) -> None:
    assert decode_key(name) is None


@pytest.mark.parametrize("key", ["a" * 200, "/" * 66, "é" * 33])
def test_the_longest_keys(key: str) -> None:
    assert check_key(key) == key
    assert not is_key(key + key[0])


class Text(Enum):
    A = "a"


class MixedIn(str, Enum):  # noqa: UP042
    A = "a"


class Str(StrEnum):
    A = "a"


@pytest.mark.parametrize("key", ["", "\ud800", "a\udfff", "a" * 201, None, 1, b"a", ["a"], Text.A, MixedIn.A, Str.A])
def test_what_is_no_key_is_refused(key: Any) -> None:
    """Also text that merely equals a key: formatted, MixedIn.A is "MixedIn.A", and its file would have a wrong key."""
    with pytest.raises(InvalidKey, match="not empty, valid Unicode"):
        check_key(key)


def test_names_of_kinds_and_boots_stay_plain() -> None:
    """They stand in the header without escapes."""
    assert {chr(point) for point in POINTS if is_name(chr(point))} == set(ENDS)
    for point in POINTS:
        character = chr(point)
        assert is_name(f"{character}a") is is_name(f"a{character}") is (character in ENDS)
        assert is_name(f"a{character}a") is (character in PLAIN)

"""Which strings are names. That every operation checks its key is shown in test_bad_keys.py."""

from __future__ import annotations

import string
from enum import Enum, StrEnum
from typing import Any

import pytest

from checkpointmanager import InvalidKey
from checkpointmanager._format.keys import MAX_KEY_LENGTH, check_key, is_name

ENDS = string.ascii_letters + string.digits
INSIDE = ENDS + "-_."


def test_every_one_of_1114112_characters_alone() -> None:
    assert {chr(point) for point in range(0x110000) if is_name(chr(point))} == set(ENDS)


def test_every_one_of_65536_characters_at_the_start_in_the_middle_and_at_the_end() -> None:
    for point in range(0x10000):
        character = chr(point)
        assert is_name(f"{character}a") is is_name(f"a{character}") is (character in ENDS)
        assert is_name(f"a{character}a") is (character in INSIDE)


@pytest.mark.parametrize("length", [1, 2, MAX_KEY_LENGTH])
def test_every_length_up_to_the_limit_is_a_name(length: int) -> None:
    assert check_key("a" * length) == "a" * length


class Text(Enum):
    A = "a"


class MixedIn(str, Enum):  # noqa: UP042
    A = "a"


class Str(StrEnum):
    A = "a"


BAD_TEXT = [
    "",
    "a" * 201,
    "a/b",
    "..",
    ".",
    "../a",
    "a\n",
    "\na",
    "a\0",
    " a",
    "a ",
    "ä",
    "١",
    "-a",
    "a-",
    "_a",
    "a.",
    ".a",
]
NO_TEXT = [None, 1, b"a", ["a"], ("a",), Text.A, MixedIn.A, Str.A]


@pytest.mark.parametrize("key", [*BAD_TEXT, *NO_TEXT])
def test_what_is_no_key_is_refused(key: Any) -> None:
    """Also text that merely equals a key: formatted, MixedIn.A is "MixedIn.A", and its file would have a wrong key."""
    with pytest.raises(InvalidKey) as caught:
        check_key(key)
    assert "1 to 200 letters" in str(caught.value)

"""A wrong argument is refused at once, with a text that says what was expected, and nothing is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, FileStore, MemoryStore

from ..leases import LEASES, Lease

Opener = Callable[..., object]


class BytesPath(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"claims"


DIRECTORIES: list[tuple[object, type[Exception], str]] = [
    (None, TypeError, r"not None; to keep nothing on disk use MemoryStore\(\)"),
    (123, TypeError, r"not 123; .* MemoryStore\(\)"),
    (3.5, TypeError, "not 3.5"),
    (True, TypeError, "not True"),
    (b"claims", TypeError, "not a bytes"),
    (BytesPath(), TypeError, "not a bytes"),
    ({"secret": 1}, TypeError, "not a dict;"),
    ({1}, TypeError, "not a set"),
    (MemoryStore, TypeError, "not the class MemoryStore"),
    ("", ValueError, "an empty path; write '.'"),
    ("a\0b", ValueError, "NUL"),
]
LARGEST = 512 << 20
OPTIONS: list[tuple[str, object, type[Exception], str]] = [
    ("owner", None, TypeError, "owner must be a str, not None"),
    ("owner", 7, TypeError, "owner must be a str, not 7"),
    ("owner", b"agent", TypeError, "owner must be a str, not a bytes"),
    ("lock_timeout", True, TypeError, "lock_timeout must be a number of seconds, 0 or more, not True"),
    ("lock_timeout", "5", TypeError, "lock_timeout must be a number of seconds, 0 or more, not '5'"),
    ("lock_timeout", float("nan"), ValueError, "lock_timeout must be a number of seconds, 0 or more, not nan"),
    ("lock_timeout", -1, ValueError, "lock_timeout must be a number of seconds, 0 or more, not -1"),
    ("max_bytes", 0, ValueError, f"max_bytes must be a number of bytes, from 1 to {LARGEST}, not 0"),
    ("max_bytes", -5, ValueError, f"max_bytes must be a number of bytes, from 1 to {LARGEST}, not -5"),
    ("max_bytes", LARGEST + 1, ValueError, f"from 1 to {LARGEST}, not {LARGEST + 1}"),
    ("max_bytes", 1e6, TypeError, "max_bytes must be a number of bytes, 1 or more, not 1000000.0"),
    ("max_bytes", True, TypeError, "max_bytes must be a number of bytes, 1 or more, not True"),
    ("max_bytes", None, TypeError, "max_bytes must be a number of bytes, 1 or more, not None"),
    ("durability", "none", ValueError, "durability must be 'full' or 'atomic', not 'none'"),
    ("durability", None, ValueError, "durability must be 'full' or 'atomic', not None"),
    ("durability", ["full"], ValueError, "durability must be 'full' or 'atomic', not a list"),
    *(
        (name, value, TypeError, f"{name} must be True or False, not {text}")
        for name in ("sharing", "read_only", "allow_insecure")
        for value, text in ((1, "1"), (None, "None"), ("no", "'no'"))
    ),
]
OF_A_MANAGER: list[tuple[str, object, str]] = [
    ("schema", Lease, "schema must be a Schema, not the class Lease"),
    ("schema", "Lease", "schema must be a Schema, not 'Lease'"),
    ("schema", 0, "schema must be a Schema, not 0"),
    ("on_event", "print", "on_event must be a function that takes an Event, not 'print'"),
    ("on_event", 0, "on_event must be a function that takes an Event, not 0"),
    ("boot_id", 5, "boot_id must be a str, not 5"),
    ("boot_id", b"boot", "boot_id must be a str, not a bytes"),
    ("no_such_option", 1, "no_such_option is not an option; the options are sharing, .*, metrics$"),
]
openers = pytest.mark.parametrize("opener", [CheckpointManager, FileStore])


@openers
@pytest.mark.parametrize("wrong", DIRECTORIES, ids=lambda wrong: repr(wrong[0])[:30])
def test_what_is_no_directory_is_refused(
    opener: Opener, wrong: tuple[object, type[Exception], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, error, text = wrong
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text) as refusal:
        opener(directory)
    assert "secret" not in str(refusal.value)
    assert os.listdir(tmp_path) == []


@openers
@pytest.mark.parametrize("wrong", OPTIONS, ids=lambda wrong: f"{wrong[0]}={wrong[1]!r}")
def test_a_wrong_option_is_refused_by_its_name(
    opener: Opener, wrong: tuple[str, object, type[Exception], str], tmp_path: Path
) -> None:
    name, value, error, text = wrong
    options: dict[str, Any] = {name: value}
    with pytest.raises(error, match=text):
        opener(tmp_path / "claims", **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "value", "text"), OF_A_MANAGER, ids=lambda value: repr(value)[:30])
def test_a_wrong_argument_of_a_manager_is_refused_by_its_name(
    name: str, value: object, text: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(TypeError, match=text):
        CheckpointManager(tmp_path / "claims", **options)
    assert os.listdir(tmp_path) == []


@openers
def test_a_read_only_manager_cannot_share(opener: Opener, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pass only one of the two"):
        opener(tmp_path / "claims", sharing=True, read_only=True)


def test_options_are_checked_with_a_store_as_well() -> None:
    with pytest.raises(TypeError, match="owner must be a str, not None"):
        CheckpointManager(MemoryStore(), owner=None)  # type: ignore[call-overload]


OF_A_DIRECTORY: list[dict[str, Any]] = [
    {"sharing": True},
    {"read_only": True},
    {"max_bytes": 1000},
    {"sharing": True, "read_only": True},
]


@pytest.mark.parametrize("options", OF_A_DIRECTORY, ids=repr)
def test_what_only_a_directory_can_do_is_refused_with_a_store(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"^{name} is an option of a directory; a Store decides that itself$"):
        CheckpointManager(MemoryStore(), **options)


def test_all_right_arguments_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("claims", Path("claims"), str(tmp_path / "claims"), MemoryStore()):
        CheckpointManager(directory, LEASES, on_event=print, boot_id="boot").close()
    CheckpointManager("claims", max_bytes=LARGEST).close()
    options: dict[str, Any] = {"owner": "", "max_bytes": 1, "durability": "atomic"}
    for timeout in (None, 0, 0.5, float("inf")):
        options["lock_timeout"] = timeout
        CheckpointManager("claims", **options).close()

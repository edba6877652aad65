"""What a file may hold after a power loss, by hand."""

from __future__ import annotations

from checkpointmanager.testing._recording import Change, Resize, Write
from checkpointmanager.testing._tornwrites import (
    BLOCK_BYTES,
    MAX_PIECES,
    SECTOR_BYTES,
    applied,
    possible_contents,
)


def write(offset: int, data: bytes) -> Change:
    return Write("", 1, offset, data)


def found(durable: bytes, *pending: Change, stale: tuple[bytes, ...] = ()) -> set[bytes]:
    return {content.data for content in possible_contents(durable, pending, stale).possible}


def test_what_is_synced_is_certain() -> None:
    assert found(b"synced") == {b"synced"}


def test_a_small_new_file_is_missing_torn_zero_or_rubbish() -> None:
    contents = found(b"", write(0, b"abcdef"), stale=(b"OTHER FILE",))
    assert contents >= {b"", b"a", b"abc", b"abcde", b"abcdef", b"\0" * 6, b"abc\0\0\0", b"OTHER "}
    assert len(contents) == 11  # and rubbish, and cut after 1 and after 5 with NUL bytes


def test_an_overwrite_leaves_old_and_new_mixed() -> None:
    assert found(b"oldold", write(0, b"newnew")) >= {b"oldold", b"newnew", b"newold", b"noldol"[:1] + b"ldold"}


def test_a_cut_may_have_happened_without_what_was_written_after_it() -> None:
    assert found(b"old value", Resize("", 1, 0), write(0, b"new")) >= {b"old value", b"", b"new"}


def test_blocks_arrive_in_any_combination() -> None:
    blocks = [bytes([65 + number]) * BLOCK_BYTES for number in range(3)]
    zero = bytes(BLOCK_BYTES)
    contents = found(b"", write(0, b"".join(blocks)))
    for mask in range(8):
        assert b"".join(block if mask >> n & 1 else zero for n, block in enumerate(blocks)) in contents
    assert blocks[0] + blocks[1] in contents, "or a prefix"


def test_many_blocks_are_bounded_and_counted() -> None:
    size = (MAX_PIECES + 4) * BLOCK_BYTES
    contents = possible_contents(b"", [write(0, b"x" * size)])
    assert contents.left_out == 2 ** (MAX_PIECES + 4) - (2 * (MAX_PIECES + 4) + 2)
    assert len(contents.possible) > MAX_PIECES + 4


def test_a_block_that_is_overwritten_in_place_is_torn_in_any_of_its_sectors() -> None:
    blanks = b"\n" * BLOCK_BYTES
    sectors = [bytes([65 + number]) * SECTOR_BYTES for number in range(3)]
    contents = found(blanks * 3, write(BLOCK_BYTES, b"".join(sectors).ljust(BLOCK_BYTES, b"\n")))
    for mask in range(8):
        torn = b"".join(sector if mask >> n & 1 else b"\n" * SECTOR_BYTES for n, sector in enumerate(sectors))
        assert blanks + torn.ljust(BLOCK_BYTES, b"\n") + blanks in contents


def test_blanks_before_and_after_a_torn_block_stay() -> None:
    blanks = b"\n" * BLOCK_BYTES
    contents = found(blanks * 3, write(BLOCK_BYTES, b"record"), stale=(b"OTHER FILE",))
    assert len(contents) > 5
    assert all(content.startswith(blanks) and content[2 * BLOCK_BYTES :] == blanks for content in contents)


def test_only_what_was_written_is_in_question() -> None:
    durable = b"a" * BLOCK_BYTES + b"b" * BLOCK_BYTES
    assert all(content.startswith(b"a" * BLOCK_BYTES) for content in found(durable, write(BLOCK_BYTES, b"new")))


def test_changes_apply_in_order_and_fill_gaps_with_nuls() -> None:
    assert applied(b"ab", [write(4, b"cd"), Resize("", 1, 5), Resize("", 1, 6)]) == b"ab\0\0c\0"

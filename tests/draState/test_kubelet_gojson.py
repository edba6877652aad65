"""JSON is decoded as Go decodes it, where that differs from Python and affects kubelet's checksum."""

from __future__ import annotations

from typing import Any

import pytest

from draState.kubelet import (
    INT,
    STRING,
    STRINGS,
    UINT64,
    Bytes,
    Custom,
    Decoded,
    Escaped,
    Field,
    GoType,
    Integer,
    Map,
    Missing,
    Node,
    NotJSONError,
    Number,
    Object,
    Pointer,
    Slice,
    Struct,
    UnmarshalError,
    decode,
    parse,
    spelled,
)

MAX_DEPTH = 10_000  # levels, as in Go
UINT32 = Integer("uint32", 0, 2**32 - 1)
PAIR = Struct("pair", (Field("A", STRING, "a"), Field("B", INT, "b")))
BOX = Struct(
    "box",
    (
        Field("Kiss", STRING, "kiss"),
        Field("Map", Map("map", Map("map", STRING)), "map"),
        Field("List", Slice("list", PAIR), "list"),
        Field("Pair", Pointer(PAIR), "pair"),
        Field("Last", UINT32, "last"),
    ),
)


def decoded(gotype: GoType, text: str | bytes) -> Decoded:
    blob = text.encode() if isinstance(text, str) else text
    return decode(gotype, parse(blob), gotype.zero())


def value_of(gotype: GoType, text: str | bytes) -> Any:
    result = decoded(gotype, text)
    assert not result.problems
    return result.value


@pytest.mark.parametrize("name", ["kiss", "KISS", "Kiss", "ki\u017f\u017f", "\u212ai\u017fS", "\\u212Aiss"])
def test_names_match_in_any_letter_case_and_two_unicode_letters_count_as_ascii(name: str) -> None:
    assert value_of(BOX, f'{{"{name}":"x"}}')["Kiss"] == "x"


def test_an_exact_name_and_a_folded_one_are_the_same_field_and_the_last_counts() -> None:
    result = decoded(BOX, '{"kiss":"exact","KISS":"folded"}')

    assert result.value["Kiss"] == "folded"
    assert [spelled(path) for path in result.repeated] == ["kiss"]


def test_a_repeated_map_field_merges_and_a_repeated_key_replaces() -> None:
    text = '{"map":{"p":{"a":"1"},"q":{}},"map":{"p":{"b":"2"}}}'

    assert value_of(BOX, text)["Map"] == {"p": {"b": "2"}, "q": {}}


def test_a_repeated_struct_or_list_keeps_what_the_second_does_not_say() -> None:
    text = '{"pair":{"a":"1"},"pair":{"b":2},"list":[{"a":"x"},{}],"list":[{"b":3}]}'

    result = value_of(BOX, text)

    assert result["Pair"] == {"A": "1", "B": 2}
    assert result["List"] == [{"A": "x", "B": 3}]


def test_null_keeps_strings_and_numbers_and_clears_maps_lists_and_pointers() -> None:
    text = '{"kiss":"x","kiss":null,"last":5,"last":null,"map":{},"map":null,"list":[],"list":null,"pair":null}'

    assert value_of(BOX, text) == {"Kiss": "x", "Map": None, "List": None, "Pair": None, "Last": 5}


@pytest.mark.parametrize("text", ["1.0", "1e3", '"1"', "-1", "4294967296", "true", "[]", "{}", "-0"])
def test_what_is_no_unsigned_integer_is_an_error_but_the_fields_after_it_are_filled(text: str) -> None:
    result = decoded(BOX, f'{{"last":{text},"kiss":"after"}}')

    assert len(result.problems) == 1
    assert result.value["Last"] == 0
    assert result.value["Kiss"] == "after"


def test_integers_reach_to_the_ends_of_their_type() -> None:
    assert [value_of(INT, text) for text in ("-0", "9223372036854775807")] == [0, 2**63 - 1]
    for text in ("18446744073709551616", "1" * 5_000):
        assert decoded(UINT64, text).problems


def test_integer_keys_are_numbers_and_others_are_errors() -> None:
    numa = Map("numa", STRINGS, integer_keys=True)

    assert value_of(numa, '{"-1":[],"007":null,"+2":["a"]}') == {-1: [], 7: None, 2: ["a"]}
    for key in ("x", "", "1_0", "1.0", " 1", "9223372036854775808", "\u0661"):
        assert decoded(numa, f'{{"{key}":[]}}').problems


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"a\xe2\x82b", "a\ufffd\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\\ud83d\\ude00", "\U0001f600"),
        (b"\\ud83d", "\ufffd"),
        (b"\\ud83d\\ud83d\\ude00", "\ufffd\U0001f600"),
        (b"\\ude00\\ud83d", "\ufffd\ufffd"),
        (b'\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000', '"\\/\b\f\n\r\t\0'),
        (b"\\\\u0041", "\\u0041"),
    ],
)
def test_bad_utf8_and_lone_surrogates_become_replacement_characters_one_each(raw: bytes, text: str) -> None:
    assert parse(b'"' + raw + b'"') == text
    assert parse(b'{"' + raw + b'":1}') == Object([(text, Number("1"))])


@pytest.mark.parametrize(
    ("text", "octets"),
    [('"QQ=="', b"A"), ('"QR=="', b"A"), ('"Q\\nQ=\\r="', b"A"), ('""', b""), ("[1,255]", b"\1\xff"), ("null", None)],
)
def test_bytes_are_base64_or_a_list_of_numbers(text: str, octets: bytes | None) -> None:
    assert value_of(Bytes(), text) == octets


@pytest.mark.parametrize("text", ['"QQ"', '"QQ="', '"Q Q=="', '"QQ==QQ=="', '"Q-=="', "[256]", "[-1]", "5", "{}"])
def test_other_bytes_are_errors(text: str) -> None:
    assert decoded(Bytes(), text).problems


def test_a_failing_unmarshaller_ends_the_decode_where_it_stands() -> None:
    def refuse(node: Node) -> Any:
        raise UnmarshalError("refused")

    struct = Struct("s", (Field("A", STRING), Field("B", Custom(STRING, refuse)), Field("C", STRING)))

    result = decoded(struct, '{"A":"set","B":1,"C":"never"}')

    assert result.problems == ["B: refused"]
    assert result.value == {"A": "set", "B": "", "C": ""}


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "1.",
        ".5",
        "+1",
        "'a'",
        "[1,]",
        '{"a":1,}',
        "{a:1}",
        '"\t"',
        '"\\x"',
        "tru",
        "nul l",
    ],
)
def test_what_go_does_not_accept_as_json_is_refused(text: str) -> None:
    with pytest.raises(NotJSONError):
        parse(text.encode())


@pytest.mark.parametrize("text", ['{"a":[1,-2.5e+7,true,false,null,"\\u00e9"]}', " \r\n\t[] "])
def test_every_cut_of_a_document_is_called_truncated(text: str) -> None:
    blob = text.strip().encode()
    for length in range(len(blob)):
        with pytest.raises(NotJSONError) as caught:
            parse(blob[:length])
        assert caught.value.reason == "truncated"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_depth_ends_where_go_ends_it(opening: str, closing: str) -> None:
    levels = MAX_DEPTH // len(closing)
    parse((opening * (levels - 1) + "1" + closing * (levels - 1)).encode())
    parse((opening * levels + "1" + closing * levels).encode())

    with pytest.raises(NotJSONError) as caught:
        parse((opening * levels + "[]" + closing * levels).encode())
    assert (caught.value.reason, caught.value.offset) == ("not-json", levels * len(opening))


def test_a_string_that_was_escaped_can_be_recognised() -> None:
    assert [type(node) for node in (parse(b'"1"'), parse(b'"\\u0031"'))] == [str, Escaped]
    assert type(value_of(STRING, '"\\u0031"')) is str


def test_after_the_document_only_white_space_may_follow() -> None:
    for blob in (b"{} ,", b"1,", b'"a" ]', b"[] {}", b"\xc3\xa9"):
        with pytest.raises(NotJSONError) as caught:
            parse(blob)
        assert (caught.value.reason == "trailing-bytes") is not isinstance(caught.value.document, Missing)


def test_a_path_shows_no_data() -> None:
    numa = Struct("s", (Field("Map", Map("m", Slice("l", Map("m", INT)))),))

    result = decoded(numa, '{"Map":{"secret":[{},{"secret":"x"}],"s":[]},"secret name":1,"plain":2}')

    assert result.problems == ["Map[…][1][…] is not a signed integer of 64 bits"]
    assert [spelled(path) for path in result.unknown] == ["…", "plain"]

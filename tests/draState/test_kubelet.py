"""Kubelet's own file: judged as kubelet judges it, read into our states, and written byte for byte.

tests/data/draState/kubelet holds files written, and some of them damaged, by kubelet's real code, with its verdicts.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from draState import (
    ClaimInfo,
    ClaimInfoCache,
    ClaimInfoState,
    Device,
    DRAError,
    DriverState,
    KubeletStateInvalid,
    read_dra_manager_state,
    write_dra_manager_state,
)

DATA = Path(__file__).parent.parent / "data" / "draState" / "kubelet"
VECTORS: dict[str, bool] = {row["file"]: row["valid"] for row in json.loads((DATA / "manifest.json").read_text())}
VALID = [name for name, valid in VECTORS.items() if valid]
# Kubelet does not write these exact bytes, or a running kubelet writes an empty list or map instead of null.
NOT_CANONICAL = {"empty.json", "nils.json", *(name for name in VALID if "quirk" in name)}
CANONICAL = [name for name in VALID if name not in NOT_CANONICAL]


def vector(name: str) -> bytes:
    return (DATA / name).read_bytes()


def sealed(data: str) -> bytes:
    """A file with a correct checksum."""
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


def of_claims(*claims: Any) -> bytes:
    state = {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": list(claims),
    }
    return sealed(json.dumps(state))


def test_there_are_vectors_of_both_verdicts() -> None:
    assert (len(VECTORS), len(VALID), len(CANONICAL)) == (39, 14, 6)


@pytest.mark.parametrize("name", VECTORS)
def test_exactly_those_files_are_read_that_kubelet_loads(name: str) -> None:
    if VECTORS[name]:
        state = read_dra_manager_state(vector(name))
        assert (state.form, state.checksum_verified) == ("v1", True)
    else:
        with pytest.raises(KubeletStateInvalid):
            read_dra_manager_state(vector(name))


@pytest.mark.parametrize("name", CANONICAL)
def test_a_file_that_is_read_and_written_again_has_the_same_bytes(name: str) -> None:
    state = read_dra_manager_state(vector(name))

    assert state.warnings == ()
    assert write_dra_manager_state(state.claims) == vector(name)


@pytest.mark.parametrize("name", [name for name in VALID if name.startswith("one.quirk")])
def test_an_odd_file_is_written_as_kubelet_would(name: str) -> None:
    assert write_dra_manager_state(read_dra_manager_state(vector(name)).claims) == vector("one.json")


def test_null_and_empty_are_written_as_a_running_kubelet_does() -> None:
    nothing = write_dra_manager_state([])
    bare = write_dra_manager_state([ClaimInfoState("u", "n", "ns")])
    started = write_dra_manager_state([ClaimInfoState("u", "n", "ns", driver_states={"d": DriverState()})])
    device = write_dra_manager_state(
        [ClaimInfoState("u", "n", "ns", frozenset(), {"d": DriverState((Device("p", "d"),))})]
    )

    assert nothing == vector("emptylist.json")
    assert b'\\"PodUIDs\\":{},\\"DriverState\\":{}}' in bare
    assert b'\\"DriverState\\":{\\"d\\":{\\"Devices\\":null}}}' in started
    assert b'\\"ShareID\\":null,\\"RequestNames\\":null,\\"CDIDeviceIDs\\":null}' in device


def test_nulls_are_read_as_empty() -> None:
    claims = read_dra_manager_state(vector("nils.json")).claims

    assert claims[1] == ClaimInfoState("abf6401d-3926-46ee-9dec-dd41ada0ce9a", "trainer-2-abf64", "payments")
    assert claims[0].driver_states == {
        "gpu.acme.example": DriverState((Device("rack4-node12", "dev-0-55"),)),
        "nic.acme.example": DriverState(),
    }


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "the file is not JSON (it is empty)"),
        (b"\0" * 8, "the file is not JSON (not-json at byte 0)"),
        (b"{}{}", "the file is not JSON (trailing-bytes at byte 2)"),
        (b'{"\xc3\xa9\xff":1,', "the file is not JSON (truncated at byte 9)"),
        (b"[]", "the file is not an object"),
        (b"7", "the file is not an object"),
        (b'{"a":NaN}', "not-json at byte 5"),
        (b'{"a":-Infinity}', "not-json at byte 5"),
        (b"[" * 200_000, "not-json at byte 10000"),
        (b'{"Checksum":7}', "Data does not match its checksum (7, but Data has 4010664294)"),
        (b'{"Checksum":-0}', ": Checksum is not an unsigned integer of 32 bits"),
        (b'{"Checksum":' + b"9" * 10_000 + b"}", ": Checksum is not an unsigned integer of 32 bits"),
        (b'{"Checksum":true}', ": Checksum is not an unsigned integer of 32 bits"),
        (b'{"Data":7}', ": Data is not a string"),
        (sealed(""), "Data is not JSON (it is empty)"),
        (sealed("secret"), "Data is not JSON (not-json at byte 0)"),
        (sealed("[]"), "Data is not an object"),
        (of_claims([]), "Data.ClaimInfoStateList[0] is not an object"),
        (of_claims({"ClaimUID": 1}), "Data.ClaimInfoStateList[0].ClaimUID is not a string"),
        (of_claims({}, {"PodUIDs": []}), "Data.ClaimInfoStateList[1].PodUIDs is not an object"),
        (of_claims({"PodUIDs": {"secret": 1}}), "Data.ClaimInfoStateList[0].PodUIDs[…] is not an object"),
        (of_claims({"DriverState": {"secret": {"Devices": {}}}}), ".DriverState[…].Devices is not an array"),
        (b'{"version":"v1","entries":["secret"],"checksum":1}', ": entries[0] is not an object"),
        (
            b'{"version":"v1","entries":[{"CDIDevices":"secret"}],"checksum":1}',
            ": entries[0].CDIDevices: neither a list",
        ),
    ],
)
def test_what_is_wrong_is_named_without_data(blob: bytes, why: str) -> None:
    with pytest.raises(KubeletStateInvalid) as refused:
        read_dra_manager_state(blob)

    assert isinstance(refused.value, DRAError)
    assert str(refused.value).startswith("not a valid dra_manager_state: ")
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("blob", [b"{}", b"null", b' {"Data":null,"Checksum":null}\n', b'{"Checksum":4010664294}'])
def test_a_file_without_data_is_an_empty_state_with_a_warning(blob: bytes) -> None:
    state = read_dra_manager_state(blob)

    assert (state.claims, state.warnings) == ((), ("the file has no Data: kubelet reads it as an empty state",))


def test_an_importer_is_warned_of_what_kubelet_does_not_mind() -> None:
    claim = {"ClaimUID": "u", "Color": "blue", "DriverState": {"d": {"Devices": [{"Health": 1, "\ud800 secret": 1}]}}}
    foreign = read_dra_manager_state(sealed('{"kind":"Pod"}'))
    newer = read_dra_manager_state(of_claims(claim, claim))

    assert "is not marked as DRACheckpoint" in foreign.warnings[0]
    assert newer.warnings == (
        "1 claim UIDs occur more than once; the last one counts",
        "3 unknown fields are left out",
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"CLAIMUID":"u"}', ClaimInfoState("u", "", "")),
        ('{"claimuid":"u","PODuids":{"p":{}}}', ClaimInfoState("u", "", "", frozenset({"p"}))),
        ('{"ClaimUID":"u","Namespace":"ns","Name\u017fpace":"other"}', ClaimInfoState("u", "", "other")),
        ('{"ClaimUID":"u","Driver\ufb06ate":{"d":{}}}', ClaimInfoState("u", "", "")),
        ('{"ClaimUID":"a","ClaimUID":"b"}', ClaimInfoState("b", "", "")),
        ('{"ClaimUID":"a","ClaimUID":null}', ClaimInfoState("a", "", "")),
        (
            '{"ClaimUID":"u","PodUIDs":{"a":{}},"PodUIDs":{"b":null}}',
            ClaimInfoState("u", "", "", frozenset({"a", "b"})),
        ),
        ('{"ClaimUID":"u","PodUIDs":{"a":{}},"PodUIDs":null}', ClaimInfoState("u", "", "")),
        (
            '{"ClaimUID":"u","DriverState":{"d":{"skipNodeOperations":["*"]},"d":{}}}',
            ClaimInfoState("u", "", "", driver_states={"d": DriverState()}),
        ),
        (
            '{"ClaimUID":"\\u0075","ClaimName":"\\ud800x\\ud83d\\ude00\\udc00"}',
            ClaimInfoState("u", "\ufffdx\U0001f600\ufffd", ""),
        ),
    ],
)
def test_data_is_decoded_as_go_does_it(data: str, expected: ClaimInfoState) -> None:
    assert read_dra_manager_state(sealed(f'{{"ClaimInfoStateList":[{data}]}}')).claims == (expected,)


def test_every_bad_byte_counts_as_a_replacement_character_of_its_own() -> None:
    raw = b'{\\"ClaimInfoStateList\\":[{\\"ClaimUID\\":\\"u\\",\\"ClaimName\\":\\"\xe2\x82\xff\\"}]}'
    decoded = '{"ClaimInfoStateList":[{"ClaimUID":"u","ClaimName":"\ufffd\ufffd\ufffd"}]}'

    state = read_dra_manager_state(b'{"Data":"%s","Checksum":%d}' % (raw, zlib.crc32(decoded.encode())))

    assert state.claims[0].claim_name == "\ufffd\ufffd\ufffd"


def test_text_is_escaped_as_go_does_it() -> None:
    odd = '<>&\u2028\u2029\b\f\n\r\t\x00\x1b\x7f"\\/ü\U0001f600\ufffd'
    data = json.loads(write_dra_manager_state([ClaimInfoState(odd, "", "")]))["Data"]

    assert (
        r'"ClaimUID":"\u003c\u003e\u0026\u2028\u2029\b\f\n\r\t\u0000\u001b'
        + "\x7f"
        + r"\"\\/ü"
        + "\U0001f600"
        + r'\ufffd"'
    ) in data


def test_maps_are_written_in_the_order_of_their_keys() -> None:
    drivers = {"b": DriverState(), "\U0001f600": DriverState(), "\uffff": DriverState(), "a": DriverState()}
    claim = ClaimInfoState("u", "n", "ns", frozenset({"p2", "p10", "p1"}), drivers)

    data = json.loads(json.loads(write_dra_manager_state([claim]))["Data"])

    (written,) = data["ClaimInfoStateList"]
    assert list(written["PodUIDs"]) == ["p1", "p10", "p2"]
    assert list(written["DriverState"]) == ["a", "b", "\uffff", "\U0001f600"]


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(KubeletStateInvalid, match="lone surrogate"):
        write_dra_manager_state([ClaimInfoState("\ud800", "", "")])


OLD_ENTRY = {
    "DriverName": "d",
    "ClassName": "c",
    "ClaimUID": "u",
    "ClaimName": "n",
    "Namespace": "ns",
    "PodUIDs": {"p": {}},
}


@pytest.mark.parametrize(
    ("more", "drivers"),
    [
        ({"CdiDevices": ["a", "b"]}, {"d": DriverState((Device("", "", cdi_device_ids=("a", "b")),))}),
        ({"CdiDevices": None}, {"d": DriverState()}),
        ({}, {"d": DriverState()}),
        (
            {"CDIDevices": {"d": ["a"], "e": ["b"], "f": None}, "ResourceHandles": [{"driverName": "d", "data": "x"}]},
            {
                "d": DriverState((Device("", "", cdi_device_ids=("a",)),)),
                "e": DriverState((Device("", "", cdi_device_ids=("b",)),)),
                "f": DriverState(),
            },
        ),
        (
            {"DriverState": {"d": {"Devices": [{"PoolName": "p", "DeviceName": "x", "CDIDeviceIDs": ["a"]}]}}},
            {"d": DriverState((Device("p", "x", cdi_device_ids=("a",)),))},
        ),
    ],
)
def test_entries_of_older_kubelets_are_read_but_not_verified(more: Any, drivers: dict[str, DriverState]) -> None:
    blob = json.dumps({"version": "v1", "entries": [{**OLD_ENTRY, **more}], "checksum": 1988120167}).encode()

    state = read_dra_manager_state(blob)

    assert state.claims == (ClaimInfoState("u", "n", "ns", frozenset({"p"}), drivers),)
    assert (state.form, state.checksum_verified) == ("entries", False)
    assert "not verified" in state.warnings[0]


NO_KEYS = ["", "u" * 201, "ü" * 34]
ODD_KEYS = [" ", ".u", "../../etc/passwd", "u\n", "ü", "\ufffd", "secret/claim"]


def test_a_claim_whose_uid_is_no_checkpoint_key_is_reported_and_costs_no_other(tmp_path: Path) -> None:
    uids = ["first", *NO_KEYS, *ODD_KEYS, "last"]

    state = read_dra_manager_state(of_claims(*({"ClaimUID": uid} for uid in uids), None))

    assert [claim.claim_uid for claim in state.claims] == ["first", *ODD_KEYS, "last"]
    assert list(state.unusable) == [*range(1, len(NO_KEYS) + 1), len(uids)]
    assert {index for index, why in state.unusable.items() if why == "it has no UID"} == {1, len(uids)}
    assert state.unusable[2] == "its UID cannot be a checkpoint key"
    assert state.warnings == ("4 claims cannot be stored and are left out; `unusable` says why",)
    assert "secret" not in str(state.unusable) + str(state.warnings)
    cache = ClaimInfoCache(tmp_path / "claims")
    cache.put(*map(ClaimInfo, state.claims))
    assert len(cache) == 2 + len(ODD_KEYS)
    cache.close()


def test_odd_files_of_older_kubelets_are_read_too() -> None:
    """Without entries; with an entry without a UID; with both shapes of CDI devices, of which the last one counts."""
    entry = b'{"ClaimUID":"u","DriverName":"d","CdiDevices":["a"],"CDIDevices":{"e":["b"]}}'
    empty = read_dra_manager_state(b'{"version":"v1","checksum":1}')
    state = read_dra_manager_state(b'{"version":"v1","entries":[{},%s],"checksum":1}' % entry)

    assert (empty.claims, empty.form, empty.checksum_verified) == ((), "entries", False)
    assert ([claim.claim_uid for claim in state.claims], dict(state.unusable)) == (["u"], {0: "it has no UID"})
    assert state.claims[0].driver_states.keys() == {"d", "e"}

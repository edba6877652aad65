"""checkpoint.json of NVIDIA's DRA driver, made here as its source makes it: verified by its bytes, or unverified."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest

from checkpoint_verify.kubelet import NVIDIA, Verdict, inspect

UID = "73de0384-716f-480e-8caa-00bce7016114"
STATUS = {
    "allocation": {
        "devices": {
            "results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"}],
        }
    }
}
PREPARED = [
    {
        "devices": [
            {
                "gpu": {
                    "info": {"uuid": "GPU-1e9f8a5c"},
                    "device": {
                        "Requests": ["gpu"],
                        "PoolName": "node-1",
                        "DeviceName": "gpu-0",
                        "CDIDeviceIDs": ["k8s.gpu.nvidia.com/claim=" + UID],
                    },
                },
                "mig": None,
            }
        ],
        "configState": {"mpsControlDaemonID": ""},
    }
]
NEW = {"checkpointState": "PrepareCompleted", "status": STATUS, "preparedDevices": PREPARED}
NEW |= {"name": "train<0>", "namespace": "ml"}


def go_json(value: Any) -> str:
    """As Go's json.Marshal writes it: compact, and with < > & as escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def checksum(text: str) -> int:
    """checksum.New of a []byte: FNV-1a over what spew prints of it."""
    dumped = b"([]uint8)[" + b" ".join(b"%d" % octet for octet in text.encode()) + b"]"
    return reduce(lambda digest, octet: (digest ^ octet) * 0x01000193 % (1 << 32), dumped, 0x811C9DC5)


def written(*, claims: bool = True, forms: tuple[str, ...] = ("v1", "v2")) -> str:
    """The file as a driver writes it: the outer checksum is of v1, each later form has its own."""
    old = {"preparedClaims": {UID: {"status": STATUS, "preparedDevices": PREPARED}}} if claims else {}
    new = ({"preparedClaims": {UID: NEW}} if claims else {}) | {"nodeBootID": "7f1c0b7e"}
    first = {"v1": old} if "v1" in forms else {}
    document: dict[str, Any] = {"checksum": checksum(go_json({"checksum": 0} | first))} | first
    for form in forms:
        if form != "v1":
            document[form] = {"checksum": checksum(go_json({"checksum": 0} | new))} | new
    return go_json(document)


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("forms", [("v1",), ("v1", "v2"), ("v2",), ("v1", "v2", "v3"), ("v3",)], ids="+".join)
@pytest.mark.parametrize("name", ["checkpoint.json", "copy"])
def test_every_form_that_a_driver_wrote_is_recognised_and_valid(
    claims: bool, forms: tuple[str, ...], name: str
) -> None:
    found = inspect(written(claims=claims, forms=forms).encode(), name)

    assert found
    assert (found.kind, found.format, found.verdict) == (NVIDIA, "+".join(forms), Verdict.VALID), found.detail
    assert set(found.loads_in.values()) == {None}
    assert found.data[forms[-1]].get("preparedClaims", {}).keys() == ({UID} if claims else set())


def test_a_checksum_that_was_computed_once_stays_what_it_is() -> None:
    """Both were computed with Perl: a slip that reader and test have in common would show."""
    assert checksum('{"checksum":0}') == 4_166_374_854
    assert written(claims=False, forms=("v1",)) == '{"checksum":1083090442,"v1":{}}'


def test_what_does_not_verify_is_unverified_and_never_damaged() -> None:
    """Every byte of a value changed once, and the whole reformatted: a driver of another version looks the same."""
    whole = written()
    changed = [
        whole.replace("PrepareCompleted", "PrepareStarted"),
        whole.replace('"configState":{"mpsControlDaemonID":""}', '"configState":{}'),
        json.dumps(json.loads(whole), indent=2),
        whole.replace('"v2":{"checksum":', '"v2":{"dummy":1,"checksum":'),
        whole.replace('"nodeBootID"', '"\\u006eodeBootID"'),
        '{"checksum":0,"v2":{}}',
        '{"checksum":1.5,"v1":{}}',
        '{"checksum":-1,"v1":{}}',
        '{"checksum":99999999999999999999999999,"v1":{}}',
    ]
    digits = [whole.replace(str(json.loads(whole)["checksum"]), str(number)) for number in (0, 1, 1 << 40)]

    for text in (*changed, *digits):
        found = inspect(text.encode(), "checkpoint.json")
        assert found, text
        assert (found.kind, found.verdict, found.reason) == (NVIDIA, Verdict.UNKNOWN, "unverified-form"), text


def test_the_detail_names_the_members_and_no_data() -> None:
    found = inspect(written().replace("PrepareCompleted", "PrepareStarted").encode(), "checkpoint.json")

    assert found
    assert found.detail.startswith("The bytes of v2 do not match their checksum")
    assert "train" not in found.detail


@pytest.mark.parametrize("cut", [40, 200, -1])
@pytest.mark.parametrize("tail", [b"", b"\0" * 512])
def test_what_is_cut_off_is_damaged_and_still_known(cut: int, tail: bytes) -> None:
    found = inspect(written().encode()[:cut] + tail, "checkpoint.json")

    assert found
    assert (found.kind, found.verdict) == (NVIDIA, Verdict.DAMAGED)
    assert found.detail.startswith("NVIDIA's DRA driver refuses this")


@pytest.mark.parametrize(
    "text", ['{"checksum":1}', '{"checksum":"1","v1":{}}', '{"checksum":1,"v1":{},"x":1}', '{"v1":{}}', '{"v1":[]}']
)
def test_other_documents_are_not_taken_for_one(text: str) -> None:
    assert inspect(text.encode(), "checkpoint.json") is None

"""Kubelet's file with any content: every state comes back, and bad bytes are refused in one way only."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draState import (
    ClaimInfoState,
    Device,
    DriverState,
    KubeletStateInvalid,
    read_dra_manager_state,
    write_dra_manager_state,
)

from .test_kubelet import VECTORS, sealed, vector

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
UIDS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
DEVICES = st.builds(Device, TEXT, TEXT, st.none() | TEXT, TEXTS, TEXTS)
DRIVERS = st.builds(DriverState, st.lists(DEVICES, max_size=3).map(tuple), TEXTS)
CLAIMS = st.builds(
    ClaimInfoState, UIDS, TEXT, TEXT, st.frozensets(TEXT, max_size=3), st.dictionaries(TEXT, DRIVERS, max_size=3)
)


@settings(deadline=None)
@given(st.lists(CLAIMS, max_size=4))
def test_every_state_comes_back_as_it_was_written(claims: list[ClaimInfoState]) -> None:
    blob = write_dra_manager_state(claims)

    state = read_dra_manager_state(blob)

    assert list(state.claims) == claims
    assert state.checksum_verified
    assert write_dra_manager_state(state.claims) == blob
    assert not blob.endswith(b"\n")


def judged(blob: bytes) -> None:
    """Read or refused; any other error ends the test."""
    with suppress(KubeletStateInvalid):
        read_dra_manager_state(blob)


@settings(deadline=None)
@given(st.sampled_from(sorted(VECTORS)), st.data())
def test_damaged_bytes_are_read_or_refused_and_nothing_else(name: str, data: st.DataObject) -> None:
    blob = bytearray(vector(name))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(blob)))
        blob[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    judged(bytes(blob))


NAMES = (
    "Data Checksum kind apiVersion ClaimInfoStateList entries version CDIDevices CdiDevices DriverName ClaimUID "
    "PodUIDs DriverState Devices ShareID RequestNames skipNodeOperations x"
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda below: (
        st.lists(below, max_size=3) | st.lists(st.tuples(st.sampled_from(NAMES.split()), below), max_size=4).map(tuple)
    ),
)


def spelled(tree: Any) -> str:
    """JSON in which a name may occur twice."""
    if isinstance(tree, tuple):
        return "{" + ",".join(f"{json.dumps(name)}:{spelled(value)}" for name, value in tree) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(spelled, tree)) + "]"
    return json.dumps(tree)


@settings(deadline=None)
@given(TREES)
def test_any_json_is_read_or_refused_and_nothing_else(tree: Any) -> None:
    text = spelled(tree)

    judged(text.encode())
    judged(sealed(text))
    judged(sealed(f'{{"ClaimInfoStateList":[{text},{text}],"ClaimInfoStateList":[{text}]}}'))
    judged(f'{{"version":"v1","entries":[{text}],"checksum":1,"entries":[{text}]}}'.encode())

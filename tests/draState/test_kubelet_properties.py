"""Kubelet's file with any content: every state comes back. What bad bytes do: checkpoint_verify, test_import_agrees."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draState import (
    ClaimInfoState,
    Device,
    DriverState,
    read_dra_manager_state,
    write_dra_manager_state,
)

from ..long import times

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
UIDS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
DEVICES = st.builds(Device, TEXT, TEXT, st.none() | TEXT, TEXTS, TEXTS)
DRIVERS = st.builds(DriverState, st.lists(DEVICES, max_size=3).map(tuple), TEXTS)
CLAIMS = st.builds(
    ClaimInfoState, UIDS, TEXT, TEXT, st.frozensets(TEXT, max_size=3), st.dictionaries(TEXT, DRIVERS, max_size=3)
)


@settings(max_examples=times(40, 2000), deadline=None)
@given(st.lists(CLAIMS, max_size=4))
def test_every_state_comes_back_as_it_was_written(claims: list[ClaimInfoState]) -> None:
    blob = write_dra_manager_state(claims)

    state = read_dra_manager_state(blob)

    assert list(state.claims) == claims
    assert state.checksum_verified
    assert write_dra_manager_state(state.claims) == blob
    assert not blob.endswith(b"\n")


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

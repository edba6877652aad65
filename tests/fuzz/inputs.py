"""Bytes that are almost right: good files with something changed, and text that is JSON but not what is expected."""

from __future__ import annotations

import orjson
from hypothesis import strategies as st

from checkpointmanager.format import Header, checksum_of, seal

from . import seeds
from .targets import KEY, WRITTEN

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["", KEY, "2026-11-16T08:15:30.123456Z", "7f1c0b7e-5d0e-4a3b-9c55-2f6f4f6f1a11", "red", "\0", "é"]),
)
names = st.one_of(
    st.text(max_size=6), st.sampled_from(["name", "title", "leaves", "number", "claim_uid", "data", "key"])
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5), max_leaves=12
)
json_texts = json_values.map(orjson.dumps)


@st.composite
def changed(draw: st.DrawFn, blobs: list[bytes]) -> bytes:
    """A file with up to three changes, each as disks, editors and programs make them."""
    blob = draw(st.sampled_from(blobs))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(blob)))
        end = min(start + draw(st.sampled_from([0, 1, 2, 8, 100, 4096])), len(blob))
        patch = draw(
            st.one_of(
                st.binary(max_size=8),
                json_texts,
                st.just(b"\0" * (end - start)),
                st.just(blob[start:end] * 2),
                st.sampled_from([b'"', b"\\", b"{", b"[" * 2000, b"}", b",", b"1e999", b'"\\ud800"', b"\xff", b"\n"]),
            )
        )
        blob = blob[:start] + patch + blob[end:]
    return blob


headers = st.dictionaries(
    st.sampled_from(["format", "kind", "version", "readable_by", "key", "generation", "boot", "written", "more"]),
    json_values,
)


@st.composite
def sealed(draw: st.DrawFn) -> bytes:
    """A file with a valid checksum; its header has some members exchanged, its data is any JSON."""
    good = {
        "format": 1,
        "kind": "Lease",
        "version": draw(st.integers(1, 6)),
        "readable_by": 1,
        "key": KEY,
        "generation": 1,
        "boot": "",
        "written": "2026-11-16T08:15:30.123456Z",
    }
    members = orjson.dumps(good | draw(headers))[1:-1]
    body = members + b',"data":' + draw(json_texts | st.binary(max_size=20)) + b"}\n"
    return checksum_of(body) + body


sealed_data = json_texts.map(lambda text: seal(Header("Lease", 1, 1, KEY, 1, "", WRITTEN), text))
checkpoints = st.one_of(st.binary(), sealed(), sealed_data, changed([*seeds.files("golden"), *seeds.files("draState")]))
kubelet_files = st.one_of(st.binary(), json_texts, changed(seeds.files("kubelet")))

"""The code on every page runs, prints what the page says, and every link leads somewhere."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from docs import pages

from .programs import output_of

PAGES = pages.all_pages()
NEED_A_SERVER = ["checkpointmanager/ETCD.md"]  # see tests/checkpointmanager/etcd/test_store.py
RUN = [page for page in PAGES if pages.blocks_of(page, "python") and page not in NEED_A_SERVER]
SEPARATE = [
    "draState/README.md",
    "tools/docs/guides/kubelet.md",
]  # each block is a program of its own, as a restarted agent would be
# What each page prints, with DIR for a directory of its own. A page that is not here prints nothing.
PRINTED = {
    "README.md": ["pod-7 Lease(holder='node-a', renewals=1) 2 True"],
    "draState/README.md": [
        "offers lo: True",
        *("set up: nic.example.com/nic=eth1", "torn down, vlan 7", "error: none"),
    ],
    "tools/docs/guides/kubelet.md": [
        *("devices: nic.example.com/nic=eth1", "after a restart: pod-7 {'mtu': 9000}", "gone: pod-7 0"),
        *("needs: trainer-gpu-x7k2p", "main uses gpu of gpu-0 for gpu"),
        "refused: claim ml/trainer-gpu-x7k2p (UID 0c9f) was not created for pod ml/trainer, which does not own it",
        *("gpu-0 is Healthy for pod-7", "gpu-0 is Unhealthy for pod-7", "after a restart: ECC errors"),
        "gpu-0 is Unknown for pod-7",
    ],
    "draState/plugin/rehearsal/README.md": [
        "prepare 2 (eth2) got DRA_CLAIM_ETH2=00000002-0000-4000-8000-000000000000 DRA_DEVICE_ETH2=eth2 "
        "NIC_ADDRESS=10.0.0.2"
    ],
    "tools/docs/guides/adopt.md": [
        "Grant(pod='trainer', device='eth1', ready=True)",
        "10.0.0.1 10.0.0.2",
        "DIR/pod-7.json: No space left on device; nothing was changed",
        *("{'pod-7': 2, 'free': 6}", "['pod-6', 'pod-7']", "6 kept", "['.lock', 'pod-7.json']", "7"),
    ],
    "tools/docs/guides/schemas.md": [
        "$.device: is int, not str; nothing was written",
        "the old program has written a file of version 2",
        "DIR/0c9f.json: written by a newer program: it has version 3 of kind Grant, this program knows version 2, "
        "3 or later may read it. The file is not damaged. Run the newer version, or remove the checkpoint if it is "
        "not needed",
        "$ is refused by the migration from version 1 with TypeError in version 1 of generation 1",
        "1/3",
    ],
    "tools/docs/guides/stores.md": ["{'device': 'eth1'}", "passed N tests"],
    "tools/docs/guides/testing.md": [
        *("more than a hundred disks: True", "the power failed after:", "    1. create state.tmp"),
        *("    2. write 17 bytes at 0 to state.tmp", "    3. rename state.tmp to state.json"),
        *("    4. acknowledge 'pod-7'", "survived without a sync:", "    create state.tmp"),
        *("    rename state.tmp to state.json", "    state.json: nothing of it", "so the disk holds:"),
        *("    state.json: empty", "and this was acknowledged: 'pod-7'"),
    ],
    "tools/docs/guides/tutorial.md": [
        *("set up eth1", "set up eth2", "eth1 eth2", "set up eth3", "Loan(device='eth3', ready=True)"),
        *("pod-2 cannot be trusted: CorruptCheckpoint", "repaired: pod-1", "nothing is lent: pod-2"),
        *("needs-rollback - lost: what was written after generation 1", "set up eth2", "eth2"),
    ],
    "tools/dra_agent/README.md": ["devices: gpu-2", "after a kill: gpu-2", "exit code: 0"],
}
LEFT = {  # what the programs leave in their working directory, apart from lock files
    "tools/docs/guides/kubelet.md": ["state/claims/0c9f.json"],  # of the device's health; the other programs clean up
    "tools/docs/guides/baseline.md": ["lease-baseline.json"],
}


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    blocks = pages.blocks_of(page, "python")
    programs = blocks if page in SEPARATE else ["\n".join(blocks)]
    printed = [line for program in programs for line in output_of(program, tmp_path)]

    assert printed == PRINTED.get(page, [])
    left = [
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.match("*.retired.json")
    ]
    # Not every example closes its store, so journals stay.
    assert sorted(path for path in left if not path.endswith(("/.lock", "/.journal"))) == LEFT.get(page, [])


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_anchor_leads_somewhere(page: str) -> None:
    assert [link for link in pages.links_of(page) if not leads_somewhere(page, link)] == []


def leads_somewhere(page: str, link: pages.Link) -> bool:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.target)) if link.target else page
    if not (pages.ROOT / path).exists():
        return False
    return not link.anchor or (path.endswith(".md") and link.anchor in pages.anchors_of(path))


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    assert leads_somewhere("README.md", pages.Link("draState/README.md", ""))
    assert not leads_somewhere("README.md", pages.Link("draState/GONE.md", ""))
    assert not leads_somewhere("README.md", pages.Link("draState/README.md", "gone"))
    assert not leads_somewhere("README.md", pages.Link("", "gone"))

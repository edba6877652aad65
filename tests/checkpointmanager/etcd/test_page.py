"""The code of ETCD.md runs, on a real server."""

from __future__ import annotations

import os
from pathlib import Path

from docs import pages
from tests.docs.programs import output_of

from .servers import Cluster


def test_the_code_of_the_page_runs_from_top_to_bottom(cluster: Cluster, tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    program = "\n".join(pages.blocks_of("checkpointmanager/ETCD.md", "python"))
    for shown, here in (("http://127.0.0.1:2379", cluster.endpoints[0]), ("/var/lib/agent/claims", str(claims))):
        assert shown in program
        program = program.replace(shown, here)

    assert output_of(f"{program}\nprint(failures)", tmp_path) == ["{}"]
    assert sorted(os.listdir(claims)) == [".lock", "pod-7.json"]

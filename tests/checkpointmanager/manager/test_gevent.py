"""Under gevent the locks are gevent's own, because they come from threading: greenlets that wait lose nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gevent", reason="gevent is not installed")

UPDATES = """
from gevent import monkey

monkey.patch_all()

import sys

import gevent

from checkpointmanager import CheckpointCache, CheckpointManager, Schema

COUNT = Schema("Count", version=1, type=int)


def one_more(count):
    gevent.sleep(0)  # lets all others run between the read and the write
    return count + 1


def all_at_once(update):
    gevent.joinall([gevent.spawn(update) for _ in range(200)], raise_error=True)


with CheckpointManager(sys.argv[1], COUNT, durability="atomic") as manager:
    manager.create_checkpoint("updates", 0)
    all_at_once(lambda: manager.update_checkpoint("updates", one_more))

with CheckpointCache(CheckpointManager(sys.argv[1], COUNT, durability="atomic")) as cache:
    cache.put("changes", 0)
    all_at_once(lambda: cache.change(["changes"], lambda entries: {"changes": one_more(entries["changes"].value)}))

with CheckpointManager(sys.argv[1], COUNT) as manager:
    print([manager.get_checkpoint(key).data for key in ("updates", "changes")])
"""


def test_200_greenlets_that_change_one_key_lose_no_change(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UPDATES, str(tmp_path)], capture_output=True, text=True, timeout=500, check=False
    )
    assert (ended.stdout, ended.stderr) == ("[200, 200]\n", "")

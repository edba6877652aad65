"""A transaction of any size is one revision, on every version of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.etcd import EtcdStore

from ...long import sample
from .servers import Cluster, any_etcd, every_etcd, version_of

REMOVED = {1, 2, *range(60, 70), *range(118, 126), 200, 1984}  # where a request takes another form
SIZES = sorted({*REMOVED, *sample(range(1, 201), 17), 256, 500, 1000, 1984})


@pytest.fixture(scope="module", params=every_etcd(), ids=version_of)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(request.param or any_etcd(), tmp_path_factory.mktemp("versions"))
    yield cluster
    cluster.close()


def test_a_transaction_of_every_size_creates_replaces_and_removes_its_keys_at_once(cluster: Cluster) -> None:
    with closing(EtcdStore(cluster.endpoints, "/sizes", timeout=60)) as store:
        manager: CheckpointManager[Any] = CheckpointManager(store)
        for size in SIZES:
            keys = [f"k{number}" for number in range(size)]
            with manager.transaction() as transaction:
                for key in keys:
                    transaction.create_checkpoint(key, size)
            loaded = manager.load()
            assert {key: found.data for key, found in loaded.checkpoints.items()} == dict.fromkeys(keys, size)
            assert len({store.identity(key) for key in (keys[0], keys[size // 2], keys[-1])}) == 1, "one revision"
            if size in REMOVED:
                with manager.transaction() as transaction:
                    for key in keys:
                        transaction.remove_checkpoint(key)
                assert manager.list_checkpoints() == [], size

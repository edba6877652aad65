"""The store on etcd passes the conformance suite that is shipped for every Store."""

from __future__ import annotations

import pytest

from checkpointmanager import Store
from checkpointmanager.etcd import EtcdStore
from checkpointmanager.testing import StoreConformance


class TestEtcdStore(StoreConformance):
    @pytest.fixture
    def store(self, store: EtcdStore) -> Store:
        return store

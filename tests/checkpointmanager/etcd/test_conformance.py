"""The store on etcd is held to the suite that the kit offers for everybody's."""

from __future__ import annotations

import pytest

from checkpointmanager import Store
from checkpointmanager.etcd import EtcdStore
from checkpointmanager.testing import StoreConformance


class TestEtcdStore(StoreConformance):
    @pytest.fixture
    def store(self, store: EtcdStore) -> Store:
        return store

"""A store with a damaged checkpoint, and a manager that has written two good ones."""

from __future__ import annotations

import pytest

from checkpointmanager import CheckpointManager, Put, Replaces
from checkpointmanager.etcd import EtcdStore

from ..conftest import Opening
from .changes import Manager


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager._etcd.client.FIRST_PAUSE", 0.001)


@pytest.fixture
def store(opening: Opening) -> EtcdStore:
    store = opening()
    assert store.commit([Put("damaged", b"rubbish", 1, Replaces.ABSENT)]) == {}
    return store


@pytest.fixture
def manager(store: EtcdStore) -> Manager:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    manager.create_checkpoint("b", 1)
    return manager

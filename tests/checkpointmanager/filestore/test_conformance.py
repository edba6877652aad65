"""The common suite of all stores, on every kind of file system that an agent's directory may be on: one write path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import FileStore
from checkpointmanager.testing import StoreConformance

from ..volume import KINDS, mounted


class TestOnPyfakefs(StoreConformance):
    @pytest.fixture
    def store(self, fs: FakeFilesystem) -> Iterator[FileStore]:
        with closing(FileStore("/var/lib/agent/store")) as store:
            yield store


class TestOnTheDiskOfTheTests(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileStore]:
        with closing(FileStore(tmp_path / "store")) as store:
            yield store


class TestWithAtomicDurability(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[FileStore]:
        with closing(FileStore(tmp_path / "store", durability="atomic")) as store:
            yield store


@pytest.fixture(scope="module", params=KINDS)
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp(request.param), request.param) as mount:
        yield mount.path


class TestOnRealMounts(StoreConformance):
    """Root mounts each kind once; elsewhere these tests are skipped, with the reason."""

    @pytest.fixture
    def store(self, mount: Path) -> Iterator[FileStore]:
        number = next(number for number in itertools.count() if not (mount / f"store-{number}").exists())
        with closing(FileStore(mount / f"store-{number}")) as store:
            yield store

"""Runs the contract of stores on RocksDB in a folder, and on the disk of the simulation."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.store import StateStore
from tests.contract.store import StoreContract, StoreUnderTest
from tests.support.memory_disk import Disk, DiskStore


class RocksUnderTest(StoreUnderTest):
    """A killed process leaves its files as the operating system sees them, so a copy of them is opened next. A power
    cut loses the end of the write-ahead log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kills = 0
        self._store: RocksStore | None = None

    @property
    def folder(self) -> Path:
        return self._path / str(self._kills)

    def open(self) -> StateStore:
        self._store = RocksStore(self.folder)
        return self._store

    def kill(self) -> None:
        assert self._store is not None
        left = self.folder
        self._kills += 1
        shutil.copytree(left, self.folder)
        (self.folder / "current" / "LOCK").unlink()
        self.close()

    def cut_power(self, rng: random.Random) -> None:
        self.kill()
        newest = max((self.folder / "current").glob("*.log"), key=lambda path: path.name)
        written = newest.read_bytes()
        newest.write_bytes(written[: rng.randint(0, len(written))])

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


class DiskUnderTest(StoreUnderTest):
    """The disk of the simulation."""

    def __init__(self) -> None:
        self._disk = Disk()
        self._copies = [self._disk.copy()]
        self._store: DiskStore | None = None

    def open(self) -> StateStore:
        self._store = DiskStore(self._disk, random.Random(1), lambda partition, head: self._keep())
        return self._store

    def kill(self) -> None:
        assert self._store is not None
        self._store.cut()

    def cut_power(self, rng: random.Random) -> None:
        self.kill()
        self._disk.partitions = rng.choice(self._copies)
        self._copies = [self._disk.copy()]

    def _keep(self) -> None:
        self._copies.append(self._disk.copy())


class TestRocksStore(StoreContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[StoreUnderTest]:
        disk = RocksUnderTest(tmp_path)
        yield disk
        disk.close()


class TestSimulatedDisk(StoreContract):
    @pytest.fixture
    def disk(self) -> Iterator[StoreUnderTest]:
        yield DiskUnderTest()

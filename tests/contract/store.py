"""The contract of a store of saved state, mainly across crashes of its process. It runs unchanged on each store."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

import pytest

from eventstore.folding.hashes import row_hash
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.state_store.store import EncodedRow, SavedHead, SaveFailed, StateStore

ZONES_0, ZONES_1, ZONES_10 = (Partition(ZONES, number) for number in (0, 1, 10))


class StoreUnderTest(ABC):
    """A disk, and the store of its current process."""

    @abstractmethod
    def open(self) -> StateStore:
        """Open the store, as a starting process does."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process that has the store open."""

    @abstractmethod
    def cut_power(self, rng: random.Random) -> None:
        """Cut the power of the machine that has the store open. Some of the last writes may be lost."""


def head(position: int) -> SavedHead:
    return SavedHead("log", position, 7, 1, b"d" * 16, b"r" * 16, b"f", position - 1, b"l", 0, ())


def save(store: StateStore, partition: Partition, position: int, **tables: list[EncodedRow]) -> int:
    """Save rows in one batch; returns the amount that it adds to the digest."""
    batch = store.batch(partition)
    added = sum(batch.replace(table, rows) for table, rows in tables.items())
    batch.commit(head(position))
    return added


def position(store: StateStore, partition: Partition) -> int:
    found = store.head(partition)
    return found.position if found else 0


class StoreContract:
    """The contract. A subclass provides the fixture `disk`, its store under test."""

    def test_a_kill_loses_only_what_was_not_committed(self, disk: StoreUnderTest) -> None:
        store = disk.open()
        assert (store.head(ZONES_0), list(store.rows(ZONES_0, "nodes")), list(store.ids(ZONES_0))) == (None, [], [])
        save(store, ZONES_0, 5, nodes=[("b", b"2"), ("a", b"1")], marks=[("m", b"9")])
        uncommitted = store.batch(ZONES_0)
        uncommitted.replace("nodes", [("a", b"lost"), ("c", b"lost")])
        uncommitted.add_ids(1, b"lost")
        disk.kill()
        store = disk.open()
        assert store.head(ZONES_0) == head(5)
        assert list(store.rows(ZONES_0, "nodes")) == [("a", b"1"), ("b", b"2")]
        assert list(store.rows(ZONES_0, "marks")) == [("m", b"9")]
        assert list(store.ids(ZONES_0)) == []

    def test_a_save_returns_what_it_adds_to_the_digest(self, disk: StoreUnderTest) -> None:
        store = disk.open()
        a1, a2, b1 = (row_hash("nodes", key, row) for key, row in (("a", b"1"), ("a", b"2"), ("b", b"1")))
        assert save(store, ZONES_0, 1, nodes=[("a", b"1"), ("b", b"1")]) == a1 + b1
        assert save(store, ZONES_0, 2, nodes=[("a", b"1"), ("b", b"1")]) == 0
        assert save(store, ZONES_0, 3, nodes=[("a", b"2"), ("b", None), ("none", None)]) == a2 - a1 - b1
        batch = store.batch(ZONES_0)
        assert batch.add("nodes", ["b", "c"], [b"1", b"3"]) == b1 + row_hash("nodes", "c", b"3")
        batch.commit(head(4))
        assert list(store.rows(ZONES_0, "nodes")) == [("a", b"2"), ("b", b"1"), ("c", b"3")]

    def test_ids_are_read_by_bucket_in_the_order_of_their_addition(self, disk: StoreUnderTest) -> None:
        store = disk.open()
        for at, (bucket, chunk) in enumerate(((7, b"a"), (300, b"c"), (7, b"b"), (2, b"z")), start=1):
            batch = store.batch(ZONES_0)
            batch.add_ids(bucket, chunk)
            batch.commit(head(at))
        assert list(store.ids(ZONES_0)) == [(2, b"z"), (7, b"a"), (7, b"b"), (300, b"c")]
        batch = store.batch(ZONES_0)
        batch.forget_ids(7)
        batch.commit(head(5))
        disk.kill()
        assert list(disk.open().ids(ZONES_0)) == [(2, b"z"), (300, b"c")]

    def test_partitions_are_separate(self, disk: StoreUnderTest) -> None:
        store = disk.open()
        for number, partition in enumerate((ZONES_0, ZONES_1, ZONES_10, FLEET_0), start=1):
            batch = store.batch(partition)
            batch.replace("nodes", [("a", b"%d" % number)])
            batch.add_ids(1, b"%d" % number)
            batch.commit(head(number))
        store.forget(ZONES_1)
        assert (store.head(ZONES_1), list(store.rows(ZONES_1, "nodes")), list(store.ids(ZONES_1))) == (None, [], [])
        for number, partition in ((1, ZONES_0), (3, ZONES_10), (4, FLEET_0)):
            assert position(store, partition) == number
            assert list(store.rows(partition, "nodes")) == [("a", b"%d" % number)]
            assert list(store.ids(partition)) == [(1, b"%d" % number)]

    def test_a_power_cut_loses_only_the_last_saves(self, disk: StoreUnderTest) -> None:
        rng, done = random.Random(3), 0
        for _ in range(3):
            store = disk.open()
            for at in range(done + 1, done + 61):
                rows: list[EncodedRow] = [(f"n{at % 7}", b"%d" % at), (f"n{(at + 3) % 7}", None)]
                save(store, ZONES_0, at, nodes=rows, marks=[("mark", b"%d" % at)])
            disk.cut_power(rng)
            store = disk.open()
            found = position(store, ZONES_0)
            assert found <= done + 60
            assert dict(store.rows(ZONES_0, "marks")) == ({"mark": b"%d" % found} if found else {})
            assert dict(store.rows(ZONES_0, "nodes")) == _rows_at(found)
            done = found
            disk.kill()

    def test_a_store_of_a_killed_process_refuses_saves(self, disk: StoreUnderTest) -> None:
        store = disk.open()
        save(store, ZONES_0, 1, nodes=[("a", b"1")])
        batch = store.batch(ZONES_0)
        disk.kill()
        with pytest.raises(SaveFailed):
            batch.commit(head(2))
        with pytest.raises(SaveFailed):
            store.forget(ZONES_0)
        assert position(disk.open(), ZONES_0) == 1


def _rows_at(position: int) -> dict[str, bytes]:
    """The rows after this number of saves in the test of power cuts."""
    rows: dict[str, bytes] = {}
    for at in range(1, position + 1):
        rows[f"n{at % 7}"] = b"%d" % at
        rows.pop(f"n{(at + 3) % 7}", None)
    return rows

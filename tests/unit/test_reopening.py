"""Checks of saved state before a replica resumes from it, and of the log that the state belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from eventstore.avro.codec import encode
from eventstore.errors import FatalError, LogMismatch
from eventstore.folding.ledger import KEEP_MS
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import internal_envelope
from eventstore.log import FLEET, FLEET_0, INSTALLS, Partition
from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import SavedHead
from schemas.events import LogCreated
from tests.support.memory_log import MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_fold import ToyFold, ToyLaterFold
from tests.support.toy_records import LOG_ID, T0, Issuer, created, fact, records
from tests.support.virtual_loop import run_virtual
from tests.unit.test_replica import submit

INSTALLS_0 = Partition(INSTALLS, 0)
ALL = {1: ToyFold(), 2: ToyFold(version=2), 3: ToyLaterFold()}


def empty(rules: Mapping[int, ToyFold] = ALL) -> FoldedPartition:
    return FoldedPartition(FLEET_0, rules, LOG_ID)


@pytest.mark.parametrize(
    ("saved", "supported", "is_used"),
    [(1, [1], True), (3, [1, 3], True), (3, [1, 2], False), (2, [1], False), (1, [2], False)],
)
async def test_state_of_an_unsupported_fold_version_is_ignored(
    tmp_path: Path, saved: int, supported: list[int], is_used: bool
) -> None:
    """The rows of a later version are unreadable, and an earlier version would continue under other rules."""
    issue, store, partition = Issuer(), RocksStore(tmp_path), empty()
    raises = [issue.raise_version(version) for version in range(2, saved + 1)]
    for record in records([created(), issue.set("a"), *raises]):
        partition.fold(record)
    assert partition.version == saved
    await save(partition, store)
    found = await load_partition(empty({version: ALL[version] for version in supported}), store)
    store.close()
    assert (found is not None) == is_used
    if found is not None:
        assert (found.version, found.halted, found.position) == (saved, "", partition.position)


async def test_forgotten_ids_stay_refused_after_a_restart(tmp_path: Path) -> None:
    """Used ids are saved, because otherwise a very late copy would take effect again."""
    issue, store, partition = Issuer(), RocksStore(tmp_path), empty()
    forgotten = issue.set("a")
    later = issue.set("b", now_ms=T0 + 2 * KEEP_MS)
    for record in [*records([created(), forgotten]), *records([later], start=2, time_ms=T0 + 2 * KEEP_MS)]:
        partition.fold(record)
    assert partition.ledger.has_forgotten(forgotten.envelope.command_id)
    await save(partition, store)
    again = await load_partition(empty(), store)
    store.close()
    assert again is not None
    assert again.ledger.state() == partition.ledger.state()
    (record,) = records([forgotten], start=3, time_ms=T0 + 2 * KEEP_MS)
    entry = again.fold(record)
    assert entry is not None and "has expired: it was used, and its outcome is no longer kept" in entry.outcome.reason


async def test_deeply_nested_rows_count_as_damage(tmp_path: Path) -> None:
    store, partition = RocksStore(tmp_path), empty()
    for record in records([created(), fact("a")]):
        partition.fold(record)
    await save(partition, store)
    [(key, _)] = store._scan(b"r\0fleet/0\0policies\0")
    store._db[key] = b"\x95\x01\x80\x01\x00" + b"\x91" * 100_000 + b"\xc0"
    assert await load_partition(empty(), store) is None
    store.close()


# -- reopening a store after a failure


async def failed(path: Path) -> tuple[RocksStore, SavedHead]:
    """A store with saved state whose last write failed, and the saved head."""
    store, partition = RocksStore(path), empty()
    for record in records([created(), fact("a")]):
        partition.fold(record)
    await save(partition, store)
    head = store.head(FLEET_0)
    assert head is not None
    store._is_failing = True
    return store, head


async def test_a_failed_save_that_landed_anyway_stops_the_process(tmp_path: Path) -> None:
    store, head = await failed(tmp_path)
    store._db[b"h\0fleet/0"] = msgspec.msgpack.encode(msgspec.structs.replace(head, position=head.position + 1))
    with pytest.raises(FatalError, match="differs from the last save; restart the process"):
        store.batch(FLEET_0)
    store.close()


async def test_a_forgotten_partition_may_be_saved_again_after_a_failure(tmp_path: Path) -> None:
    store, head = await failed(tmp_path)
    store.forget(FLEET_0)
    store.batch(FLEET_0).commit(head)
    assert store.head(FLEET_0) == head
    store.close()


# -- the log that the state belongs to


def test_a_log_with_another_partition_count_is_refused() -> None:
    for count in (3, 5):
        log = MemoryLog()
        log.put(FLEET_0, created(partition_count=count))
        with pytest.raises(LogMismatch, match=f"created with {count} partitions and now has 4"):
            run_virtual(toy_replica(log).run())


@pytest.mark.virtual_clock
async def test_a_replica_has_the_generation_of_its_restored_log() -> None:
    log = MemoryLog()
    log.put(FLEET_0, LogCreated(internal_envelope("log", "test", T0), LOG_ID, 3, 4, ""))
    async with running(replica := toy_replica(log)):
        assert (replica.log_id, replica.generation) == (LOG_ID, 3)


@pytest.mark.virtual_clock
async def test_expired_reports_are_not_taken_for_another_log(tmp_path: Path) -> None:
    log, store = MemoryLog(), RocksStore(tmp_path)
    for number in range(6):
        log.contents.add(INSTALLS_0, T0 + number, b"k", encode(fact(f"p{number}")))
    async with running(replica := toy_replica(log, store=store, topics=(FLEET, INSTALLS))):
        log.contents.begins[INSTALLS_0] = 4
        del log.contents.records[INSTALLS_0][:4]
        await asyncio.sleep(200)
        assert replica.position(INSTALLS_0) == 6
    await replica.save()
    async with running(again := toy_replica(log, store=store, topics=(FLEET, INSTALLS))):
        assert (again.folded_records, again.state(INSTALLS_0).total.effects) == (0, 6)
    store.close()


@pytest.mark.virtual_clock
async def test_damaged_state_is_dropped_once(tmp_path: Path) -> None:
    """Each save contains only the changes since the last one. Dropping the state again would lose all other rows."""
    log, store, issue = MemoryLog(), RocksStore(tmp_path), Issuer()
    async with running(first := toy_replica(log, store=store)):
        await submit(first, issue.set("a"))
    await first.save()
    [(key, row)] = store._scan(b"r\0fleet/0\0policies\0")
    store._db[key + b" that was never set"] = row
    async with running(second := toy_replica(log, store=store)):
        for name in "bcd":
            await submit(second, issue.set(name))
            await second.save()
    assert [name for name, _ in store.rows(FLEET_0, "policies")] == ["a", "b", "c", "d"]
    async with running(third := toy_replica(log, store=store)):
        assert not third.folded_records
        assert sorted(third.state(FLEET_0).policies.rows) == ["a", "b", "c", "d"]
    store.close()

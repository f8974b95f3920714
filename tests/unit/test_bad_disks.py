"""Saved state on a full or damaged disk: the fold continues, and no wrong state is served."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from eventstore.errors import FatalError
from eventstore.folding.partition import FoldedPartition
from eventstore.replica_limits import ReplicaLimits
from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.saver import Saver, load_partition, save
from eventstore.state_store.store import DigestStore, SaveFailed
from tests.support.toy_records import Issuer, created, fact, records
from tests.unit.test_saver import FailingStore, empty


async def test_after_failures_saves_become_rare_and_begin_with_the_smallest_partition() -> None:
    rows = 0

    async def count(saved: int) -> None:
        nonlocal rows
        rows += saved

    async def rows_tried(now_s: float) -> int:
        nonlocal rows
        rows = 0
        await saver.save_all([large, small], now_s, count)
        return rows

    store, large, small = FailingStore(), empty(), empty()
    for record in records([created(), *[fact(f"p{i}") for i in range(1_000)]]):
        large.fold(record)
    for record in records([created(), fact("p")]):
        small.fold(record)
    saver = Saver(store, ReplicaLimits(save_every_s=1.0, save_rows=10), now_s=0.0)
    assert await rows_tried(1.0) >= 1_000
    assert saver.next_s == 3.0
    await saver.save_early(large, False, count)
    assert saver.failures == 1
    assert await rows_tried(3.0) < 10
    assert saver.next_s == 7.0
    for _ in range(10):
        await saver.save_all([large, small], saver.next_s, count)
    again_s = saver.next_s
    await saver.save_all([large, small], again_s, count)
    assert saver.next_s == again_s + 30.0
    store.broken = False
    await saver.save_all([large, small], saver.next_s, count)
    assert (large.saved_position, small.saved_position) == (1_001, 2)
    assert saver.next_s == saver.saved_s + 1.0
    store.broken = True
    for record in records([fact("p")], start=2):
        small.fold(record)
    again_s = saver.next_s
    await saver.save_all([large, small], again_s, count)
    assert saver.next_s == again_s + 2.0, "the wait after the first new failure is short again"


async def test_rows_added_in_bulk_survive_a_failed_save() -> None:
    """A run of joins adds rows in bulk, and these are saved without a comparison with former rows."""
    store, partition = FailingStore(), empty()
    for record in records([created(), fact("a")]):
        partition.fold(record)
    await _fails(partition, store)
    row = partition.state.policies.rows["a"]
    partition.state.policies.add_all({f"added-{i}": row for i in range(500)})
    partition.state.policies.put_all({f"put-{i}": row for i in range(500)})
    await _fails(partition, store)
    await _fails(partition, store)
    partition.state.policies.remove("added-7")
    store.broken = False
    await save(partition, store)
    at_once = empty()
    for table, others in zip(at_once.tables, partition.tables, strict=True):
        table.put_all(others.rows)
    await save(at_once, DigestStore())
    assert partition.digest == at_once.digest


async def _fails(partition: FoldedPartition, store: FailingStore) -> None:
    with pytest.raises(SaveFailed):
        await save(partition, store)


async def test_unreadable_command_ids_are_not_taken_for_absent_ones(tmp_path: Path) -> None:
    issue, store, partition = Issuer(), RocksStore(tmp_path), empty()
    for record in records([created(), *[issue.set("a") for _ in range(300)]]):
        partition.fold(record)
        if record.offset % 30 == 0:
            await save(partition, store)
    await save(partition, store)
    store._db.flush()
    store.close()
    [file] = (tmp_path / "current").glob("*.sst")
    whole, kept = file.read_bytes(), partition.ledger.entries
    dropped = 0
    for place in range(0, len(whole), 1_000):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with suppress(FatalError):
            store = RocksStore(tmp_path)
            again = None
            try:
                again = await load_partition(empty(), store)
                dropped += again is None
            finally:
                store.close()
            assert again is None or again.ledger.entries == kept
        file.write_bytes(whole)
    assert dropped, "no damage led to a new fold"

"""Saved state on a disk that is full, slow or damaged: the fold goes on, and nothing false is served."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from eventstore.errors import FatalError
from eventstore.pace import Pace
from eventstore.rocks_store import RocksStore, checkpoints
from eventstore.saving import Saver, restored, save
from eventstore.snapshots import SaveFailed
from tests.support.toy_log import Issuer, created, fact, records
from tests.unit.test_saving import FailingStore, empty, same


async def test_saves_of_a_store_that_fails_become_rare_and_begin_with_the_fewest_rows() -> None:
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
    saver = Saver(store, Pace(save_every_s=1.0, save_rows=10), now_s=0.0)
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


async def test_ids_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
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
    for place in range(0, len(whole), 1_000):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with suppress(FatalError):
            store = RocksStore(tmp_path)
            again = None
            try:
                again = await restored(empty(), store)
            finally:
                store.close()
            assert again is None or again.ledger.entries == kept
        file.write_bytes(whole)


async def test_no_checkpoint_is_taken_of_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(file: int) -> None:
        time.sleep(sync_s)

    async def checkpoints_after_flush() -> int:
        store.flush()
        await asyncio.sleep(0.2)
        await store.checkpoint()
        return len(checkpoints(tmp_path))

    monkeypatch.setattr("eventstore.rocks_store.os.fsync", sync)
    store, partition = RocksStore(tmp_path), empty()
    for record in records([created(), fact("a")]):
        partition.fold(record)
    await save(partition, store)
    sync_s = 0.1
    assert await checkpoints_after_flush() == 0
    sync_s = 0.5
    assert await checkpoints_after_flush() == 0
    await asyncio.sleep(0.5)
    sync_s = 0.0
    assert await checkpoints_after_flush() == 1
    store.close()


async def test_nothing_is_saved_that_would_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, partition = RocksStore(tmp_path), empty()
    for record in records([created(), fact("a")]):
        partition.fold(record)
    with monkeypatch.context() as patched:
        patched.setattr("eventstore.rocks_store._STALLING", (("rocksdb.num-immutable-mem-table", -1),))
        with pytest.raises(SaveFailed, match="too slowly"):
            await save(partition, store)
    await save(partition, store)
    again = await restored(empty(), store)
    assert again is not None
    assert same(again, partition)
    store.close()

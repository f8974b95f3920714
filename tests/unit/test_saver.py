"""Saved state is whole or absent, has the same digest after any number of saves, and is never served if damaged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.errors import FatalError, LogMismatch
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, Partition, Record
from eventstore.replica_limits import LoopBudget, ReplicaLimits
from eventstore.state_store.checkpoints import CheckpointRetention
from eventstore.state_store.rocks_store import RocksStore, list_checkpoints, open_checkpoint
from eventstore.state_store.saver import Saver, load_partition, save
from eventstore.state_store.store import DigestStore, SaveBatch, SavedHead, SaveFailed
from schemas.events import Event
from tests.support.toy_fold import ToyFold, ToyLaterFold, ToyLaterState
from tests.support.toy_records import LOG_ID, POISON, T0, Issuer, created, fact, records


def empty(log_id: str = LOG_ID) -> FoldedPartition:
    return FoldedPartition(FLEET_0, {1: ToyFold(), 2: ToyFold(version=2), 3: ToyLaterFold()}, log_id)


def story(seed: int, length: int = 120) -> list[Record]:
    """A random log: sets, deletes, refusals, repeats, internal events, poison, two version raises, and time jumps."""
    issue = Issuer(seed)
    items: list[Event | bytes] = []
    for _ in range(length):
        name = f"p{issue.rng.randrange(12)}"
        match issue.rng.choices(["set", "delete", "fact", "poison", "again"], [8, 4, 2, 1, 4])[0]:
            case "set":
                items.append(issue.set(name, issue.rng.randrange(-5, 50), labels={"b": "1", "a": name}))
            case "delete":
                items.append(issue.delete(name))
            case "fact":
                items.append(fact(name, 3))
            case "again" if items:
                items.append(issue.rng.choice(items))
            case _:
                items.append(POISON)
    items.insert(length // 3, issue.raise_version(2))
    items.insert(2 * length // 3, issue.raise_version(3))
    return stamped([created(), *items], issue)


def stamped(items: Sequence[Event | bytes], issue: Issuer) -> list[Record]:
    found, offset, now = [], 0, T0
    for item in items:
        found += [record._replace(timestamp_ms=now) for record in records([item], start=offset)]
        offset += 1 + (issue.rng.random() < 0.1)
        now += issue.rng.choice([0, 1, 400, -300])
    return found


async def whole(log: Sequence[Record]) -> FoldedPartition:
    """A partition that folded the whole log and was saved once."""
    partition = empty()
    for record in log:
        partition.fold(record)
    await save(partition, DigestStore())
    return partition


def same(one: FoldedPartition, other: FoldedPartition) -> bool:
    return facts(one) == facts(other)


def facts(partition: FoldedPartition) -> tuple[object, ...]:
    return (
        partition.position,
        partition.time_ms,
        partition.version,
        partition.running,
        partition.quarantined,
        partition.digest,
        [table.rows for table in partition.state.tables],
        partition.state.count,
        partition.ledger.entries,
        partition.ledger.state(),
        (partition.first, partition.last()),
    )


# -- the same state and digest for any saves and crashes


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000), saves=st.sets(st.integers(0, 120)), crashes=st.sets(st.integers(0, 120), max_size=5)
)
def test_any_saves_and_crashes_yield_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, seed: int, saves: set[int], crashes: set[int]
) -> None:
    async def run() -> None:
        log, path = story(seed), tmp_path_factory.mktemp("state")
        store, partition, step = RocksStore(path), empty(), 0
        while partition.position <= log[-1].offset:
            partition.fold(next(record for record in log if record.offset >= partition.position))
            step += 1
            if step in saves:
                await save(partition, store)
            if step in crashes:
                store.close()
                store = RocksStore(path)
                partition = await load_partition(empty(), store) or empty()
        await save(partition, store)
        reopened = await load_partition(empty(), store)
        store.close()
        expected = await whole(log)
        assert same(partition, expected)
        assert reopened is not None
        assert same(reopened, expected)

    asyncio.run(run())


@given(seed=st.integers(0, 10_000), saves=st.sets(st.integers(0, 120), max_size=20))
def test_the_digest_does_not_depend_on_the_number_of_saves(seed: int, saves: set[int]) -> None:
    async def run() -> None:
        log, store, partition = story(seed), DigestStore(), empty()
        for number, record in enumerate(log):
            partition.fold(record)
            if number in saves:
                await save(partition, store)
        await save(partition, store)
        assert partition.digest == (await whole(log)).digest

    asyncio.run(run())


async def test_added_and_deleted_rows_restore_the_former_digest(tmp_path: Path) -> None:
    store, partition, issue = RocksStore(tmp_path), empty(), Issuer()
    for record in records([created(), issue.set("a"), issue.set("b")]):
        partition.fold(record)
    await save(partition, store)
    before = partition.digest
    for record in records([issue.set("c"), issue.delete("c")], start=3):
        partition.fold(record)
        await save(partition, store)
    rows = dict(store.rows(FLEET_0, "policies"))
    assert sorted(rows) == ["a", "b"]
    partition.state.totals.put("all", type(partition.state.total)(2, 2))
    await save(partition, store)
    assert partition.digest == before
    store.close()


async def test_a_store_without_a_disk_forgets_deleted_rows() -> None:
    store, partition, issue = DigestStore(), empty(), Issuer()
    for record in records([created(), issue.set("stays")]):
        partition.fold(record)
    await save(partition, store)
    before = _rows_known(store)
    for number in range(20):
        for record in records([issue.set(f"p{number}"), issue.delete(f"p{number}")], start=2 + 2 * number):
            partition.fold(record)
            await save(partition, store)
    assert _rows_known(store) == before


def _rows_known(store: DigestStore) -> set[tuple[Partition, str, str]]:
    found = store._hashes.items()
    return {(partition, table, key) for partition, tables in found for table, rows in tables.items() for key in rows}


# -- failures


class FailingStore(DigestStore):
    """A store whose commits fail while `broken`."""

    broken = True

    def batch(self, partition: object) -> SaveBatch:
        inner = super().batch(FLEET_0)
        commit = inner.commit

        def failing(head: SavedHead) -> None:
            if self.broken:
                raise SaveFailed("saved state: no space left")
            commit(head)

        inner.commit = failing  # type: ignore[method-assign]
        return inner


async def test_a_failed_save_loses_no_change_and_stops_nothing() -> None:
    store, partition, log = FailingStore(), empty(), story(3)
    saver = Saver(store, ReplicaLimits(), now_s=0.0)
    for record in log[:60]:
        partition.fold(record)
    await saver.save_all([partition], now_s=1.0)
    await saver.save_all([partition], now_s=2.0)
    assert (saver.failures, partition.saved_position) == (2, 0)
    store.broken = False
    for record in log[60:]:
        partition.fold(record)
    await saver.save_all([partition], now_s=3.0)
    assert partition.saved_position == partition.position
    assert partition.digest == (await whole(log)).digest


async def test_a_cancelled_save_loses_no_change(tmp_path: Path) -> None:
    store, partition = RocksStore(tmp_path), empty()
    for record in records([created(), *[fact(f"p{i}") for i in range(1_500)]]):
        partition.fold(record)
    saving = asyncio.ensure_future(save(partition, store))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert store.head(FLEET_0) is None
    await save(partition, store)
    again = await load_partition(empty(), store)
    assert again is not None
    assert len(again.state.policies.rows) == 1_500
    store.close()


async def test_a_save_yields_to_the_loop_when_its_slice_is_over_and_not_before() -> None:
    now_s, passes, rows = 0.0, 0, 0
    budget = LoopBudget(ReplicaLimits(slice_s=1.0, slice_records=1_000), lambda: now_s)

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await asyncio.sleep(0)
            passes += 1

    async def yield_loop(saved: int) -> None:
        nonlocal now_s, rows
        rows += saved
        now_s += step_s
        await budget.yield_if_spent(saved)

    async def save_many(number: int, count: int) -> int:
        before = passes
        partition = empty()
        for record in records([created(), *[fact(f"p{number}-{i}") for i in range(count)]]):
            partition.fold(record)
        await save(partition, DigestStore(), yield_loop)
        return passes - before

    counting = asyncio.create_task(count_passes())
    await asyncio.sleep(0)
    step_s = 0.01
    assert sum([await save_many(number, 1) for number in range(10)]) == 0
    assert 10 <= rows < 100
    assert await save_many(10, 2_000) >= 2
    step_s = 1.0
    assert await save_many(11, 1) >= 1
    counting.cancel()


async def test_command_ids_are_saved_in_slices_and_loaded_whole(tmp_path: Path) -> None:
    slices: list[int] = []

    async def yield_loop(saved: int) -> None:
        slices.append(saved)

    store, partition, issue = RocksStore(tmp_path), empty(), Issuer()
    for record in records([created(), *[issue.delete("none") for _ in range(3_000)]]):
        partition.fold(record)
    await save(partition, store, yield_loop)
    assert sum(slices) == 3_000
    assert max(slices) <= 200
    again = await load_partition(empty(), store)
    assert again is not None
    assert again.ledger.entries == partition.ledger.entries
    store.close()


async def test_a_halted_partition_is_not_saved() -> None:
    partition = empty()
    for record in records([created(), fact("raise in evolve")]):
        partition.fold(record)
    saver = Saver(DigestStore(), ReplicaLimits(), now_s=0.0)
    await saver.save_all([partition], now_s=1.0)
    assert partition.halted
    assert partition.saved_position == 0


async def test_a_partition_without_folded_records_is_not_saved() -> None:
    """An initial state has rows, so a save would give this replica another digest than one that did not save."""
    store = DigestStore()
    saver = Saver(store, ReplicaLimits(), now_s=0.0)
    await saver.save_all([FoldedPartition(FLEET_0, {1: ToyFold()}, LOG_ID)], now_s=1.0)
    assert store.head(FLEET_0) is None


# -- loading at the start


async def saved_at(path: Path, log_id: str = LOG_ID) -> None:
    store, partition = RocksStore(path), empty(log_id)
    for record in records([created(log_id), fact("a"), fact("b")]):
        partition.fold(record)
    await save(partition, store)
    store.close()


async def test_the_state_of_another_log_is_refused(tmp_path: Path) -> None:
    await saved_at(tmp_path, log_id="that one")
    store = RocksStore(tmp_path)
    with pytest.raises(LogMismatch, match=f"that one.*{LOG_ID}"):
        await load_partition(empty(), store)
    store.close()


def every_row(store: RocksStore) -> list[tuple[bytes, bytes]]:
    return cast("list[tuple[bytes, bytes]]", list(store._db.items()))


async def test_rows_that_do_not_match_their_digest_are_not_served(tmp_path: Path) -> None:
    await saved_at(tmp_path)
    store = RocksStore(tmp_path)
    [(key, row)] = [(key, row) for key, row in every_row(store) if key.endswith(b"policies\0a")]
    store._db[key] = row.replace(b"\x01", b"\x02")
    assert await load_partition(empty(), store) is None
    store._db[key] = b"\xc1 not msgpack"
    assert await load_partition(empty(), store) is None
    store.forget(FLEET_0)
    assert every_row(store) == []
    store.close()


async def test_a_state_folder_has_one_process_and_one_owner(tmp_path: Path) -> None:
    store = RocksStore(tmp_path, owner="replica-1")
    with pytest.raises(FatalError, match="another process"):
        RocksStore(tmp_path)
    store.close()
    with pytest.raises(FatalError, match=r"replica-1.*replica-2"):
        RocksStore(tmp_path, owner="replica-2")
    RocksStore(tmp_path, owner="replica-1").close()
    RocksStore(tmp_path).close()


def test_a_folder_without_valid_state_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "CURRENT").write_text("nonsense\n")
    with pytest.raises(FatalError, match="delete it to fold the log again"):
        RocksStore(tmp_path)


def test_a_folder_without_write_permission_is_not_reported_as_damaged() -> None:
    with pytest.raises(FatalError, match=r"cannot be written \(.*\); give this process write permission$"):
        RocksStore(Path("/sys"))


@pytest.mark.parametrize("seed", range(12))
async def test_a_damaged_file_is_detected_or_harmless(tmp_path: Path, seed: int) -> None:
    log, rng = story(5), random.Random(seed)
    store, partition = RocksStore(tmp_path), empty()
    for record in log:
        partition.fold(record)
    await save(partition, store)
    store._db.flush()
    store.close()
    [file] = (tmp_path / "current").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    with suppress(FatalError):
        store = RocksStore(tmp_path)
        again = await load_partition(empty(), store)
        store.close()
        assert again is None or same(again, partition)


# -- checkpoints


async def test_a_limited_number_of_checkpoints_is_kept(tmp_path: Path) -> None:
    store, partition = RocksStore(tmp_path, retention=CheckpointRetention(states=4)), empty()
    await store.checkpoint()
    assert list_checkpoints(tmp_path) == []
    for number in range(7):
        for record in records(
            [created() if number == 0 else fact(f"p{number}")], start=number, time_ms=T0 + number * 1_000
        ):
            partition.fold(record)
        await save(partition, store)
        await store.checkpoint()
        await store.checkpoint()
    found = list_checkpoints(tmp_path)
    assert [state.records for state in found] == [1, 5, 6, 7]
    old = open_checkpoint(found[1].path)
    head = old.head(FLEET_0)
    assert head is not None
    assert (head.position, head.time_ms) == (5, T0 + 4_000)
    again = await load_partition(empty(), old)
    assert again is not None
    assert sorted(again.state.policies.rows) == ["p1", "p2", "p3", "p4"]
    old.close()
    store.close()


class CountingStore(DigestStore):
    """A store that records its flushes and checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def flush(self) -> None:
        self.asked.append("flush")

    async def checkpoint(self) -> None:
        self.asked.append("checkpoint")


async def test_a_checkpoint_is_taken_after_a_time_or_a_number_of_records() -> None:
    store, partition = CountingStore(), empty()
    saver = Saver(store, ReplicaLimits(checkpoint_s=10.0, checkpoint_records=5), now_s=0.0)
    log = records([created(), *[fact(f"p{number}") for number in range(12)]])

    async def save_at(now_s: float, folded: int) -> list[str]:
        for record in log[partition.position : partition.position + folded]:
            partition.fold(record)
        store.asked.clear()
        await saver.save_all([partition], now_s=now_s)
        return list(store.asked)

    assert await save_at(1.0, 2) == []
    assert await save_at(10.0, 1) == ["flush"]
    assert await save_at(11.0, 0) == ["checkpoint"]
    assert await save_at(12.0, 4) == []
    assert await save_at(13.0, 1) == ["flush"]
    assert await save_at(14.0, 1) == ["checkpoint"]
    assert await save_at(15.0, 3) == []


# -- fold versions


async def test_a_version_raise_deletes_the_saved_rows_of_the_former_state(tmp_path: Path) -> None:
    issue, store, partition = Issuer(), RocksStore(tmp_path), empty()
    before: list[Event | bytes] = [created(), issue.set("stays", 5), issue.set("goes", -5)]
    for record in records(before):
        partition.fold(record)
    await save(partition, store)
    assert [key for key, _ in store.rows(FLEET_0, "totals")] == ["all"]
    for record in records([issue.delete("stays"), issue.set("late", 1), issue.raise_version(3)], start=len(before)):
        partition.fold(record)
    await save(partition, store)
    assert {name: [key for key, _ in store.rows(FLEET_0, name)] for name in ("policies", "totals", "sums")} == {
        "policies": ["late"],
        "totals": [],
        "sums": ["all"],
    }
    again = await load_partition(empty(), store)
    assert again is not None
    assert isinstance(again.state, ToyLaterState)
    assert facts(again) == facts(partition)
    store.close()


async def test_state_of_a_later_fold_version_is_ignored_by_an_older_binary(tmp_path: Path) -> None:
    store, partition = RocksStore(tmp_path), empty()
    for record in records([created(), Issuer().raise_version(3)]):
        partition.fold(record)
    await save(partition, store)
    older = FoldedPartition(FLEET_0, {1: ToyFold(), 2: ToyFold(version=2)}, LOG_ID)
    assert await load_partition(older, store) is None
    store.close()

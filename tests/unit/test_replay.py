"""A replay yields the state of a replica at any cut, from the beginning or from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventstore.avro.codec import encode
from eventstore.errors import LogMismatch, LogUnavailable, PermanentError
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET, FLEET_0, INSTALLS, ZONES, Partition, Record
from eventstore.progress import Progress
from eventstore.recovery.replay import cut_at_position, cut_at_time, replay
from eventstore.state_store.rocks_store import RocksStore, list_checkpoints, open_checkpoint
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import digest_bytes
from schemas.events import Event
from tests.support.memory_log import Contents, MemoryLog
from tests.support.toy_fold import ToyFold
from tests.support.toy_records import LOG_ID, T0, created, fact

FOLDS = [ToyFold(FLEET), ToyFold(ZONES)]
ZONES_1 = Partition(ZONES, 1)


def filled(count: int = 40) -> MemoryLog:
    """A log with one internal event per second, alternately in fleet and in zones/1."""
    contents = Contents(2)
    for partition in (FLEET_0, Partition(ZONES, 0), ZONES_1):
        contents.add(partition, T0, b"", encode(created(partition_count=2)))
    for i in range(count):
        contents.add((FLEET_0, ZONES_1)[i % 2], T0 + 1_000 * (i + 1), b"k", encode(fact(f"p{i % 7}", i)))
    return MemoryLog(contents, lambda: T0)


async def state_at(log: MemoryLog, partition: Partition, position: int) -> FoldedPartition:
    """The partition folded record by record up to this position."""
    folded = FoldedPartition(partition, {1: ToyFold(partition.topic)}, LOG_ID)
    for record in log.contents.records[partition][:position]:
        folded.fold(record)
    return folded


async def test_a_replay_folds_and_counts_all_records() -> None:
    log = filled()
    done = await replay(log, FOLDS)
    assert done.records == 43
    assert done.bytes == sum(len(r.key) + len(r.value) for rs in log.contents.records.values() for r in rs)
    assert {str(p): folded.position for p, folded in done.partitions.items()} == {
        "fleet/0": 21,
        "zones/0": 1,
        "zones/1": 21,
    }
    assert done.partitions[FLEET_0].state.total == (await state_at(log, FLEET_0, 21)).state.total


async def test_digests_at_positions_equal_those_of_a_replica_saved_there() -> None:
    log = filled()
    done = await replay(log, FOLDS, digests_at={FLEET_0: [5, 1, 18], ZONES_1: [21]})
    assert sorted(done.digests[FLEET_0]) == [1, 5, 18, 21]
    assert sorted(done.digests[ZONES_1]) == [21]
    for position, digest in done.digests[FLEET_0].items():
        folded = await state_at(log, FLEET_0, position)
        again = await replay(log, [ToyFold(FLEET)], until={FLEET_0: position})
        assert again.digests[FLEET_0] == {position: digest}
        assert again.partitions[FLEET_0].state.policies.rows == folded.state.policies.rows


async def test_a_cut_by_position_cuts_other_partitions_at_its_time() -> None:
    log = filled()
    cut = await cut_at_position(log, [FLEET, ZONES], {FLEET_0: 4})
    assert cut == {FLEET_0: 4, Partition(ZONES, 0): 1, ZONES_1: 3}
    done = await replay(log, FOLDS, until=cut)
    assert done.partitions[ZONES_1].time_ms <= done.partitions[FLEET_0].time_ms
    assert await cut_at_position(log, [FLEET], {FLEET_0: 0}) == {FLEET_0: 0}
    with pytest.raises(PermanentError, match=r"fleet/0.*21.*99"):
        await cut_at_position(log, [FLEET], {FLEET_0: 99})
    with pytest.raises(PermanentError, match="'fleet/7' is not a partition of this log"):
        await cut_at_position(log, [FLEET], {Partition(FLEET, 7): 1})


async def test_a_cut_by_time_includes_all_records_up_to_that_time() -> None:
    log = filled()
    assert await cut_at_time(log, [FLEET, ZONES], T0 - 1) == {FLEET_0: 0, Partition(ZONES, 0): 0, ZONES_1: 0}
    assert await cut_at_time(log, [FLEET, ZONES], T0 + 3_000) == {FLEET_0: 3, Partition(ZONES, 0): 1, ZONES_1: 2}
    assert (await cut_at_time(log, [FLEET], T0 * 2))[FLEET_0] == 21


@pytest.mark.parametrize(
    ("saved", "until", "records"), [(10, 21, 11), (21, 21, 0), (10, 10, 0), (11, 10, 10), (15, 12, 12)]
)
async def test_a_replay_starts_from_a_checkpoint_before_its_cut(
    tmp_path: Path, saved: int, until: int, records: int
) -> None:
    log, store = filled(), RocksStore(tmp_path)
    await save(await state_at(log, FLEET_0, saved), store)
    await store.checkpoint()
    store.close()
    start = open_checkpoint(list_checkpoints(tmp_path)[-1].path)
    done = await replay(log, [ToyFold(FLEET)], until={FLEET_0: until}, start=start)
    start.close()
    assert done.records == records
    assert done.digests == (await replay(log, [ToyFold(FLEET)], until={FLEET_0: until})).digests


async def test_a_checkpoint_later_than_a_wanted_digest_is_not_used(tmp_path: Path) -> None:
    log, store = filled(), RocksStore(tmp_path)
    await save(await state_at(log, FLEET_0, 10), store)
    done = await replay(log, [ToyFold(FLEET)], digests_at={FLEET_0: [5]}, start=store)
    assert done.records == 21
    folded = await load_partition(FoldedPartition(FLEET_0, {1: ToyFold()}, LOG_ID), store)
    assert folded is not None
    assert digest_bytes(folded.digest).hex() not in done.digests[FLEET_0].values()
    store.close()


async def test_a_replay_of_reports_begins_at_the_first_unexpired_one() -> None:
    log, installs = filled(), Partition(INSTALLS, 0)
    for number in range(10):
        log.contents.add(installs, T0 + number, b"k", encode(fact(f"p{number}")))
    del log.contents.records[installs][:8]
    log.contents.begins[installs] = 8
    done = await replay(log, [ToyFold(INSTALLS)], until={installs: 10, Partition(INSTALLS, 1): 0})
    assert (done.records, done.partitions[installs].position) == (2, 10)


async def test_an_observer_gets_each_record_and_the_state_after_it() -> None:
    seen: list[tuple[int, int]] = []

    def observe(folded: FoldedPartition, record: Record, _: object) -> None:
        seen.append((record.offset, folded.state.total.effects))

    await replay(filled(), [ToyFold(FLEET)], observer=observe)
    assert seen == [(offset, offset) for offset in range(21)]


async def test_a_halted_partition_ends_its_replay_and_no_other() -> None:
    log = filled()
    bad: Event = fact("raise in evolve")
    log.contents.records[FLEET_0].insert(9, Record(8, T0, b"", encode(bad)))
    log.contents.records[FLEET_0] = [r._replace(offset=i) for i, r in enumerate(log.contents.records[FLEET_0])]
    done = await replay(log, FOLDS, digests_at={FLEET_0: [3, 15]})
    assert done.partitions[FLEET_0].position == 9
    assert "a bug in evolve" in done.partitions[FLEET_0].halted
    assert sorted(done.digests[FLEET_0]) == [3]
    assert done.partitions[ZONES_1].position == 21


async def test_another_log_is_refused() -> None:
    log = filled()
    log.contents.records[ZONES_1][0] = Record(0, T0, b"", encode(created("another")))
    with pytest.raises(LogMismatch, match=r"zones/1.*another"):
        await replay(log, FOLDS)


async def test_a_closed_log_is_unavailable() -> None:
    log = filled()
    await log.close()
    with pytest.raises(LogUnavailable):
        await replay(log, FOLDS)


def test_a_long_fold_reports_its_progress() -> None:
    told: list[tuple[str, float]] = []
    progress = Progress({FLEET_0: 0}, {FLEET_0: 20}, 0.0, lambda what, share: told.append((what, share)))
    for position in (5, 20):
        progress.records = position
        progress.report({FLEET_0: position}, 1.0)
    assert told == [("5 records", 0.25), ("20 records", 1.0)]

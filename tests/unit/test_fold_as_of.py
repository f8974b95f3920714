"""Folds as of a point in the past: from the nearest usable state checkpoints exactly to the cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from eventstore.as_of import check_not_in_future, format_time, parse_as_of, parse_duration, parse_time
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import LogMismatch, PermanentError
from eventstore.ids import internal_envelope
from eventstore.log import FLEET, FLEET_0, INSTALLS, ZONES, Partition, Record
from eventstore.position import Position, to_token
from eventstore.recovery.cuts import Cut, cut_of
from eventstore.recovery.fold_as_of import FoldedLogAsOf, fold_as_of
from eventstore.replicas.lineage import parent_text
from eventstore.state_store.checkpoints import StateCheckpoint
from eventstore.state_store.rocks_store import RocksStore, list_checkpoints
from eventstore.state_store.saver import save
from schemas.events import LogCreated
from tests.contract.engine import numbered, put
from tests.support.embedded import Clock
from tests.support.memory_log import MemoryLog
from tests.support.toy_fold import ToyFold
from tests.support.toy_records import LOG_ID, T0, created, fact
from tests.unit.test_replay import FOLDS, ZONES_1, filled, state_at

ZONES_0 = Partition(ZONES, 0)
INSTALLS_0 = Partition(INSTALLS, 0)


async def archive_of(path: Path, *saves: dict[Partition, int]) -> list[StateCheckpoint]:
    """State checkpoints with the partitions saved at these positions, one after the other."""
    log = filled()
    for positions in saves:
        store = RocksStore(path)
        for partition, position in positions.items():
            store.forget(partition)
            await save(await state_at(log, partition, position), store)
        await store.checkpoint()
        store.close()
    return list_checkpoints(path)


async def folded(log: MemoryLog, cut: Cut, checkpoints: list[StateCheckpoint]) -> tuple[FoldedLogAsOf, int]:
    """The folded log as of the cut, and the number of records folded for it."""
    said = [(0, 0)]
    past = await fold_as_of(log, FOLDS, cut, checkpoints, lambda done, total: said.append((done, total)))
    assert said[-1][0] == said[-1][1]
    for partition in (FLEET_0, ZONES_0, ZONES_1):
        by_hand = await state_at(log, partition, cut.offsets[partition])
        assert past.position(partition) == by_hand.position == cut.offsets[partition]
        assert past.state(partition).policies.rows == by_hand.state.policies.rows
        assert past.state(partition).count == by_hand.state.count
        assert past.folded(partition).running == by_hand.running
    return past, said[-1][1]


def cut(fleet: int, zones_1: int, time_ms: int = T0 + 99_000) -> Cut:
    return Cut({FLEET_0: fleet, ZONES_0: 1, ZONES_1: zones_1}, time_ms)


async def test_each_partition_starts_from_its_own_nearest_checkpoint(tmp_path: Path) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4, ZONES_1: 5}, {FLEET_0: 12, ZONES_1: 10}, {FLEET_0: 18})
    past, records = await folded(filled(), cut(15, 8), checkpoints)
    assert records == (15 - 12) + 1 + (8 - 5)
    assert (past.log_id, past.generation, past.ends_seen_ms) == (LOG_ID, 1, T0 + 99_000)
    assert (await folded(filled(), cut(21, 21), checkpoints))[1] == (21 - 18) + 1 + (21 - 10)
    assert (await folded(filled(), cut(3, 2), checkpoints))[1] == 3 + 1 + 2
    assert (await folded(filled(), cut(0, 0), checkpoints))[1] == 1


async def test_checkpoints_later_than_the_cut_are_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4}, {FLEET_0: 12})
    shutil.rmtree(checkpoints[1].path)
    assert (await folded(filled(), cut(8, 1, checkpoints[1].time_ms - 1), checkpoints))[1] == (8 - 4) + 1 + 1
    assert caplog.messages == [], "an attempt to open a missing checkpoint is logged"


async def test_a_checkpoint_is_used_for_a_cut_at_its_own_position(tmp_path: Path) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4}, {FLEET_0: 12})
    assert (await folded(filled(), cut(12, 1, checkpoints[1].time_ms), checkpoints))[1] == 0 + 1 + 1


async def test_checkpoints_older_than_the_nearest_complete_one_are_not_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4, ZONES_1: 2}, {FLEET_0: 8})
    shutil.rmtree(checkpoints[0].path)
    assert (await folded(filled(), cut(15, 0), checkpoints))[1] == (15 - 8) + 1
    assert caplog.messages == []


async def test_a_checkpoint_has_the_time_of_its_newest_record_and_the_record_count(tmp_path: Path) -> None:
    """With the time of the oldest record, a checkpoint could contain records later than the cut it is used for."""
    [state] = await archive_of(tmp_path, {FLEET_0: 4, ZONES_1: 9})
    newest = filled().contents.records[ZONES_1][8]
    assert (state.time_ms, state.records) == (newest.timestamp_ms, 4 + 9)


async def test_saved_state_of_another_log_is_refused_and_not_skipped(tmp_path: Path) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4})
    another = filled()
    for partition in (FLEET_0, ZONES_0, ZONES_1):
        another.contents.records[partition][0] = Record(0, T0, b"", encode(created("another", partition_count=2)))
    with pytest.raises(LogMismatch, match="it belongs to log"):
        await fold_as_of(another, FOLDS, cut(15, 8), checkpoints, lambda done, total: None)


@pytest.mark.parametrize(("begin", "until", "count"), [(2, 5, 3), (5, 5, 0), (8, 5, 0)])
async def test_a_display_topic_is_folded_from_its_beginning_to_the_cut(begin: int, until: int, count: int) -> None:
    log = filled()
    for number in range(10):
        log.contents.add(INSTALLS_0, T0 + number, b"k", encode(fact(f"p{number}")))
    del log.contents.records[INSTALLS_0][:begin]
    log.contents.begins[INSTALLS_0] = begin
    moment = Cut({FLEET_0: 1, INSTALLS_0: until, Partition(INSTALLS, 1): 0}, T0 + 99_000)
    past = await fold_as_of(log, [ToyFold(FLEET), ToyFold(INSTALLS)], moment, [], lambda done, total: None)
    assert past.position(INSTALLS_0) == until
    assert past.state(INSTALLS_0).total.effects == count


RESTORED_MS = T0 + 15_500


@pytest.mark.parametrize(
    ("fleet", "time_ms", "generation"),
    [(8, RESTORED_MS - 1, 1), (8, RESTORED_MS, 2), (9, RESTORED_MS - 1, 2), (9, RESTORED_MS + 9_000, 2)],
)
async def test_a_cut_before_a_restore_has_the_generation_of_the_parent(
    fleet: int, time_ms: int, generation: int
) -> None:
    """A cut after the restore has the new generation, even if fleet has no record since (restored with --thawed)."""
    log = filled()
    parent = created("parent", partition_count=2)
    origin = LogCreated(
        internal_envelope("log", "test", RESTORED_MS),
        LOG_ID,
        2,
        2,
        parent_text(parent, Position("parent", {FLEET_0: 8})),
    )
    for partition in (FLEET_0, ZONES_0, ZONES_1):
        log.contents.records[partition][0] = Record(0, T0, b"", encode(origin))
    past, _ = await folded(log, cut(fleet, 1, time_ms), [])
    assert past.generation == generation


async def test_a_missing_or_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    checkpoints = await archive_of(tmp_path, {FLEET_0: 4}, {FLEET_0: 8}, {FLEET_0: 12})
    shutil.rmtree(checkpoints[2].path)
    for table in checkpoints[1].path.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[20] ^= 0xFF
        table.unlink()  # the file is shared with other states by a hard link
        table.write_bytes(content)
    assert (await folded(filled(), cut(15, 1), checkpoints))[1] == (15 - 4) + 1 + 1


async def test_a_checkpoint_with_a_wrong_digest_is_skipped(tmp_path: Path) -> None:
    await archive_of(tmp_path, {FLEET_0: 4})
    store = RocksStore(tmp_path)
    store.forget(FLEET_0)
    await save(await state_at(filled(), FLEET_0, 12), store)
    [(key, row), *_] = store._scan(b"r\0fleet/0\0policies\0")
    store._db[key + b" that was never set"] = row
    await store.checkpoint()
    store.close()
    assert (await folded(filled(), cut(15, 1), list_checkpoints(tmp_path)))[1] == (15 - 4) + 1 + 1


async def test_an_as_of_argument_is_a_time_or_a_position() -> None:
    log = filled()
    topics = (FLEET, ZONES)
    at_time = await cut_of(log, LOG_ID, topics, parse_as_of(str(T0 + 3_000)))
    assert at_time == Cut({FLEET_0: 3, ZONES_0: 1, ZONES_1: 2}, T0 + 3_000)
    token = to_token(Position(LOG_ID, {ZONES_1: 2}))
    assert await cut_of(log, LOG_ID, topics, parse_as_of(token)) == Cut(
        {FLEET_0: 2, ZONES_0: 1, ZONES_1: 2}, T0 + 2_000
    )
    both = {FLEET_0: 2, ZONES_1: 5}
    assert await cut_of(log, LOG_ID, topics, to_token(Position(LOG_ID, both))) == Cut(both | {ZONES_0: 1}, T0 + 8_000)
    now = {FLEET_0: 21, ZONES_1: 21}
    assert (await cut_of(log, LOG_ID, topics, to_token(Position(LOG_ID, now)))).offsets == now | {ZONES_0: 1}
    with pytest.raises(
        PermanentError, match=r"^as_of: 2023-11-14T22:13:19.999Z is before the first record of this log, at 2023"
    ):
        await cut_of(log, LOG_ID, topics, T0 - 1)
    with pytest.raises(PermanentError, match=r"^as_of: position: zones/1 ends at 21, before 22$"):
        await cut_of(log, LOG_ID, topics, to_token(Position(LOG_ID, {ZONES_1: 22})))


async def test_a_position_stays_valid_after_its_reports_expire(tmp_path: Path) -> None:
    """The time of the cut comes from the records of the other partitions, which do not expire."""
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=1, now_ms=Clock(T0)) as log:
        for partition, count in ((FLEET_0, 2), (INSTALLS_0, 9), (ZONES_0, 2)):
            await put(log, partition, *numbered("v", count))
        log.expire(INSTALLS_0, 8)
        topics = (FLEET, INSTALLS, ZONES)
        named = {FLEET_0: 1, INSTALLS_0: 3, ZONES_0: 1}
        assert await cut_of(log, LOG_ID, topics, to_token(Position(LOG_ID, named))) == Cut(named, T0)
        with pytest.raises(PermanentError, match=r"^as_of: position: the record before it in installs/0 has expired$"):
            await cut_of(log, LOG_ID, topics, to_token(Position(LOG_ID, {INSTALLS_0: 3})))


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000000", T0),
        ("2023-11-14T22:13:20Z", T0),
        ("2023-11-14T22:13:20.5", T0 + 500),
        ("2023-11-15T00:13:20+02:00", T0),
        ("yesterday", None),
        ("", None),
        ("-1", None),
        ("²", None),
        ("9" * 19, None),
        ("9" * 5_000, None),
    ],
)
def test_times_are_parsed_in_the_forms_that_users_write(text: str, time_ms: int | None) -> None:
    assert parse_time(text) == time_ms
    if time_ms is None:
        with pytest.raises(PermanentError, match="must be the position of an answer, a time"):
            parse_as_of(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("10", None),
        ("m", None),
        ("10M", None),
        ("-10m", None),
        ("1.5h", None),
        ("10m ", None),
        ("²m", None),
        ("9" * 10 + "s", None),
        ("1s" * 7, None),
        ("", None),
    ],
)
def test_durations_are_numbers_with_units(text: str, duration_ms: int | None) -> None:
    assert parse_duration(text) == duration_ms
    assert duration_ms is None or parse_time(text) is None, "a text must not be both a time and a duration"


def test_a_time_in_the_future_is_refused_with_both_times() -> None:
    check_not_in_future(T0, T0)
    check_not_in_future("token:fleet/0=1", 0)
    with pytest.raises(PermanentError) as refused:
        check_not_in_future(T0 + 1, T0)
    assert (
        str(refused.value)
        == "as_of: 2023-11-14T22:13:20.001Z is in the future: this host's time is 2023-11-14T22:13:20.000Z"
    )
    assert format_time(10**30) == f"{10**30} ms"

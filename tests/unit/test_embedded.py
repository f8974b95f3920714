"""The embedded log beyond the contract: ownership, group commit, append times, retention, and secondary readers."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from deploy.composition.topics import TOPICS
from eventstore.embedded import log as embedding
from eventstore.embedded import secondary
from eventstore.embedded.log import EmbeddedLog
from eventstore.embedded.rocks import Bounds, Rocks, RocksError
from eventstore.errors import AppendRefused, AppendUnknown, FatalError, LogMismatch, LogUnavailable
from eventstore.log import FLEET, FLEET_0, INSTALLS, REPLICAS, ZONES, Partition
from tests.contract.engine import first_values, numbered, put, read_all, read_to_end
from tests.support.embedded import Clock
from tests.support.virtual_loop import run_virtual

ZONES_0 = Partition(ZONES, 0)
ZONES_1 = Partition(ZONES, 1)
REPLICAS_0 = Partition(REPLICAS, 0)
INSTALLS_0 = Partition(INSTALLS, 0)
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def log(tmp_path: Path, clock: Clock) -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        yield log


# -- ownership and damage


async def test_a_second_owner_is_refused_by_the_name_of_the_directory(log: EmbeddedLog, tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=f"{tmp_path / 'log'} is in use"):
        async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=Clock()):
            pass
    await put(log, ZONES_0, b"v")


async def test_a_path_that_is_not_a_directory_is_refused(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match=f"{tmp_path / 'file'}"):
        async with EmbeddedLog.open(TOPICS, tmp_path / "file", partition_count=2, now_ms=clock):
            pass


async def test_a_refused_opening_releases_the_directory(tmp_path: Path, clock: Clock) -> None:
    for partition_count in (2, 3, 2):
        try:
            async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=partition_count, now_ms=clock) as log:
                await put(log, ZONES_0, b"v")
        except LogMismatch:
            assert partition_count == 3


async def test_a_missing_record_is_reported_as_damage(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "log"
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        await put(log, ZONES_0, *numbered("v", 10))
    db = Rdict(str(path), Options(raw_mode=True))
    del db[next(key for key in db.keys() if isinstance(key, bytes) and key.endswith(b"\x05"))]  # noqa: SIM118
    db.close()
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        with pytest.raises(LogMismatch, match="record 5 of zones/0 is missing"):
            await read_all(log, ZONES_0)


async def test_appends_to_a_removed_directory_are_not_acknowledged(log: EmbeddedLog, tmp_path: Path) -> None:
    await put(log, ZONES_0, b"v")
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogMismatch, match="removed or re-created"):
        await log.append(ZONES_0, b"zone", b"lost")


async def test_a_lack_of_file_descriptors_fails_appends_but_does_not_end_the_log(log: EmbeddedLog) -> None:
    """Without a file descriptor the log cannot check its directory, which does not mean that the directory is gone."""
    await put(log, ZONES_0, b"before")
    with _no_file_descriptors():
        with pytest.raises(LogUnavailable, match="cannot be read: Too many open files"):
            await log.append(ZONES_0, b"zone", b"meanwhile")
        await asyncio.sleep(1.2)  # the log checks its directory once a second
    await put(log, ZONES_0, b"after")
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"before", b"after"]


@contextmanager
def _no_file_descriptors() -> Iterator[None]:
    """Lower the limit of open files so that this process can open no other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- appends


async def test_concurrent_appends_share_one_sync(log: EmbeddedLog) -> None:
    await asyncio.gather(*[log.append(ZONES_0, b"zone", b"%d" % i) for i in range(400)])
    assert 1 <= log.batches <= 4
    assert await log.end(ZONES_0) == 400


def lingered_s(path: Path, *rounds: Sequence[tuple[Partition, int]]) -> list[float]:
    """The seconds for which each round lingered. A round appends several records to each of its partitions at once."""

    async def scenario() -> list[float]:
        clock, lingered = asyncio.get_running_loop().time, []
        async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=Clock()) as log:
            for appends in rounds:
                began_s = clock()
                await asyncio.gather(*[log.append(at, b"zone", b"v") for at, count in appends for _ in range(count)])
                lingered.append(clock() - began_s)
        return lingered

    return run_virtual(scenario())


def test_a_batch_of_the_expected_size_does_not_linger(tmp_path: Path) -> None:
    callers = [[(ZONES_0, count)] for count in (10, 10, 10, 4)]
    first, grown, whole, part = lingered_s(tmp_path / "log", *callers)
    assert (first, whole) == (0.0, 0.0)
    assert grown > 0.0, "the number of callers may still double"
    assert part > 0.0, "six of the ten callers may still come"


def test_appends_without_waiting_callers_do_not_count_as_callers(tmp_path: Path) -> None:
    crowd, forwards = [(ZONES_0, 10)], [(ZONES_0, 8), (FLEET_0, 2)]
    *_, whole, part, whole_again = lingered_s(tmp_path / "log", *[[*crowd, (FLEET_0, 6)]] * 2, crowd, forwards, crowd)
    assert (whole, whole_again) == (0.0, 0.0), "the batch does not wait for the six forwards"
    assert part > 0.0, "two of the ten callers may still come, whatever fleet has"


@pytest.mark.parametrize(("bound", "most"), [("_BATCH_RECORDS", 4), ("_BATCH_BYTES", 64)])
def test_a_full_batch_does_not_linger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    callers = [[(ZONES_0, count)] for count in (10, 10, 4)]
    assert lingered_s(tmp_path / "waits", *callers)[-1] > 0.0
    monkeypatch.setattr(embedding, bound, most)
    assert lingered_s(tmp_path / "log", *callers)[-1] == 0.0


async def test_the_queue_is_bounded_and_every_append_gets_its_turn(log: EmbeddedLog) -> None:
    appends = [log.append(ZONES_0, b"zone", b"%02d" % i + bytes(900_000), timeout_s=60) for i in range(80)]
    assert log.queued_bytes < 34 << 20
    await asyncio.gather(*appends)
    assert await log.end(ZONES_0) == 80
    assert log.queued_bytes == 0


async def test_append_time_goes_back_after_a_clock_was_hours_ahead(log: EmbeddedLog, clock: Clock) -> None:
    right_ms = 10 * HOUR_MS
    for ms in (right_ms, right_ms + 2 * HOUR_MS, right_ms + 1_000, right_ms + 500):
        clock.ms = ms
        await put(log, ZONES_0, b"v")
    stamps = [record.timestamp_ms - right_ms for record in await read_all(log, ZONES_0)]
    assert stamps == [0, 2 * HOUR_MS, 1_000, 1_000]


async def test_the_position_at_a_time_is_found_although_the_clock_stepped_back(tmp_path: Path, clock: Clock) -> None:
    """The owner and a secondary find it, also after a restart and several steps of the clock."""
    path, hours = tmp_path / "log", [0, 2, 3, 1, 1, 4, 0, 0, 5]
    for part in (hours[:5], hours[5:]):
        async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
            for second, hour in enumerate(part):
                clock.ms = hour * HOUR_MS + 1_000 * second
                await put(log, ZONES_0, b"v")
            await put(log, ZONES_1, b"v")
            records = await read_all(log, ZONES_0)
            async with EmbeddedLog.secondary(TOPICS, path) as secondary:
                for time_ms in {record.timestamp_ms + more for record in records for more in (-1, 0, 1)}:
                    first = next((each.offset for each in records if each.timestamp_ms >= time_ms), len(records))
                    assert await log.position_at(ZONES_0, time_ms) == first
                    assert await secondary.position_at(ZONES_0, time_ms) == first
    assert len(records) == len(hours)


async def test_append_time_does_not_follow_small_steps_back(tmp_path: Path, clock: Clock) -> None:
    times = (5_000, 4_000, 6_000, 1_000)
    for ms in times:
        clock.ms = ms
        async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
            await put(log, ZONES_0, b"v")
            records = await read_all(log, ZONES_0)
    assert [record.timestamp_ms for record in records] == [5_000, 5_000, 6_000, 6_000]


async def test_a_bug_fails_all_callers_of_the_log(tmp_path: Path) -> None:
    def broken_clock() -> int:
        raise ZeroDivisionError("no time")

    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=broken_clock) as log:
        reading = asyncio.create_task(read_to_end(log, {ZONES_0: 0}, {ZONES_0: 1}))
        with pytest.raises(AppendUnknown):
            await log.append(ZONES_0, b"zone", b"v", timeout_s=60)
        with pytest.raises(FatalError, match="no time"):
            await reading
        with pytest.raises(FatalError, match="no time"):
            await log.append(ZONES_0, b"zone", b"v")


# -- reads


async def test_a_long_partition_does_not_starve_a_short_one(log: EmbeddedLog) -> None:
    appends = [log.append(ZONES_0, b"zone", b"%d" % i) for i in range(3_000)]
    await asyncio.gather(*appends, log.append(ZONES_1, b"zone", b"short"))
    async with aclosing(log.read({ZONES_0: 0, ZONES_1: 0})) as batches:
        first, second = await anext(batches), await anext(batches)
    assert {first[0], second[0]} == {ZONES_0, ZONES_1}
    assert max(len(first[1]), len(second[1])) < 1_000


async def test_a_batch_is_bounded_in_bytes(log: EmbeddedLog) -> None:
    await put(log, ZONES_0, *[bytes(200_000)] * 20)
    async with aclosing(log.read({ZONES_0: 0})) as batches:
        sizes = [sum(len(record.value) for record in (await anext(batches))[1]) for _ in range(3)]
    assert max(sizes) <= 1_000_000


async def test_a_reader_lets_waiting_tasks_run(log: EmbeddedLog) -> None:
    await put(log, ZONES_0, *[bytes(100_000)] * 50)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await read_all(log, ZONES_0)
    task.cancel()
    assert turns >= 5


# -- retention


async def _beacons_of_three_hours(path: Path) -> tuple[list[int], int, int]:
    clock = Clock()
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        start = clock.ms
        for _ in range(18):
            for partition in (REPLICAS_0, INSTALLS_0, ZONES_0):
                await put(log, partition, b"v")
            clock.ms += HOUR_MS // 6
            await asyncio.sleep(HOUR_MS / 6_000)
        await asyncio.sleep(HOUR_MS / 6_000)
        kept = [record.timestamp_ms - start for record in await read_all(log, REPLICAS_0)]
        return kept, await log.begin(INSTALLS_0), await log.begin(ZONES_0)


def test_beacons_stay_for_an_hour_and_reports_for_longer(tmp_path: Path) -> None:
    kept, installs, zones = run_virtual(_beacons_of_three_hours(tmp_path / "log"))
    assert kept == [HOUR_MS // 6 * i for i in range(11, 18)]
    assert (installs, zones) == (0, 0)


async def test_the_last_record_stays_and_determines_the_next_offset(tmp_path: Path, clock: Clock) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        await put(log, REPLICAS_0, *numbered("v", 5))
        log.expire(REPLICAS_0, 5)
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        assert (await log.begin(REPLICAS_0), await log.end(REPLICAS_0)) == (4, 5)
        await put(log, REPLICAS_0, b"next")
        assert [(r.offset, r.value) for r in await read_all(log, REPLICAS_0)] == [(4, b"v-4"), (5, b"next")]


async def test_a_reader_of_expired_records_gets_an_error(log: EmbeddedLog) -> None:
    await put(log, REPLICAS_0, *numbered("v", 10))
    async with aclosing(log.read({REPLICAS_0: 0})) as batches:
        log.expire(REPLICAS_0, 6)
        with pytest.raises(LogMismatch, match="position 0 of replicas/0"):
            await anext(batches)


async def _expired_once(path: Path, clock: Clock) -> None:
    """Append five beacons, and a sixth after more than an hour. The log then looks twice for expired records."""
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        await put(log, REPLICAS_0, *numbered("v", 5))
        clock.ms += HOUR_MS + 1
        await put(log, REPLICAS_0, b"v-5")
        await asyncio.sleep(660)
        assert await log.begin(REPLICAS_0) == 0, "the first look for expired records must fail"
        await put(log, REPLICAS_0, b"v-6")
        assert first_values(await read_all(log, REPLICAS_0)) == numbered("v", 7)
        await asyncio.sleep(660)
        assert await log.begin(REPLICAS_0) == 5


def test_a_failed_read_only_delays_the_removal_of_expired_records(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_at, failures = Rocks.first_at, [RocksError("IO error")]

    def failing(rocks: Rocks, partition: Partition, time_ms: int, begin: int, end: int) -> int:
        if failures:
            raise failures.pop()
        return first_at(rocks, partition, time_ms, begin, end)

    monkeypatch.setattr(Rocks, "first_at", failing)
    run_virtual(_expired_once(tmp_path / "log", clock))
    assert not failures


async def test_removing_expired_records_does_not_sync_the_disk(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync for every partition would block the loop."""
    await put(log, REPLICAS_0, *numbered("v", 5))
    written: list[tuple[object, ...]] = []
    write = Rdict.write

    def seen(db: Rdict, batch: WriteBatch, *options: WriteOptions) -> None:
        written.append(options)
        write(db, batch, *options)

    monkeypatch.setattr(Rdict, "write", seen)
    log.expire(REPLICAS_0, 3)
    assert written == [()]


async def test_records_that_reappear_after_a_crash_expire_again(log: EmbeddedLog, tmp_path: Path, clock: Clock) -> None:
    await put(log, REPLICAS_0, *numbered("v", 5))
    shutil.copytree(tmp_path / "log", tmp_path / "crashed", ignore=shutil.ignore_patterns("LOCK"))
    log.expire(REPLICAS_0, 3)
    async with EmbeddedLog.open(TOPICS, tmp_path / "crashed", now_ms=clock) as after:
        assert await after.begin(REPLICAS_0) == 0
        after.expire(REPLICAS_0, 3)
        await put(after, REPLICAS_0, b"v-5")
        assert first_values(await read_all(after, REPLICAS_0)) == numbered("v", 6)[3:]


# -- secondaries


async def test_a_secondary_reads_the_log_while_its_owner_appends(log: EmbeddedLog, tmp_path: Path) -> None:
    fleet = Partition(FLEET, 0)
    await put(log, ZONES_0, b"before")
    async with EmbeddedLog.secondary(TOPICS, tmp_path / "log") as beside:
        assert beside.partition_count == 2
        assert await read_all(beside, ZONES_0) == await read_all(log, ZONES_0)
        async with aclosing(beside.read({fleet: 0})) as batches:
            waiting = asyncio.ensure_future(anext(batches))
            await put(log, fleet, b"later")
            async with asyncio.timeout(60):
                assert first_values((await waiting)[1]) == [b"later"]
        with pytest.raises(AppendRefused, match="is open read-only"):
            await beside.append(ZONES_0, b"zone", b"v")
    await put(log, ZONES_0, b"after")


async def test_a_secondary_follows_over_flushes(log: EmbeddedLog, tmp_path: Path) -> None:
    values = [b"%03d" % i + i.to_bytes(2, "big") * 150_000 for i in range(100)]
    async with EmbeddedLog.secondary(TOPICS, tmp_path / "log") as beside:
        reading = asyncio.create_task(read_to_end(beside, {ZONES_0: 0}, {ZONES_0: len(values)}))
        await put(log, ZONES_0, *values)
        async with asyncio.timeout(60):
            assert first_values((await reading)[ZONES_0]) == values
    assert len(list((tmp_path / "log").glob("*.sst"))) >= 1


class Flushed(Rocks):
    """A log of 56 records. Its owner flushes 55 of them while a secondary catches up for the first time."""

    caught_up = 0

    def catch_up(self) -> bool:
        self.caught_up += 1
        return self.caught_up <= 3

    def all_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        found = dict.fromkeys(partitions, Bounds())
        known = {0: Bounds(), 1: Bounds(), 2: Bounds(55, 56, 9)}
        return found | {ZONES_0: known.get(self.caught_up, Bounds(0, 60, 10))}


async def test_a_flush_makes_no_gap_for_a_secondary(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secondary, "open_rocks", Flushed)
    async with EmbeddedLog.secondary(TOPICS, tmp_path / "log") as beside:
        async with asyncio.timeout(60):
            while not await beside.end(ZONES_0):
                assert await beside.begin(ZONES_0) == 0
                await asyncio.sleep(0.01)
        assert (await beside.begin(ZONES_0), await beside.end(ZONES_0)) == (0, 56)


async def test_a_secondary_notices_a_recreated_directory(log: EmbeddedLog, tmp_path: Path) -> None:
    await put(log, ZONES_0, b"v")
    async with (
        EmbeddedLog.secondary(TOPICS, tmp_path / "log") as beside,
        aclosing(beside.read({ZONES_0: 1})) as batches,
    ):
        await log.close()
        shutil.rmtree(tmp_path / "log")
        async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=Clock()):
            async with asyncio.timeout(60):
                with pytest.raises(LogMismatch, match="re-created"):
                    await anext(batches)


async def test_a_secondary_works_without_an_owner(tmp_path: Path, clock: Clock) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        await put(log, ZONES_0, *numbered("v", 5))
    async with EmbeddedLog.secondary(TOPICS, tmp_path / "log") as beside:
        assert first_values(await read_all(beside, ZONES_0)) == numbered("v", 5)


async def test_a_secondary_of_a_missing_directory_is_refused_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="holds no log"):
        async with EmbeddedLog.secondary(TOPICS, tmp_path / "none"):
            pass
    assert not (tmp_path / "none").exists()

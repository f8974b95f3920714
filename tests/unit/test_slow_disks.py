"""The embedded log on a disk whose syncs hang or fail: the waits of callers, and the results of their appends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from eventstore.deadlines import Deadlines, MakeError
from eventstore.embedded.log import EmbeddedLog
from eventstore.embedded.rocks import Rocks, RocksError
from eventstore.errors import AppendUnknown, LogUnavailable
from eventstore.log import REPLICAS, ZONES, Partition
from tests.contract.engine import numbered, put, read_all, read_to_end
from tests.support.embedded import Clock

ZONES_0 = Partition(ZONES, 0)
REPLICAS_0 = Partition(REPLICAS, 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def log(tmp_path: Path, clock: Clock) -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        yield log


class SlowDisk:
    """A disk whose syncs begin, and end once `may_end` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        sync = Rocks.sync

        def slow(rocks: Rocks) -> None:
            self.begun.set()
            assert self.may_end.wait(60)
            sync(rocks)

        monkeypatch.setattr(Rocks, "sync", slow)


async def test_a_hanging_disk_delays_appends_only(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(log, ZONES_0, b"before")
    disk = SlowDisk(monkeypatch)
    with pytest.raises(AppendUnknown, match=r"not synced within 2\.0 s"):
        await log.append(ZONES_0, b"zone", b"hangs", timeout_s=2.0)
    assert disk.begun.is_set()
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"before"], (
        "reads must work while the disk hangs"
    )
    after = log.append(ZONES_0, b"zone", b"after", timeout_s=60)
    disk.may_end.set()
    await after
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"before", b"hangs", b"after"]


async def test_closing_the_log_waits_for_a_running_sync(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        disk = SlowDisk(monkeypatch)
        append = log.append(ZONES_0, b"zone", b"v", timeout_s=60)
        await asyncio.to_thread(disk.begun.wait)
        asyncio.get_running_loop().call_later(0.1, disk.may_end.set)
    with pytest.raises(AppendUnknown):
        await append
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        assert [record.value for record in await read_all(log, ZONES_0)] == [b"v"]


async def test_a_queued_append_that_is_cancelled_is_not_written(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    under_way = log.append(ZONES_0, b"zone", b"under way", timeout_s=60)
    await asyncio.to_thread(disk.begun.wait)
    log.append(ZONES_0, b"zone", b"taken back", timeout_s=60).cancel()
    last = log.append(ZONES_0, b"zone", b"last", timeout_s=60)
    disk.may_end.set()
    await asyncio.gather(under_way, last)
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"under way", b"last"]


async def test_closing_the_log_fails_appends_that_wait_for_queue_space(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        disk = SlowDisk(monkeypatch)
        appends = [log.append(ZONES_0, b"zone", bytes(900_000), timeout_s=3_600) for _ in range(60)]
        await asyncio.to_thread(disk.begun.wait)
        disk.may_end.set()
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(ends[-1], LogUnavailable), "an append that was never queued surely did not land"


async def test_the_wait_for_queue_space_counts_towards_the_timeout(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_s: list[float] = []
    put_deadline = Deadlines.put

    def noted(deadlines: Deadlines, future: asyncio.Future[None], timeout_s: float, late: MakeError) -> None:
        left_s.append(timeout_s)
        put_deadline(deadlines, future, timeout_s, late)

    monkeypatch.setattr(Deadlines, "put", noted)
    appends = [log.append(ZONES_0, b"zone", bytes(900_000), timeout_s=60) for _ in range(60)]
    at_once = len(left_s)
    await asyncio.gather(*appends)
    assert len(left_s) == 60 > at_once
    assert all(each < 60 for each in left_s[at_once:])


async def test_a_record_whose_sync_failed_is_shown_once_the_disk_works_again(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader at the end gets the record even without a further append."""

    def fails(rocks: Rocks) -> None:
        raise RocksError("IO error: no space left on device")

    reading = asyncio.create_task(read_to_end(log, {ZONES_0: 0}, {ZONES_0: 1}))
    with monkeypatch.context() as patch:
        patch.setattr(Rocks, "sync", fails)
        with pytest.raises(AppendUnknown, match="no space left"):
            await log.append(ZONES_0, b"zone", b"landed")
    async with asyncio.timeout(60):
        await reading
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"landed"]


async def test_records_expired_while_the_disk_hangs_stay_expired(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(log, REPLICAS_0, *numbered("v", 5))
    disk = SlowDisk(monkeypatch)
    append = log.append(REPLICAS_0, b"replica", b"v-5", timeout_s=60)
    await asyncio.to_thread(disk.begun.wait)
    log.expire(REPLICAS_0, 3)
    disk.may_end.set()
    await append
    assert (await log.begin(REPLICAS_0), await log.end(REPLICAS_0)) == (3, 6)

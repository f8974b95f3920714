"""The embedded log on a disk that does not sync: the waits of its callers, and the fate of landed appends."""

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
    """Syncs begin, and end when they are let: a real disk that hangs cannot be had for the asking."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        sync = Rocks.sync

        def slow(rocks: Rocks) -> None:
            self.begun.set()
            assert self.may_end.wait(60)
            sync(rocks)

        monkeypatch.setattr(Rocks, "sync", slow)


async def test_a_disk_that_hangs_keeps_only_those_waiting_who_append(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(log, ZONES_0, b"before")
    disk = SlowDisk(monkeypatch)
    with pytest.raises(AppendUnknown, match=r"not synced within 0\.2 s"):
        await log.append(ZONES_0, b"zone", b"hangs", timeout_s=0.2)
    assert disk.begun.is_set()
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"before"], "read while the disk hangs"
    after = log.append(ZONES_0, b"zone", b"after", timeout_s=60)
    disk.may_end.set()
    await after
    assert [record.value for record in await read_all(log, ZONES_0)] == [b"before", b"hangs", b"after"]


async def test_an_end_waits_for_the_sync_under_way(
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


async def test_an_append_that_was_taken_back_before_its_turn_is_not_written(
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


async def test_an_end_tells_those_who_wait_for_room(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=clock) as log:
        disk = SlowDisk(monkeypatch)
        appends = [log.append(ZONES_0, b"zone", bytes(900_000), timeout_s=3_600) for _ in range(60)]
        await asyncio.to_thread(disk.begun.wait)
        disk.may_end.set()
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(ends[-1], LogUnavailable), "it was never queued, so it is certain"


async def test_the_time_that_an_append_waits_for_room_is_of_its_own(
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


async def test_what_landed_though_its_sync_failed_is_shown_when_the_disk_takes_writes_again(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To those who read at the end, too, though nobody may append anything for long."""

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


async def test_retention_while_the_disk_hangs_stays_done(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(log, REPLICAS_0, *numbered("v", 5))
    disk = SlowDisk(monkeypatch)
    append = log.append(REPLICAS_0, b"replica", b"v-5", timeout_s=60)
    await asyncio.to_thread(disk.begun.wait)
    log.expire(REPLICAS_0, 3)
    disk.may_end.set()
    await append
    assert (await log.begin(REPLICAS_0), await log.end(REPLICAS_0)) == (3, 6)

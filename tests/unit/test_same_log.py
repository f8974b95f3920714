"""Checks that a log is still the one that a replica has folded, while reading and at a restart from saved state."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eventstore.errors import LogMismatch
from eventstore.log import FLEET_0
from eventstore.replicas.replica import Replica
from eventstore.state_store.rocks_store import RocksStore
from tests.support.memory_log import MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import T0, Issuer, fact
from tests.support.virtual_loop import run_virtual
from tests.unit.test_replica import submit

pytestmark = pytest.mark.virtual_clock


async def edited(log: MemoryLog, replica: Replica, offset: int) -> None:
    records = log.contents.records[FLEET_0]
    records[offset] = records[offset]._replace(key=b"edited")


@pytest.mark.parametrize("after_s", [0, 600], ids=["soon", "later"])
def test_an_edited_log_is_detected_within_a_minute(after_s: int) -> None:
    async def run() -> None:
        log = MemoryLog()
        replica = toy_replica(log)
        run = asyncio.ensure_future(replica.run())
        await replica.ready()
        await submit(replica, Issuer().set("a"))
        await asyncio.sleep(after_s)
        await edited(log, replica, 1)
        with pytest.raises(LogMismatch, match=r"fleet/0 changed: the record at offset 1"):
            await asyncio.wait_for(run, 70)

    run_virtual(run())


@pytest.mark.parametrize("damage", ["head edited", "last edited", "truncated by one", "refilled", "another log"])
async def test_a_restart_refuses_another_log(tmp_path: Path, damage: str) -> None:
    log, issue = MemoryLog(), Issuer()
    store = RocksStore(tmp_path)
    async with running(replica := toy_replica(log, store=store)):
        for name in "abc":
            await submit(replica, issue.set(name))
        await asyncio.sleep(2)
    fleet = log.contents.records[FLEET_0]
    match damage:
        case "head edited":
            fleet[0] = fleet[0]._replace(timestamp_ms=T0 - 1)
        case "last edited":
            fleet[3] = fleet[3]._replace(value=fleet[2].value)
        case "truncated by one":
            del fleet[3]
        case "refilled":
            del fleet[2:]
            log.put(FLEET_0, *[fact(name) for name in "xyz"])
        case "another log":
            log = MemoryLog()
    with pytest.raises(LogMismatch):
        await toy_replica(log, store=store).run()
    store.close()


async def test_the_end_of_a_log_counts_as_of_the_time_of_its_request() -> None:
    """All records appended before that time lie before the end. This proves that a command was never appended."""

    def now_ms() -> int:
        return T0 + int(asyncio.get_running_loop().time() * 1_000)

    log = MemoryLog()
    log.failures.end_latency_s = 1.0
    async with running(replica := toy_replica(log, now_ms=now_ms)):
        appended: list[tuple[int, int]] = []
        for _ in range(60):
            appended.append((log.contents.end(FLEET_0), now_ms()))
            log.put(FLEET_0, fact("a"))
            await asyncio.sleep(0.3)
            assert all(replica.end(FLEET_0) > at for at, time_ms in appended if time_ms < replica.ends_seen_ms)
        assert replica.ends_seen_ms > T0, "the end was never requested"


async def test_extra_rows_of_a_damaged_state_are_deleted_by_the_next_save(tmp_path: Path) -> None:
    """Such rows would otherwise stay beside the newly folded rows, and every later start would find damage again."""
    log, store = MemoryLog(), RocksStore(tmp_path)
    async with running(first := toy_replica(log, store=store)):
        await submit(first, Issuer().set("a"))
    await first.save()
    [(key, row)] = [(key, row) for key, row in store._scan(b"r\0fleet/0\0policies\0")]
    store._db[key + b" that was never set"] = row
    async with running(second := toy_replica(log, store=store)):
        assert second.folded_records, "the damage was not detected"
    await second.save()
    assert [name for name, _ in store.rows(FLEET_0, "policies")] == ["a"]
    async with running(third := toy_replica(log, store=store)):
        assert not third.folded_records
    store.close()

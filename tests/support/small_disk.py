"""A process whose files are limited to 3 MiB at first, to test an embedded log and saved state on a full disk.

Run as a child (`python -m tests.support.small_disk log|state DIRECTORY`): the limit holds for the whole process. It
prints its results as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import AppendUnknown
from eventstore.log import ZONES, Partition
from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import SaveFailed
from tests.contract.engine import first_values, read_all
from tests.support.embedded import Clock
from tests.support.toy_records import created, fact, records
from tests.unit.test_saver import empty

ZONES_0 = Partition(ZONES, 0)
LIMIT_BYTES = 3 << 20


def limit_files(size: int) -> None:
    """Limit the size of this process's files; a larger write raises an error, as a quota does."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


async def fill(log: EmbeddedLog) -> list[bytes]:
    """Append until an append has an unknown outcome; the values acknowledged until then."""
    acknowledged: list[bytes] = []
    while True:
        value = b"%06d" % len(acknowledged) + bytes(20_000)
        try:
            await log.append(ZONES_0, b"zone", value)
        except AppendUnknown:
            return acknowledged
        acknowledged.append(value)


async def appended_in_the_end(log: EmbeddedLog, value: bytes) -> None:
    """Repeat the append until the log accepts writes again."""
    while True:
        try:
            await log.append(ZONES_0, b"zone", value)
        except AppendUnknown:
            await asyncio.sleep(0.2)
        else:
            return


async def refused(log: EmbeddedLog) -> AppendUnknown | None:
    """The error of one more append, if it has one."""
    try:
        await log.append(ZONES_0, b"zone", b"after")
    except AppendUnknown as error:
        return error
    return None


async def log_scenario(path: Path) -> dict[str, object]:
    clock = Clock()
    limit_files(LIMIT_BYTES)
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        acknowledged = await fill(log)
        seen: dict[str, object] = {
            "acknowledged": len(acknowledged),
            "failing": log.failed_batches == 1,
            "readable_while_full": first_values(await read_all(log, ZONES_0)) == acknowledged,
        }
        await asyncio.sleep(2.5)
        seen["still_failing"] = isinstance(await refused(log), AppendUnknown)
        reader = asyncio.create_task(anext(log.read({ZONES_0: await log.end(ZONES_0)})))
        limit_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        async with asyncio.timeout(60):
            await appended_in_the_end(log, b"after")
            await reader
        seen["recovered"] = await refused(log) is None
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        values = first_values(await read_all(log, ZONES_0))
        seen["nothing_lost"] = values[: len(acknowledged)] == acknowledged and values[-1] == b"after"
    return seen


async def state_scenario(path: Path) -> dict[str, object]:
    limit_files(LIMIT_BYTES)
    store, partition = RocksStore(path), empty()
    for record in records([created(), *[fact(f"p{number}-" + "x" * 20_000) for number in range(300)]]):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            break
    saved, failed = partition.saved_position, 0
    for record in records([fact("more"), fact("and more")], start=partition.position):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            failed += 1
    limit_files(1 << 30)
    await save(partition, store)
    store.close()
    store = RocksStore(path)
    again = await load_partition(empty(), store)
    limit_files(LIMIT_BYTES)
    for record in records([fact("last"), *[fact("y" * 50_000) for _ in range(200)]], start=partition.position):
        partition.fold(record)
        try:
            await save(partition, store)
        except SaveFailed:
            break
    store.close()
    return {
        "saved": saved,
        "failed": failed,
        "restored": again is not None and again.state.policies.rows.keys() >= {"more", "and more"},
    }


SCENARIOS = {"log": log_scenario, "state": state_scenario}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2])))))

"""A process whose files are limited to 3 MiB at first, to test an embedded log on a full disk.

Run as a child (`python -m tests.support.small_disk DIRECTORY`), because the limit holds for the whole process. It
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
from tests.contract.engine import first_values, read_all
from tests.support.embedded import Clock

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


async def scenario(path: Path) -> dict[str, object]:
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
        async with asyncio.timeout(30):
            await appended_in_the_end(log, b"after")
            await reader
        seen["recovered"] = await refused(log) is None
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        values = first_values(await read_all(log, ZONES_0))
        seen["nothing_lost"] = values[: len(acknowledged)] == acknowledged and values[-1] == b"after"
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(scenario(Path(sys.argv[1])))))

"""A process that appends until it is killed, and prints each value once it is acknowledged.

Run as a child (`python -m tests.support.endless_appender DIRECTORY ROUND`). Several appenders share group commits; each
is sequential, so the order of its own values in the log is known.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.log import ZONES, Partition
from tests.support.embedded import Clock

APPENDERS = 20
PARTITIONS = 3


def value_of(round_: int, appender: int, number: int) -> bytes:
    """A value that shows whether it is complete: its name, repeated to a length that differs between values."""
    name = b"%d-%d-%d;" % (round_, appender, number)
    return name * (1 + number * 37 % 200)


async def append_for_ever(log: EmbeddedLog, round_: int, appender: int) -> None:
    partition = Partition(ZONES, appender % PARTITIONS)
    for number in count():
        await log.append(partition, b"%d" % appender, value_of(round_, appender, number), timeout_s=60)
        print(round_, appender, number, flush=True)


async def main(path: Path, round_: int) -> None:
    async with (
        EmbeddedLog.open(TOPICS, path, partition_count=PARTITIONS, now_ms=Clock()) as log,
        asyncio.TaskGroup() as tasks,
    ):
        for appender in range(APPENDERS):
            tasks.create_task(append_for_ever(log, round_, appender))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

"""The content of an embedded log after its process was killed, or its disk was full."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from pathlib import Path

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.log import ZONES
from tests.contract.engine import read_to_end
from tests.support.embedded import Clock
from tests.support.endless_appender import PARTITIONS, value_of

KILLS = 15

Acknowledged = set[tuple[int, int, int]]


async def killed_while_appending(path: Path, round_: int, least: int) -> Acknowledged:
    """Start an appender, kill it after so many acknowledgements, and return all acknowledged values."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.endless_appender", str(path), str(round_), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(90):
        first = [await child.stdout.readline() for _ in range(least)]
    child.kill()
    lines = (b"".join(first) + await child.stdout.read()).splitlines(keepends=True)
    assert await child.wait() != 0
    return {(a, b, c) for a, b, c in (map(int, line.split()) for line in lines if line.endswith(b"\n"))}


async def stored(path: Path) -> list[tuple[int, int, int]]:
    """The values in the log, after a check that each is complete and that offsets are dense."""
    found: list[tuple[int, int, int]] = []
    async with EmbeddedLog.open(TOPICS, path, partition_count=PARTITIONS, now_ms=Clock()) as log:
        everything = await read_to_end(log, dict.fromkeys(log.partitions(ZONES), 0))
    for records in everything.values():
        assert [record.offset for record in records] == list(range(len(records)))
        for record in records:
            round_, appender, number = map(int, record.value[: record.value.index(b";")].split(b"-"))
            assert record.value == value_of(round_, appender, number)
            assert record.key == b"%d" % appender
            found.append((round_, appender, number))
    return found


async def test_kill_9_loses_no_acknowledged_record_and_leaves_no_torn_one(tmp_path: Path) -> None:
    rng = random.Random(20_240_817)
    acknowledged: Acknowledged = set()
    for round_ in range(KILLS):
        acknowledged |= await killed_while_appending(tmp_path / "log", round_, rng.randrange(1, 500))
        found = await stored(tmp_path / "log")
        assert acknowledged <= set(found)
        by_appender: dict[tuple[int, int], list[int]] = defaultdict(list)
        for r, appender, number in found:
            by_appender[r, appender].append(number)
        assert all(numbers == list(range(len(numbers))) for numbers in by_appender.values())


async def test_a_full_disk_fails_appends_only_and_only_while_it_is_full(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.small_disk", "log", str(tmp_path / "log"), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(120):
        output, _ = await child.communicate()
    seen = json.loads(output)
    assert 100 < seen.pop("acknowledged") < 200
    assert seen == dict.fromkeys(("failing", "readable_while_full", "still_failing", "recovered", "nothing_lost"), True)

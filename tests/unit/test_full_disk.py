"""A full disk delays saves only; a process even starts on a full disk without saved state."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

import pytest

from eventstore.log import FLEET_0
from eventstore.replicas.replica import Replica
from projections.fleet.fold import FleetFold
from tests.support.memory_disk import Disk, DiskStore
from tests.support.memory_log import Contents, MemoryLog


@pytest.mark.virtual_clock
async def test_a_replica_starts_on_a_full_disk_and_saves_when_there_is_room() -> None:
    disk = Disk()
    disk.failures = 1.0
    log = MemoryLog(Contents(1), lambda: 0)
    store = DiskStore(disk)
    rng = random.Random(1)
    replica = Replica(log, [FleetFold(1)], store=store, name="a", now_ms=lambda: 0, rng=rng)
    running = asyncio.create_task(replica.run())
    await asyncio.wait_for(replica.ready(), 5.0)
    await asyncio.sleep(3.0)
    assert not running.done()
    assert disk.partitions.get(FLEET_0) is None or not disk.partitions[FLEET_0].head
    disk.failures = 0.0
    await asyncio.sleep(3.0)
    assert disk.partitions[FLEET_0].head
    running.cancel()


async def test_saves_continue_when_there_is_room_again(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.small_disk",
        "state",
        str(tmp_path / "state"),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, _ = await child.communicate()
    seen = json.loads(output)
    assert 100 < seen.pop("saved") < 200
    assert seen == {"failed": 2, "restored": True}

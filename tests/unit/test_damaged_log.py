"""An embedded log with damaged files: an unreadable part is an error and is never treated as empty."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.embedded.rocks import Bounds, Rocks, RocksError
from eventstore.errors import FatalError, LogUnavailable
from eventstore.log import CLIQUES, FLEET_0, INSTALLS, ZONES, Partition
from tests.contract.engine import put, read_all
from tests.support.embedded import Clock

CLIQUES_1 = Partition(CLIQUES, 1)
INSTALLS_0 = Partition(INSTALLS, 0)
ZONES_0 = Partition(ZONES, 0)


async def test_an_unreadable_partition_is_never_treated_as_empty(tmp_path: Path) -> None:
    path, clock, rng = tmp_path / "log", Clock(), random.Random(1)
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
        for partition in (CLIQUES_1, FLEET_0, INSTALLS_0, ZONES_0):
            for size in (100, 100, 9_000):  # fill a block, so that the next partition begins in another one
                await put(log, partition, rng.randbytes(size))
        ends = {partition: await log.end(partition) for partition in (CLIQUES_1, FLEET_0, INSTALLS_0, ZONES_0)}
        assert log._rocks is not None
        log._rocks._db.flush()
    [file] = path.glob("*.sst")
    whole = file.read_bytes()
    refused = 0
    for place in range(0, len(whole), 500):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=clock) as log:
                assert {partition: await log.end(partition) for partition in ends} == ends
        except FatalError:
            refused += 1
        with suppress(FatalError, LogUnavailable):
            async with EmbeddedLog.secondary(TOPICS, path) as beside:
                assert {partition: await beside.end(partition) for partition in ends} == ends
        file.write_bytes(whole)
    assert refused


async def test_an_unreadable_record_is_not_treated_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rocks: Rocks, key: bytes) -> None:
        raise RocksError("IO error")

    monkeypatch.setattr(Rocks, "_check_readable", fails)
    async with EmbeddedLog.open(TOPICS, tmp_path, partition_count=2, now_ms=Clock()) as log:
        await put(log, ZONES_0, b"a")
        log._bounds[ZONES_0] = Bounds(0, 2, 0)
        with pytest.raises(LogUnavailable, match="IO error"):
            await read_all(log, ZONES_0)

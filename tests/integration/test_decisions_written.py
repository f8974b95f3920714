"""The decisions topic of real processes equals a refold of the log, after SIGKILL and with two writers."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from deploy.storage import LogSource, open_log_to_read
from tests.support.decisions import until_all_are_written
from tests.support.planes import Process, run, serving
from tests.support.struck_brokers import StruckBrokers


async def say_things(plane: Process, day: int) -> None:
    """Joins, claims and a refusal, from some callers at once."""
    server = plane.address("api")
    joins = [
        run("nodes", "join", f"n{day}-{i}", "--zone", f"z{i % 3}", "--address", f"10.{day}.0.{i}", server=server)
        for i in range(6)
    ]
    claims = [run("cliques", "claim", f"n{day}-{i}", "--domain", "d", "--clique", "c", server=server) for i in range(4)]
    refusals = [run("holds", "reject", "999", server=server)]
    await asyncio.gather(*joins, *claims, *refusals)


async def check(log_source: LogSource, least: int) -> None:
    """Read beside the processes: what is appended meanwhile may be seen here before its decision is written."""
    async with asyncio.timeout(120):
        while True:
            async with open_log_to_read(log_source, rng=random.Random(1)) as log:
                found = await until_all_are_written(log, timeout_s=60, every_s=0.5)
            if len(found) >= least:
                return


async def test_an_embedded_plane_that_is_killed_writes_what_it_had_not(tmp_path: Path) -> None:
    data = tmp_path / "plane"
    for day in range(2):
        async with serving("--data", str(data)) as plane:
            await say_things(plane, day)
            plane.kill()
            await plane.ended()
    async with serving("--data", str(data)) as plane:
        await say_things(plane, 3)
        await check(LogSource(data), least=30)


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_two_processes_on_kafka_write_each_decision_alike(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    on = ("--kafka", kafka_brokers.bootstrap, "--topic-prefix", "decided", "--partitions", "3", "--role", "api")
    async with (
        serving(*on, "--name", "one", "--state", str(tmp_path / "one")) as one,
        serving(*on, "--name", "two") as two,
    ):
        await asyncio.gather(say_things(one, 1), say_things(two, 2))
        one.kill()
        await one.ended()
        await say_things(two, 3)
        async with serving(*on, "--name", "one", "--state", str(tmp_path / "one")) as again:
            await say_things(again, 4)
            await check(LogSource(None, kafka_brokers.bootstrap, "decided"), least=30)

"""The decisions topic of real processes equals a new fold of the log, whichever process writes or is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import aiohttp
import pytest

from deploy.host.storage import LogSource, open_log_to_read
from deploy.operations.export.events import as_line
from eventstore.log import DECISIONS, Partition
from tests.contract.engine import read_all
from tests.support.decisions import refolded, wait_for_all_decisions
from tests.support.eventually import until
from tests.support.planes import Process, run, serving
from tests.support.struck_brokers import StruckBrokers


async def send_commands(plane: Process, day: int) -> None:
    """Send joins, claims and a refused command from several callers at once."""
    server = plane.address("api")
    joins = [
        run("nodes", "join", f"n{day}-{i}", "--zone", f"z{i % 3}", "--address", f"10.{day}.0.{i}", server=server)
        for i in range(6)
    ]
    claims = [run("cliques", "claim", f"n{day}-{i}", "--domain", "d", "--clique", "c", server=server) for i in range(4)]
    refusals = [run("holds", "reject", "999", server=server)]
    await asyncio.gather(*joins, *claims, *refusals)


async def check(place: LogSource, least: int) -> None:
    """Compare the topic with a new fold, repeatedly, because decisions may be written after their records are read."""
    async with asyncio.timeout(120):
        while True:
            async with open_log_to_read(place, rng=random.Random(1)) as log:
                found = await wait_for_all_decisions(log, timeout_s=60, every_s=0.5)
            if len(found) >= least:
                return


async def test_an_embedded_plane_prints_decisions_by_folding_its_log(tmp_path: Path) -> None:
    data = tmp_path / "plane"
    async with serving("--data", str(data)) as plane:
        await send_commands(plane, 1)
        ran = await run("events", "export", "--decisions", "--subject", "z1", server=plane.address("api"))
    stopped = await run("events", "export", "--decisions", "--data", str(data))
    assert ran.status == stopped.status == 0, (ran, stopped)
    lines = [json.loads(line) for line in stopped.stdout.splitlines()]
    subjects = {line["envelope"]["subject"] for line in map(json.loads, ran.stdout.splitlines())}
    assert subjects == {"z1"}
    async with open_log_to_read(LogSource(data), rng=random.Random(1)) as log:
        decided = await refolded(log)
        assert [await read_all(log, partition) for partition in log.partitions(DECISIONS)] == [[]] * log.partition_count
        assert {f"{line['topic']}/{line['partition']}/{line['offset']}" for line in lines} == decided.keys()
        last = lines[-1]
        place = Partition(last["topic"], last["partition"])
        (cause,) = [each for each in await read_all(log, place) if each.offset == last["offset"]]
        (value,) = decided[f"{place}/{cause.offset}"]
        assert last == json.loads(json.dumps(as_line(place, cause._replace(value=value))))


async def test_decisions_are_filtered_by_causes_and_not_by_topic(tmp_path: Path) -> None:
    ran = await run("events", "export", "--decisions", "--topic", "zones", "--data", str(tmp_path))
    assert ran.status == 2 and "--topic: leave it out with --decisions" in ran.stderr


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_two_processes_of_the_role_write_equal_decisions(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    on = ("--kafka", kafka_brokers.bootstrap, "--topic-prefix", "decided", "--partitions", "3")
    writing = (*on, "--role", "decisions", "--state", str(tmp_path))
    async with (
        serving(*on, "--role", "api", "--name", "api") as api,
        serving(*writing, "--name", "one") as one,
        serving(*on, "--role", "decisions", "--name", "two"),
    ):
        await asyncio.gather(send_commands(api, 1), send_commands(api, 2))
        one.kill()
        await one.ended()
        await send_commands(api, 3)
        async with serving(*writing, "--name", "one"):
            await send_commands(api, 4)
            await check(LogSource(None, kafka_brokers.bootstrap, "decided"), least=30)


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_role_all_runs_a_decision_writer_and_restarts_it(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    on = ("--kafka", kafka_brokers.bootstrap, "--topic-prefix", "decided-by-all", "--partitions", "3", "--name", "all")
    place = LogSource(None, kafka_brokers.bootstrap, "decided-by-all")
    async with serving(*on, "--state", str(tmp_path / "state"), stderr=tmp_path / "log") as plane:
        await send_commands(plane, 1)
        await check(place, least=11)
        await until((tmp_path / "state" / "decisions").is_dir)
        (first,) = children_of(plane.child.pid)
        os.kill(first, signal.SIGKILL)
        await send_commands(plane, 2)
        await check(place, least=22)
        (second,) = children_of(plane.child.pid)
        assert second != first
        assert "decisions process ended" in (tmp_path / "log").read_text()
        status = (await run("status", "--output", "json", server=plane.address("api"))).json()
        assert {"all": ["api", "relay", "provisioner"], "all-decisions": ["decisions"]}.items() <= {
            replica["name"]: replica["roles"] for replica in status["replicas"]
        }.items()
        metrics = await metrics_of(plane)
        assert 'dpuplane_replicas{role="decisions"} 1.0' in metrics
        assert "dpuplane_decisions_lag_records" in metrics
        plane.kill()
        await plane.ended()
        await until(lambda: not Path(f"/proc/{second}").exists())


@pytest.mark.kafka
async def test_role_all_writes_no_decisions_with_the_option(kafka_brokers: StruckBrokers) -> None:
    on = ("--kafka", kafka_brokers.bootstrap, "--topic-prefix", "undecided", "--partitions", "1")
    async with serving(*on, "--no-decisions") as plane:
        assert children_of(plane.child.pid) == []
        assert "dpuplane_decisions_written_total" not in await metrics_of(plane)


async def metrics_of(plane: Process) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{plane.address('http')}/metrics") as response:
        return await response.text()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

"""The log read through the API: the same events as beside its process, and a reader that outlives a server."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.cli.operations.remote_log import RemoteLog
from deploy.cli.shared.client import Client
from deploy.host.storage import LOG_FOLDER
from eventstore.avro.codec import decode
from eventstore.log import ZONES, Partition
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import PARTITIONS, Served, now_ms, second_server, served


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / LOG_FOLDER) as found:
        yield found


async def export(*arguments: str) -> list[dict[str, object]]:
    command = ["events", "export", "--topic", "zones", *arguments]
    ran = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert ran.exit_code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


async def test_the_api_returns_the_events_of_the_data_folder(plane: Served, tmp_path: Path) -> None:
    for number in range(5):
        await plane.join(f"z{number}", pb.NodeSpec(name=f"n{number}"))
    status = await plane.queries.GetStatus(pb.GetStatusRequest())
    there = await export("--data", str(tmp_path), "--until", status.position)
    async with second_server(plane) as address:
        assert await export("--server", address, "--until", status.position) == there
        since = str(there[-1]["timestamp_ms"])
        later = await export("--server", address, "--until", status.position, "--since", since)
        assert there[-1] in later and len(later) < len(there)
        command = ["history", "n3", "--server", address, "-o", "json"]
        history = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert json.loads(history.stdout)["happened"][0]["event"] == "NodesJoined"


async def test_a_reader_continues_at_the_next_server_and_gets_each_record_once(plane: Served) -> None:
    stopping = AsyncExitStack()
    first = await stopping.enter_async_context(second_server(plane))
    names: list[str] = []
    partitions = [Partition(ZONES, number) for number in range(PARTITIONS)]
    async with second_server(plane) as other, asyncio.timeout(90):
        options = {"principal": "", "timeout_s": 30.0, "command_id": "", "now_ms": now_ms, "rng": random.Random(1)}
        with Client(servers=[first, other], **options) as client:  # type: ignore[arg-type]
            log = RemoteLog(client, PARTITIONS)
            begins = {partition: await log.end(partition) for partition in partitions}
            async with aclosing(log.read(begins)) as batches:
                for number in range(6):
                    await plane.join(f"z{number % 3}", pb.NodeSpec(name=f"n{number}"))
                    while f"n{number}" not in names:
                        _, records = await anext(batches)
                        names += [each for record in records for each in getattr(decode(record.value), "names", [])]
                    if number == 2:
                        await stopping.aclose()
    assert names == [f"n{number}" for number in range(6)]

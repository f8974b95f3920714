"""The stderr of a real process during calls with hostile names contains only well-formed log lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
import grpc
import pytest

from deploy.telemetry.peer_log_sampler import AT_ONCE
from drivers.wire import agent_messages
from drivers.wire.agent_messages import Hello
from drivers.wire.websocket import PATH
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.support.planes import serving

FORGED = "z\ntime=2026-01-01 level=error event=forged \x1b[31m"
FIELD = re.compile(r'[a-z_]+=(?:"(?:[^"\\]|\\.)*"|[^ "=]+)(?: |$)')


async def call_with_hostile_names(api: str, agents: str) -> None:
    async with grpc.aio.insecure_channel(api) as channel:
        calls = CommandsStub(channel)
        for request in (pb.JoinNodesRequest(zone=FORGED, nodes=[pb.NodeSpec(name=FORGED)]), pb.JoinNodesRequest()):
            with pytest.raises(grpc.aio.AioRpcError):
                await calls.JoinNodes(request)
    async with aiohttp.ClientSession() as session:
        for message in (agent_messages.encode(Hello(FORGED, [FORGED], [FORGED], [])), FORGED.encode()):
            async with session.ws_connect(f"http://{agents}{PATH}") as socket:
                await socket.send_bytes(message)
                async for _ in socket:
                    pass


@pytest.mark.parametrize("form", ["text", "json"])
async def test_hostile_names_cannot_forge_a_log_line(tmp_path: Path, form: str) -> None:
    stderr = tmp_path / "stderr"
    async with serving("--data", str(tmp_path / "plane"), "--log-format", form, stderr=stderr) as plane:
        await call_with_hostile_names(plane.address("api"), plane.address("agents"))
        assert await plane.stop() == 0
    lines = stderr.read_text().splitlines()
    assert any("link closed" in line for line in lines) and any("shutdown started" in line for line in lines)
    for line in lines:
        assert line.isprintable(), line
        if form == "json":
            assert {"time", "level", "logger", "event"} <= json.loads(line).keys()
        else:
            assert FIELD.sub("", line) == "" and line.startswith("time="), line
            assert line.count(" level=") - len(re.findall(r'"[^"]* level=[^"]*"', line)) == 1


async def test_a_peer_that_reconnects_endlessly_does_not_fill_the_disk(tmp_path: Path) -> None:
    """One such agent once caused 820 kB of log lines in 6 s."""
    stderr, count = tmp_path / "stderr", 150
    async with (
        serving("--data", str(tmp_path / "plane"), stderr=stderr) as plane,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(count):
            async with session.ws_connect(f"http://{plane.address('agents')}{PATH}") as socket:
                await socket.send_bytes(FORGED.encode())
                async for _ in socket:
                    pass
        async with session.get(f"http://{plane.address('http')}/metrics") as answer:
            metrics = (await answer.text()).splitlines()
    written = stderr.read_text().count("link closed")
    suppressed = next(line for line in metrics if line.startswith("dpuplane_suppressed_log_lines_total "))
    assert AT_ONCE <= written < count / 2
    assert float(suppressed.split()[1]) >= count - written - 1

"""`dpuplane dpus network` and its query: the network document of a DPU, and what its agent has applied of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from deploy.cli import cli
from eventstore.ids import internal_envelope
from eventstore.log import ZONES
from projections.resources.network_documents.document import Document, Interface, Switch, SwitchPort, encoded
from projections.zones.fold import ZonesFold2
from schemas.api import dpuplane_pb2 as pb
from schemas.events import DpusWanted, Event, FoldVersionUpgraded, NetworksReported, NetworksWanted, NodesJoined
from tests.support.served import Served, now_ms, served

PORTS = (SwitchPort("dpf/p0"), SwitchPort("dpf/web"))
NETWORK = encoded(
    Document(
        interfaces=(
            Interface("dpf/p0", "physical", "p0", 9000),
            Interface("dpf/web", "service", mtu=9000, settings={"serviceID": "web", "interfaceName": "if0"}),
        ),
        switches=(Switch("dpf/chain", 0, 9000, PORTS),),
    )
)


async def append(plane: Served, event: Event) -> int:
    """Append an event about zone z1 and wait until it is folded. Returns its offset."""
    partition = plane.replica.partition_for(ZONES, "z1")
    offset = plane.replica.position(partition)
    await plane.replica.append_event(partition, b"z1", event, timeout_s=60.0)
    await plane.replica.wait_for_position(partition, offset + 1, timeout_s=60.0)
    return offset


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    said, key = internal_envelope("z1", "test", now_ms()), "local/DPU.provisioning.dpu.nvidia.com/dpf/d1"
    async with served(tmp_path / "plane") as found:
        await append(found, FoldVersionUpgraded(said, ZonesFold2.version))
        row: list[list[str]] = [["z1"], ["node"], [""], ["simulated:d1"], [""]]
        await append(found, DpusWanted(said, 0, 0, 1, [key], ["d1"], *row))
        await append(found, NetworksWanted(said, 0, 0, 1, [key], ["d1"], [0], [NETWORK.text]))
        yield found


async def query(plane: Served, dpu: str) -> pb.DpuNetwork:
    found: pb.DpuNetwork = await plane.queries.GetDpuNetwork(pb.GetDpuNetworkRequest(dpu=dpu))
    return found


async def report(plane: Served, version: int, unresolved: str = "", refusal: str = "") -> None:
    said, applied = internal_envelope("z1", "test", now_ms()), 0 if refusal else version
    await append(plane, NetworksReported(said, "z1", "r", [version], [applied], [b"\x01"], [unresolved], [refusal]))


async def test_the_document_and_what_was_reported_of_it_are_answered(plane: Served) -> None:
    wanted = await query(plane, "d1")
    assert (wanted.zone, wanted.digest, wanted.document) == ("z1", NETWORK.digest, NETWORK.text)
    assert (wanted.applied_version, [*wanted.unresolved], wanted.refusal) == (0, [], "")
    await report(plane, wanted.wanted_version, "dpf/web")
    applied = await query(plane, "d1")
    assert (applied.applied_version, [*applied.unresolved]) == (wanted.wanted_version, ["dpf/web"])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await query(plane, "d2")
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


async def ran(plane: Served, *words: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*words, "--server", plane.address])
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_an_explanation_says_what_the_network_of_the_dpu_waits_for(plane: Served) -> None:
    joined = NodesJoined(internal_envelope("z1", "test", now_ms()), "z1", ["n1"], [], [], b"\x0a\0\0\1", b"", [{}], [0])
    await append(plane, joined)
    version = (await query(plane, "d1")).wanted_version
    said = "network of d1: its agent"
    assert f"{said} has not applied the network document yet" in await ran(plane, "explain", "n1", "d1")
    await report(plane, version, refusal="DEVICE: no bridge")
    assert f"{said} refused the network document: DEVICE: no bridge" in await ran(plane, "explain", "n1", "d1")
    await report(plane, version, "dpf/web")
    waits = "dpf/web has no port yet, waits for a pod of service web with the interface if0"
    assert f"network of d1: {waits}; see 'dpuplane dpus network d1'" in await ran(plane, "explain", "n1", "d1")
    await report(plane, version)
    assert "network of d1" not in await ran(plane, "explain", "n1", "d1")


async def test_the_command_says_what_each_port_waits_for(plane: Served) -> None:
    async def run(*words: str) -> str:
        return await ran(plane, "dpus", "network", "d1", *words)

    version = (await query(plane, "d1")).wanted_version
    await report(plane, version, refusal="DEVICE: no bridge")
    text = await run()
    assert "none, the agent has not applied the wanted one yet" in text and "DEVICE: no bridge" in text
    await report(plane, version, "dpf/web")
    rows = dict(line.strip().split("  ", 1) for line in (await run()).splitlines())
    shown = {name: value.strip() for name, value in rows.items()}
    assert shown["applied version"] == shown["wanted version"] == str(version)
    assert shown["interface dpf/p0"] == "physical p0, MTU 9000"
    waits = "has no port yet, waits for a pod of service web with the interface if0"
    settings = '{"interfaceName": "if0", "serviceID": "web"}'
    assert shown["interface dpf/web"] == f"service {settings}, MTU 9000; {waits}"
    assert shown["switch 0 of dpf/chain"] == "dpf/p0, dpf/web, MTU 9000"
    assert json.loads(await run("--output", "json"))["digest"] == NETWORK.digest

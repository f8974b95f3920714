"""`dpuplane serve --data`: the plane as one process, used through its command line."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiohttp
import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from deploy.clock import now_ms
from deploy.host.storage import STATE_FOLDER
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.wire.websocket import PATH
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES
from eventstore.recovery.backup import MANIFEST
from eventstore.state_store.rocks_store import RocksStore
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from schemas.events import NodesJoined
from tests.support.planes import Ran, run, serving

LISTENERS = ("listen", "http", "agents")


async def until_zone_has_dpus(server: str, zone: str, count: int) -> None:
    async with asyncio.timeout(90):
        while True:
            shown = await run("zones", "show", zone, "--output", "json", server=server)
            if shown.status == 0 and int(shown.json()["dpus"]) == count:
                return
            await asyncio.sleep(0.2)


async def test_a_node_joins_and_every_dpu_of_its_zone_gets_the_rule(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "3") as plane:
        server = plane.address("api")
        joined = await run(
            "nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", "--label", "k=v", "--output", "json",
            server=server,
        )  # fmt: skip
        assert (joined.status, joined.json()["outcome"]) == (0, "done")
        await until_zone_has_dpus(server, "a", 3)
        rules = (await run("rules", "show", "a", "--output", "json", server=server)).json()
        assert [(rule["prefix"], rule["action"]) for rule in rules["rules"]] == [("10.0.0.1/32", "allow")]
        verified = await run("verify", "--output", "json", server=server)
        assert verified.status == 0, verified.stderr
        assert await plane.stop() == 0


async def test_eighteen_claims_get_dense_indices_and_the_nineteenth_waits(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane")) as plane:
        server = plane.address("api")
        claims = [run("cliques", "claim", "d", "c", f"n{i:02}", "--output", "json", server=server) for i in range(18)]
        indices = [ran.json()["index"] for ran in await asyncio.gather(*claims)]
        assert sorted(indices) == list(range(18))
        late = await run("cliques", "claim", "d", "c", "n18", "--output", "json", server=server)
        assert (late.status, late.json()["outcome"], late.json()["queue_position"]) == (0, "waiting", 1)
        shown = (await run("cliques", "show", "d", "c", "--output", "json", server=server)).json()
        assert shown["capacity"] == 18
        assert [member["index"] for member in shown["members"]] == list(range(18))
        assert [waiting["node"] for waiting in shown["waiting"]] == ["n18"]


async def test_acknowledged_records_survive_kill_9(tmp_path: Path) -> None:
    data = str(tmp_path / "plane")
    for round_ in range(3):
        async with serving("--data", data) as plane:
            server = plane.address("api")
            listed = (await run("nodes", "list", "--output", "json", server=server)).json()
            assert len(listed["nodes"]) == 2 * round_
            for number in (2 * round_, 2 * round_ + 1):
                arguments = ("nodes", "join", f"n{number}", "--zone", f"z{number}", "--address", f"10.0.0.{number + 1}")
                joined = await run(*arguments, server=server)
                assert joined.status == 0, joined.stderr
            plane.kill()
            await plane.ended()


async def test_a_clean_shutdown_saves_the_folded_state(tmp_path: Path) -> None:
    settings = load_settings({"data": tmp_path, "partitions": "2", **dict.fromkeys(LISTENERS, "127.0.0.1:0")}, None, {})
    rng = random.Random(1)
    async with Plane.start(settings, now_ms=now_ms, rng=rng) as plane:
        partition = plane.replica.partition_for(ZONES, "a")
        said = envelope("a", "?test", uuid7(now_ms(), rng))
        joined = NodesJoined(said, "a", ["n1"], [], [], b"", b"", [], [])
        answer = await plane.replica.submit(partition, b"a", joined, timeout_s=30.0)
    store = RocksStore(tmp_path / STATE_FOLDER)
    head = store.head(partition)
    assert head is not None and head.position > answer.offset
    store.close()


async def test_http_reports_health_and_readiness(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane")) as plane, aiohttp.ClientSession() as session:
        base = f"http://{plane.address('http')}"
        for path, says in (("/healthz", "ok"), ("/readyz", "ok"), ("/metrics", "dpuplane_position_records")):
            async with session.get(base + path) as response:
                assert response.status == 200
                assert says in await response.text()


async def test_two_processes_cannot_own_one_folder(tmp_path: Path) -> None:
    data = str(tmp_path / "plane")
    async with serving("--data", data):
        ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--agents", "127.0.0.1:0")
        second = await run("serve", "--data", data, *ports)
        assert second.status == 3
        assert data in second.stderr


async def test_an_unreachable_server_is_one_sentence_and_status_3() -> None:
    ran = await run("nodes", "list", "--server", "127.0.0.1:9", "--timeout", "1")
    assert (ran.status, ran.stdout) == (3, "")
    assert "127.0.0.1:9" in ran.stderr


@pytest.mark.parametrize("flags", [("--simulate", "3"), ()])
async def test_a_process_with_simulated_devices_says_so(flags: tuple[str, ...], tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    async with serving("--data", str(tmp_path / "plane"), *flags, stderr=errors):
        said = [line for line in errors.read_text().splitlines() if "devices are simulated" in line]
    assert len(said) == bool(flags)
    assert all("no hardware is written" in line and "dpus_per_zone=3" in line for line in said)


async def test_wrong_usage_is_status_2(tmp_path: Path) -> None:
    for arguments in (
        ("serve",),
        ("serve", "--data", str(tmp_path), "--role", "api"),
        ("serve", "--data", str(tmp_path), "--listen", "0.0.0.0:0"),
        ("nodes", "join", "n1"),
        ("nonsense",),
    ):
        ran = await run(*arguments)
        assert ran.status == 2, (arguments, ran)


async def test_a_hanging_client_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    async with (
        serving("--data", str(tmp_path / "plane")) as plane,
        grpc.aio.insecure_channel(plane.address("api")) as channel,
    ):
        stream = CommandsStub(channel).JoinNodesStream(timeout=250)
        await stream.write(pb.JoinNodesRequest(zone="a", nodes=[pb.NodeSpec(name="n1", addresses=["10.0.0.1"])]))
        assert await plane.stop() == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await stream


async def test_watchers_are_informed_of_the_shutdown_and_do_not_delay_it(tmp_path: Path) -> None:
    """Feeds of the page, agents and health watchers together once exceeded the time limit of a clean shutdown."""
    async with (
        serving("--data", str(tmp_path / "plane")) as plane,
        grpc.aio.insecure_channel(plane.address("api")) as channel,
        aiohttp.ClientSession() as session,
        session.get(f"http://{plane.address('http')}/page/feed") as feed,
        session.ws_connect(f"http://{plane.address('agents')}{PATH}", autoclose=False) as agent,
    ):
        health = HealthStub(channel).Watch(HealthCheckRequest())
        assert (await health.read()).status == HealthCheckResponse.SERVING
        assert (await feed.content.readline()).startswith(b"data: ")
        assert await plane.stop() == 0
        assert (await health.read()).status == HealthCheckResponse.NOT_SERVING
        assert (await feed.content.read()).endswith(b"\n\n"), "the feed must end as a complete response"
        assert (await agent.receive())[:2] == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)


async def test_an_unusable_address_or_data_folder_is_named(tmp_path: Path) -> None:
    listeners = dict.fromkeys(LISTENERS, "127.0.0.1:0")

    async def started(data: Path, **other: str) -> Ran:
        flags = [part for name, address in {**listeners, **other}.items() for part in (f"--{name}", address)]
        return await run("serve", "--data", str(data), *flags)

    async with serving("--data", str(tmp_path / "plane")) as plane:
        taken = plane.address("api")
        for setting in listeners:
            ran = await started(tmp_path / "other", **{setting: taken})
            assert (ran.status, ran.stdout) == (3, "")
            assert ran.stderr.endswith(f"{setting}: {taken} cannot be listened on: Address already in use\n")
            assert not (tmp_path / "other").exists(), "a process that fails at its start creates no log"
        ran = await started(tmp_path / "plane")
        assert (ran.status, "in use" in ran.stderr) == (3, True)
    ran = await started(Path(__file__))
    assert (ran.status, f"data: {__file__!r} cannot be created" in ran.stderr) == (3, True)
    ran = await started(tmp_path / "other", state=__file__)
    assert (ran.status, f"state: {__file__!r} cannot be created" in ran.stderr) == (3, True)


async def test_a_backup_is_not_served_as_a_plane(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    listeners = [part for name in LISTENERS for part in (f"--{name}", "127.0.0.1:0")]
    ran = await run("serve", "--data", str(tmp_path), *listeners)
    assert (ran.status, f"data: {tmp_path} is a backup" in ran.stderr) == (3, True)
    assert not (tmp_path / "log").exists()


async def test_verify_gives_the_reason_why_devices_of_a_frozen_zone_differ(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "2") as plane:
        server = plane.address("api")
        await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", server=server)
        await until_zone_has_dpus(server, "a", 2)
        assert (await run("verify", server=server)).status == 0
        await run("freeze", "a", server=server)
        await run("nodes", "join", "n2", "--zone", "b", "--address", "10.0.0.2", server=server)
        frozen = await run("verify", server=server)
        assert frozen.status == 1
        assert "the zone is frozen" in frozen.stderr
        waits = (await run("zones", "show", "a", server=server)).stdout
        assert "2 of 2 DPUs wait for table version" in waits
        await run("thaw", "a", server=server)
        assert (await run("verify", server=server)).status == 0

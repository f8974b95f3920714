"""The Python client against a real plane: it uses the server that responds, and reads every page."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from commands.client.client import PlaneClient
from commands.client.errors import NotFound, PositionExpired, Rejected, Unanswered
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import Served, now_ms, second_server, served


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


def client(*servers: str, rounds: int = 1) -> PlaneClient:
    return PlaneClient(servers, timeout_s=5.0, now_ms=now_ms, rng=random.Random(1), rounds=rounds, principal="ann")


async def test_the_client_uses_the_server_that_responded_last(plane: Served) -> None:
    async with client("127.0.0.1:1", plane.address) as found:
        done = await found.command("JoinNodes", pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n1")]))
        assert (done.outcome, found.servers[0]) == (pb.OUTCOME_DONE, plane.address)
        node = await found.query("GetNode", pb.GetNodeRequest(name="n1", min_position=done.position))
        assert node.zone == "z1"


async def test_the_client_reads_all_pages_of_a_list(plane: Served) -> None:
    names = {f"n{number}" for number in range(7)}
    await plane.join("z1", *(pb.NodeSpec(name=name) for name in names))
    async with client(plane.address) as found:
        pages = [page async for page in found.pages("ListNodes", pb.ListNodesRequest(page_size=3))]
    assert [len(page.nodes) for page in pages] == [3, 3, 1]
    assert {node.name for page in pages for node in page.nodes} == names


async def test_a_failed_call_is_one_of_three_kinds(plane: Served) -> None:
    async with client(plane.address) as found:
        with pytest.raises(NotFound, match="'n9' is not a node of any zone"):
            await found.query("GetNode", pb.GetNodeRequest(name="n9"))
        with pytest.raises(Rejected, match="zone: ''"):
            await found.command("JoinNodes", pb.JoinNodesRequest(nodes=[pb.NodeSpec(name="n1")]))
    async with client("127.0.0.1:1", rounds=2) as nobody:
        with pytest.raises(Unanswered) as failed:
            await nobody.query("GetNode", pb.GetNodeRequest(name="n1"))
    assert not failed.value.was_sent


async def test_a_repeated_command_has_one_id_and_one_effect(plane: Served) -> None:
    request = pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n1")])
    async with client(plane.address) as found:
        first = await found.command("JoinNodes", request)
        again = await found.command("JoinNodes", request)
    assert (first.command_id, first.position) == (again.command_id, again.position)


async def test_a_watch_continues_at_the_next_server_without_loss_or_repeats(plane: Served) -> None:
    listed = await plane.queries.ListNodes(pb.ListNodesRequest())
    seen: list[str] = []
    stopping = AsyncExitStack()
    first = await stopping.enter_async_context(second_server(plane))
    async with second_server(plane) as other, asyncio.timeout(90), client(first, other, rounds=3) as found:
        request = pb.WatchRequest(position=listed.position, nodes=pb.ListNodesRequest())
        async with aclosing(found.watch(request)) as batches:
            for number in range(6):
                await plane.join(f"z{number % 2}", pb.NodeSpec(name=f"n{number}"))
                while f"n{number}" not in seen:
                    seen += [change.node.name for change in (await anext(batches)).changes if not change.deleted]
                if number == 2:
                    await stopping.aclose()
    assert list(dict.fromkeys(seen)) == [f"n{number}" for number in range(6)]


async def test_a_watch_from_an_expired_position_raises(plane: Served) -> None:
    async with client(plane.address) as found:
        position = f"{plane.replica.log_id}:" + ",".join(f"zones/{n}=0" for n in range(3)) + ",fleet/0=0"
        with pytest.raises(PositionExpired, match="list again"):
            await anext(found.watch(pb.WatchRequest(position=position, nodes=pb.ListNodesRequest())))
        with pytest.raises(Rejected, match="label_selector: 'row in' must be"):
            await anext(found.watch(pb.WatchRequest(nodes=pb.ListNodesRequest(label_selector="row in"))))


async def test_a_watch_without_a_server_ends() -> None:
    async with client("127.0.0.1:1", rounds=2) as nobody:
        with pytest.raises(Unanswered):
            await anext(nobody.watch(pb.WatchRequest()))

"""The Streams service of a real plane: filters, resuming, limits, and its end when the server stops."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from commands.rpc.limits import Limits
from eventstore.avro.codec import decode
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import StreamsStub
from tests.support.served import PARTITIONS, Served, served


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane", limits=Limits(lasting_streams=2)) as found:
        yield found


def streams(plane: Served) -> Any:
    return StreamsStub(plane.channel)


def zones(**start: Any) -> list[pb.EventRange]:
    return [pb.EventRange(topic="zones", partition=number, **start) for number in range(PARTITIONS)]


async def types(plane: Served, **wanted: Any) -> list[str]:
    request = pb.ReadEventsRequest(ranges=zones(), filter=pb.EventFilter(**wanted))
    found = [record async for response in streams(plane).ReadEvents(request) for record in response.records]
    return [type(decode(record.value)).__name__ for record in found]


async def test_a_filter_admits_events_that_match_all_of_its_fields(plane: Served) -> None:
    joined = await plane.join("z1", pb.NodeSpec(name="n1"))
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z2", dpu="d1"))
    assert sorted(await types(plane, types=["NodesJoined", "DpuRegistered"])) == ["DpuRegistered", "NodesJoined"]
    assert await types(plane, command_id=joined.command_id) == ["NodesJoined"]
    assert await types(plane, actor="?anonymous", subject="d1") == ["DpuRegistered"]
    assert await types(plane, actor="nobody") == await types(plane, types=["undecodable"]) == []
    assert {"NodesJoined", "LogCreated"} <= {*await types(plane)}


async def test_a_stream_is_resumed_where_it_was_cut(plane: Served) -> None:
    following = streams(plane).ReadEvents(pb.ReadEventsRequest(ranges=zones(at_end=True), follow=True))
    positions = {}
    for _ in range(PARTITIONS):
        first = await following.read()
        positions[first.partition] = first.next_offset
    await plane.join("z1", pb.NodeSpec(name="n1"))
    live = await following.read()
    while not live.records:
        live = await following.read()
    positions[live.partition] = live.next_offset
    following.cancel()
    await plane.join("z1", pb.NodeSpec(name="n2"))
    ranges = [pb.EventRange(topic="zones", partition=number, offset=offset) for number, offset in positions.items()]
    later = [response async for response in streams(plane).ReadEvents(pb.ReadEventsRequest(ranges=ranges))]
    names = [
        getattr(decode(record.value), "names", []) for response in later for record in response.records if record.key
    ]
    assert ["n2"] in names and ["n1"] not in names


async def test_streams_are_limited_and_end_when_the_server_stops(plane: Served) -> None:
    request = pb.ReadEventsRequest(ranges=zones(at_end=True), follow=True)
    opened = [streams(plane).ReadEvents(request) for _ in range(2)]
    for stream in opened:
        await stream.read()
    with pytest.raises(grpc.aio.AioRpcError, match="2 open streams that follow the log") as refused:
        await streams(plane).ReadEvents(request).read()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with asyncio.timeout(50):  # less than the grace period of 60 s
        await plane.server.stop(60.0)
        for stream in opened:
            with pytest.raises(grpc.aio.AioRpcError, match="this server is stopping; continue at another one") as ended:
                for _ in range(PARTITIONS):
                    await stream.read()
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_position_that_the_log_does_not_have_is_out_of_range(plane: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="offset: 99 of zones/0 must be from 0 to") as refused:
        await streams(plane).ReadEvents(pb.ReadEventsRequest(ranges=zones(offset=99))).read()
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


class Listed:
    """A client's copy of a list, updated by watches that are cut and resumed."""

    def __init__(self, plane: Served, **wanted: Any) -> None:
        self._plane = plane
        self._wanted = wanted
        self.rows: dict[str, Any] = {}
        self.position = ""
        self.counts: Counter[str] = Counter()

    async def list_all(self) -> None:
        """List all items, as a client does at first and after its position has expired."""
        found = await self._plane.queries.ListNodes(pb.ListNodesRequest(page_size=1_000))
        self.rows = {node.name: node for node in found.nodes}
        self.position = found.position

    async def watch(self, enough: Callable[[], bool], *, batches: int = 1_000_000) -> None:
        """Apply batches until the condition holds, or up to a number of batches."""
        request = pb.WatchRequest(position=self.position, **self._wanted)
        stream = streams(self._plane).Watch(request, timeout=60)
        pending: list[pb.Change] = []
        while not enough() and batches:
            response = await stream.read()
            pending += response.changes
            if response.position:
                self._apply(pending)
                pending, self.position, batches = [], response.position, batches - 1
        stream.cancel()

    def _apply(self, changes: list[pb.Change]) -> None:
        for change in changes:
            self.counts[change.node.name] += 1
            if change.deleted:
                self.rows.pop(change.node.name, None)
            else:
                self.rows[change.node.name] = change.node


async def test_a_list_watched_in_pieces_is_complete_and_no_change_comes_twice(plane: Served) -> None:
    listed, rng = Listed(plane, nodes=pb.ListNodesRequest()), random.Random(3)
    await listed.list_all()
    for number in range(12):
        nodes = [pb.NodeSpec(name=f"n{each}", labels={"r": str(number)}) for each in rng.sample(range(8), 3)]
        zone = f"z{number % 3}"
        if rng.random() < 0.7:
            done = await plane.join(zone, *nodes)
        else:
            names = [node.name for node in nodes]
            done = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone=zone, names=names))
        if rng.random() < 0.5:
            await listed.watch(lambda: False, batches=1)
    whole = await plane.queries.ListNodes(pb.ListNodesRequest(page_size=1_000, min_position=done.position))
    wanted = {node.name: (node.zone, dict(node.labels)) for node in whole.nodes}
    await listed.watch(lambda: {n: (row.zone, dict(row.labels)) for n, row in listed.rows.items()} == wanted)
    await listed.watch(lambda: False, batches=1)
    before = listed.counts.copy()
    await listed.watch(lambda: False, batches=1)
    assert listed.counts == before, "a resumed watch repeats no change"


async def batch(stream: Any) -> list[pb.Change]:
    """The changes up to the next position, without empty batches."""
    changes: list[pb.Change] = []
    while not changes:
        response = await stream.read()
        changes += response.changes
        while not response.position:
            response = await stream.read()
            changes += response.changes
    return changes


async def test_watches_of_dpus_and_cliques_use_the_filters_of_their_lists(plane: Served) -> None:
    for zone in ("z1", "z2"):
        await plane.calls.UpdateZone(pb.UpdateZoneRequest(zone=zone, set_labels=True, labels={"row": zone[1:]}))
    dpus = streams(plane).Watch(pb.WatchRequest(dpus=pb.ListDpusRequest(label_selector="row=1")), timeout=60)
    cliques = streams(plane).Watch(pb.WatchRequest(cliques=pb.ListCliquesRequest(domain="d")), timeout=60)
    assert (await dpus.read()).position and (await cliques.read()).position
    for zone in ("z2", "z1"):
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone=zone, dpu=f"{zone}-d"))
    found: dict[str, pb.Change] = {}
    while "z1-d" not in found:
        found |= {change.dpu.dpu: change for change in await batch(dpus)}
    assert (found["z1-d"].deleted, found["z1-d"].dpu.zone, found["z1-d"].dpu.phase) == (False, "z1", "Initializing")
    assert all(change.deleted for name, change in found.items() if name == "z2-d")
    await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    (change,) = await batch(cliques)
    assert [member.node for member in change.clique.members] == ["n1"]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ("other:zones/0=1", "log id 'other' must be that of this log"),
        ("LOG:zones/0=1", "it has no offset of zones/1; give the position of a response of this list"),
        ("zones", "log id"),
    ],
)
async def test_a_watch_from_a_position_of_another_list_is_refused(plane: Served, position: str, said: str) -> None:
    request = pb.WatchRequest(position=position.replace("LOG", plane.replica.log_id), nodes=pb.ListNodesRequest())
    with pytest.raises(grpc.aio.AioRpcError, match=said) as refused:
        await streams(plane).Watch(request).read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_slow_watcher_must_list_again(plane: Served) -> None:
    for _, ring in plane.server._watches._feed._rings.values():
        ring._most = 2
    listed = await plane.queries.ListNodes(pb.ListNodesRequest())
    for number in range(5):
        done = await plane.join("z1", pb.NodeSpec(name=f"n{number}"))
        await plane.queries.ListNodes(pb.ListNodesRequest(min_position=done.position))
        probe = streams(plane).Watch(pb.WatchRequest(nodes=pb.ListNodesRequest()), timeout=60)
        await probe.read()  # each call makes the server collect the changes so far
        probe.cancel()
    with pytest.raises(grpc.aio.AioRpcError, match=r"has expired, .*; list again") as refused:
        await streams(plane).Watch(pb.WatchRequest(position=listed.position, nodes=pb.ListNodesRequest())).read()
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_positions_are_sent_when_the_log_advances(plane: Served) -> None:
    advancing = streams(plane).Watch(pb.WatchRequest(), timeout=60)
    first = await advancing.read()
    await plane.join("z1", pb.NodeSpec(name="n1"))
    assert (await advancing.read()).position != first.position

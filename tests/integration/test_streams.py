"""The Streams service of a real plane: filters, resuming, limits, and its end when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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


async def test_a_filter_admits_what_matches_all_of_its_fields(plane: Served) -> None:
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
    async with asyncio.timeout(10):  # the grace period would be longer
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

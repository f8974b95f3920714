"""The contract of ReadEvents on every engine: a client that resumes anywhere reads each record once and in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager

import pytest

from commands.rpc.errors import PositionExpired
from commands.rpc.limits import LimitExceeded
from commands.rpc.middleware import Call
from commands.streams.events import EventReader
from commands.streams.lasting import LastingStreams
from eventstore.errors import LogUnavailable, PermanentError
from eventstore.log import ZONES, EventLog, Partition
from schemas.api import dpuplane_pb2 as pb
from tests.contract.engine import LogUnderTest, numbered, put

CALL = Call("operator/ann", 10.0)


def request_of(*ranges: pb.EventRange, follow: bool = False) -> pb.ReadEventsRequest:
    return pb.ReadEventsRequest(ranges=ranges, follow=follow)


def zone(number: int, **start: int | bool) -> pb.EventRange:
    return pb.EventRange(topic=ZONES, partition=number, **start)  # type: ignore[arg-type]


async def all_of(reader: EventReader, request: pb.ReadEventsRequest) -> list[pb.ReadEventsResponse]:
    return [response async for response in reader.read(request, CALL)]


def values(responses: Iterable[pb.ReadEventsResponse]) -> list[bytes]:
    return [record.value for response in responses for record in response.records]


@asynccontextmanager
async def reading(engine: LogUnderTest, streams: LastingStreams) -> AsyncIterator[tuple[EventLog, EventReader]]:
    async with engine.opened() as log:
        yield log, EventReader(log, streams)


class ReadEventsContract:
    """The contract. A subclass provides the fixture `engine`."""

    @pytest.fixture
    def streams(self) -> LastingStreams:
        return LastingStreams(2)

    async def test_a_range_is_read_from_start_to_end(self, engine: LogUnderTest, streams: LastingStreams) -> None:
        async with reading(engine, streams) as (log, reader):
            await put(log, Partition(ZONES, 0), *numbered("a", 5))
            await put(log, Partition(ZONES, 1), *numbered("b", 3))
            everything = await all_of(reader, request_of(zone(0), zone(1), zone(2)))
            offsets = [record.offset for found in everything for record in found.records if found.partition == 0]
            assert sorted(values(everything)) == sorted([*numbered("a", 5), *numbered("b", 3)])
            assert [found.next_offset for found in everything[:3]] == [0, 0, 0]
            some = await all_of(reader, request_of(zone(0, offset=offsets[1], end_offset=offsets[3])))
            assert values(some) == numbered("a", 5)[1:3]
            assert some[-1].next_offset == offsets[3]
            (nothing,) = await all_of(reader, request_of(zone(0, at_end=True)))
            assert (nothing.next_offset, nothing.begin_offset) == (nothing.end_offset, 0)

    async def test_a_reader_that_resumes_after_each_disconnect_reads_each_record_once(
        self, engine: LogUnderTest, streams: LastingStreams
    ) -> None:
        rng = random.Random(7)
        async with reading(engine, streams) as (log, reader):
            partitions = [Partition(ZONES, number) for number in range(3)]
            sent: dict[Partition, list[bytes]] = {partition: [] for partition in partitions}
            positions = dict.fromkeys(partitions, 0)
            seen: dict[Partition, list[bytes]] = {partition: [] for partition in partitions}
            for number in range(30):
                partition = rng.choice(partitions)
                batch = numbered(f"{number}-", rng.randint(1, 4))
                await put(log, partition, *batch)
                sent[partition] += batch
                ranges = [zone(each.number, offset=positions[each]) for each in partitions]
                cut = rng.randint(1, 8)
                async with aclosing(reader.read(request_of(*ranges), CALL)) as responses:
                    async for response in responses:
                        found = Partition(response.topic, response.partition)
                        seen[found] += [record.value for record in response.records]
                        positions[found] = response.next_offset
                        cut -= 1
                        if not cut:
                            break
            for response in await all_of(
                reader, request_of(*(zone(p.number, offset=positions[p]) for p in partitions))
            ):
                seen[Partition(response.topic, response.partition)] += values([response])
        assert seen == sent
        assert streams.open == 0

    async def test_a_following_stream_gets_new_records(self, engine: LogUnderTest, streams: LastingStreams) -> None:
        async with reading(engine, streams) as (log, reader):
            await put(log, Partition(ZONES, 0), b"before")
            responses = reader.read(request_of(zone(0, at_end=True), follow=True), CALL)
            first = await anext(responses)
            assert first.next_offset == first.end_offset > 0
            await put(log, Partition(ZONES, 0), b"after")
            async with asyncio.timeout(engine.patience_s):
                assert values([await anext(responses)]) == [b"after"]
                waiting = asyncio.ensure_future(anext(responses))
                await asyncio.sleep(0)
                streams.stop()
                with pytest.raises(LogUnavailable, match="continue at another"):
                    await waiting
            assert streams.open == 0
            with pytest.raises(LogUnavailable):
                await all_of(reader, request_of(zone(0)))

    async def test_a_start_outside_the_log_is_refused(self, engine: LogUnderTest, streams: LastingStreams) -> None:
        async with reading(engine, streams) as (log, reader):
            await put(log, Partition(ZONES, 0), b"v")
            for request, fault, message in (
                (request_of(zone(0, offset=9)), PositionExpired, "offset: 9 of zones/0 must be from 0 to 1"),
                (request_of(), PermanentError, "ranges: 0 must be from 1 to 256"),
                (request_of(zone(99)), PermanentError, "zones/99 does not exist"),
                (request_of(zone(0), zone(0)), PermanentError, "zones/0 must be given once"),
                (
                    request_of(pb.EventRange(topic="replicas")),
                    PermanentError,
                    "ranges.topic: 'replicas' must be one of",
                ),
            ):
                with pytest.raises(fault, match=message):
                    await all_of(reader, request)

    async def test_the_number_of_streams_is_limited(self, engine: LogUnderTest, streams: LastingStreams) -> None:
        async with reading(engine, streams) as (_, reader):
            opened = [reader.read(request_of(zone(0), follow=True), CALL) for _ in range(2)]
            for responses in opened:
                await anext(responses)
            with pytest.raises(LimitExceeded, match="2 open streams"):
                await all_of(reader, request_of(zone(0)))
            await opened[0].aclose()
            assert len(await all_of(reader, request_of(zone(0)))) == 1
            await opened[1].aclose()

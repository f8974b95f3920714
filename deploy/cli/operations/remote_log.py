"""The log of a plane, read through its API: for commands without access to the folder or the brokers of the log.

The log shares the command's client with its queries. The client uses gRPC's blocking library, because most commands
run no event loop. The log therefore waits for its calls in threads.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from commands.client.errors import failure
from deploy.cli.shared.client import Client, OpenStream
from deploy.cli.shared.errors import Unreachable
from deploy.composition.topics import TOPICS
from deploy.host.storage import LogSource, open_log_to_read
from eventstore.errors import AppendRefused
from eventstore.log import Batch, EventLog, Headers, Partition, Record
from eventstore.topics import TopicTable
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms, to_timestamp

RECONNECT_S = 30.0
"""Maximum time in which a reader looks for a server after it has lost its stream."""
_SEARCH_PAUSE_S = 0.5


class RemoteLog:
    """A read-only EventLog. A reader that loses its stream continues at the same position at any server."""

    def __init__(self, client: Client, partition_count: int) -> None:
        self._client = client
        self._begins: dict[Partition, int] = {}
        self.partition_count = partition_count

    @property
    def topics(self) -> TopicTable:
        return TOPICS

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return TOPICS.partitions(topic, self.partition_count)

    def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> Awaitable[None]:
        raise AppendRefused(f"{partition}: records are appended by commands only")

    async def begin(self, partition: Partition) -> int:
        if partition not in self._begins:
            await self.end(partition)
        return self._begins[partition]

    async def end(self, partition: Partition) -> int:
        first = await self._first(_range(partition, at_end=True))
        self._begins[partition] = first.begin_offset
        return first.end_offset

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        return (await self._first(_range(partition, start_time=to_timestamp(time_ms), end_offset=0))).next_offset

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        reached = dict(positions)
        stream = await self._opened(reached)
        try:
            while True:
                try:
                    found = await asyncio.to_thread(stream.next)
                except grpc.RpcError as error:
                    if not failure(error, self._client.server).is_retriable:
                        raise self._client.error_of(error) from error
                    found = None
                if found is None:  # an hour has passed, or the server stops
                    stream = await self._reopened(reached)
                    continue
                partition = Partition(found.topic, found.partition)
                reached[partition] = found.next_offset
                if found.records:
                    yield partition, [Record(r.offset, to_ms(r.append_time), r.key, r.value) for r in found.records]
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Does nothing: the command closes the client."""

    async def _first(self, wanted: pb.EventRange) -> pb.ReadEventsResponse:
        stream = await asyncio.to_thread(self._client.open_stream, "ReadEvents", pb.ReadEventsRequest(ranges=[wanted]))
        try:
            first: pb.ReadEventsResponse = stream.next()
            return first
        finally:
            stream.cancel()

    async def _opened(self, reached: Mapping[Partition, int]) -> OpenStream:
        ranges = [_range(partition, offset=offset) for partition, offset in reached.items()]
        request = pb.ReadEventsRequest(ranges=ranges, follow=True)
        return await asyncio.to_thread(self._client.open_stream, "ReadEvents", request)

    async def _reopened(self, reached: Mapping[Partition, int]) -> OpenStream:
        until_s = time.monotonic() + RECONNECT_S
        while True:
            try:
                return await self._opened(reached)
            except Unreachable:
                if time.monotonic() > until_s:
                    raise
            await asyncio.sleep(_SEARCH_PAUSE_S)


def _range(partition: Partition, **start: int | bool | Timestamp | None) -> pb.EventRange:
    return pb.EventRange(topic=partition.topic, partition=partition.number, **start)  # type: ignore[arg-type]


@asynccontextmanager
async def open_events(client: Client, log_source: LogSource | None) -> AsyncIterator[EventLog]:
    """The log that a flag, a variable or a file names, otherwise the log of the server, read through the API."""
    if log_source is not None:
        async with open_log_to_read(log_source, rng=random.Random()) as log:
            yield log
        return
    status: pb.Status = await asyncio.to_thread(client.query, "GetStatus", pb.GetStatusRequest())
    yield RemoteLog(client, status.log.partition_count)

"""ReadEvents: records of the log from a position on, for clients without access to the brokers.

Records arrive in the order of their partition. A response carries the next offset of its partition, so a client that
lost its stream continues exactly there. Nothing is buffered for a slow client: the server reads more records only after
the client has taken the last response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing

from commands.requests.validation import time_of
from commands.rpc.errors import PositionExpired
from commands.rpc.middleware import Call
from commands.streams.event_filter import admitted
from commands.streams.lasting import LastingStreams, StreamEnded
from eventstore.errors import LogMismatch, PermanentError
from eventstore.log import EventLog, Partition, Record
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp

RANGES_MAX = 256
_RECORDS_PER_MESSAGE = 500
_BYTES_PER_MESSAGE = 1 << 20


class EventReader:
    """Reads the log of a replica for its clients."""

    def __init__(self, log: EventLog, streams: LastingStreams) -> None:
        self._log = log
        self._streams = streams

    async def read(self, request: pb.ReadEventsRequest, _call: Call) -> AsyncGenerator[pb.ReadEventsResponse, None]:
        ranges = self._checked(request.ranges)
        with ExitStack() as stack:
            until_s = stack.enter_context(self._streams.opened())
            positions: dict[Partition, int] = {}
            ends: dict[Partition, int] = {}
            for partition, wanted in ranges.items():
                first = await self._first(partition, wanted)
                yield first
                end = wanted.end_offset if wanted.HasField("end_offset") else None
                if not request.follow:
                    end = first.end_offset if end is None else min(end, first.end_offset)
                if end is None or first.next_offset < end:
                    positions[partition] = first.next_offset
                if end is not None:
                    ends[partition] = end
            if positions:
                async for response in self._responses(positions, ends, request.filter, until_s):
                    yield response

    async def _responses(
        self, positions: Mapping[Partition, int], ends: dict[Partition, int], wanted: pb.EventFilter, until_s: float
    ) -> AsyncGenerator[pb.ReadEventsResponse, None]:
        """The records from `positions` on; a partition without an end is read until `until_s`."""
        pending = {*positions}
        async with aclosing(self._log.read(positions)) as batches:
            while pending:
                try:
                    partition, records = await self._streams.wait(lambda: anext(batches), until_s)
                except StreamEnded:
                    return
                except LogMismatch as error:  # the records expired meanwhile, or the log is not the same any more
                    raise PositionExpired(f"offset: {error}") from error
                if partition not in pending or not records:
                    continue
                end = ends.get(partition)
                within = records if end is None else [record for record in records if record.offset < end]
                next_offset = records[-1].offset + 1
                is_done = end is not None and next_offset >= end
                for response in _messages(partition, within, wanted, end if is_done else None):
                    yield response
                    await asyncio.sleep(0)
                if is_done:
                    pending.discard(partition)

    def _checked(self, ranges: Sequence[pb.EventRange]) -> dict[Partition, pb.EventRange]:
        """The ranges by partition. Raises PermanentError."""
        if not 1 <= len(ranges) <= RANGES_MAX:
            raise PermanentError(f"ranges: {len(ranges)} must be from 1 to {RANGES_MAX}")
        found: dict[Partition, pb.EventRange] = {}
        for wanted in ranges:
            partition = Partition(wanted.topic, wanted.partition)
            if wanted.topic not in self._log.topics.with_events:
                names = ", ".join(self._log.topics.with_events)
                raise PermanentError(f"ranges.topic: {quoted(wanted.topic)} must be one of {names}")
            if partition not in self._log.partitions(wanted.topic):
                raise PermanentError(f"ranges.partition: {partition} does not exist in this log")
            if partition in found:
                raise PermanentError(f"ranges: {partition} must be given once")
            found[partition] = wanted
        return found

    async def _first(self, partition: Partition, wanted: pb.EventRange) -> pb.ReadEventsResponse:
        """The first response of a range. Raises PositionExpired."""
        begin, end = await self._log.begin(partition), await self._log.end(partition)
        match wanted.WhichOneof("start"):
            case "offset":
                start = wanted.offset
            case "start_time":
                start = await self._log.position_at(partition, time_of("ranges.start_time", wanted.start_time))
            case "at_end":
                start = end
            case _:
                start = begin
        if not begin <= start <= end:
            raise PositionExpired(
                f"offset: {start} of {partition} must be from {begin} to {end}, which the log has now"
            )
        return pb.ReadEventsResponse(
            topic=partition.topic,
            partition=partition.number,
            next_offset=start,
            begin_offset=begin,
            end_offset=end,
        )


def _messages(
    partition: Partition, records: Sequence[Record], wanted: pb.EventFilter, end: int | None
) -> Iterator[pb.ReadEventsResponse]:
    """Responses of bounded size. Each names the offset of the next record to read. In the last response, this offset is
    `end`; without an `end`, it is the offset after the last record."""
    pieces = [*_pieces(records)] or [[]]
    for number, piece in enumerate(pieces, 1):
        is_last = end is not None and number == len(pieces)
        yield pb.ReadEventsResponse(
            topic=partition.topic,
            partition=partition.number,
            records=[_message(record) for record in admitted(wanted, piece)],
            next_offset=end if is_last or not piece else piece[-1].offset + 1,
        )


def _pieces(records: Sequence[Record]) -> Iterator[list[Record]]:
    piece: list[Record] = []
    size = 0
    for record in records:
        if piece and (len(piece) == _RECORDS_PER_MESSAGE or size + len(record.value) > _BYTES_PER_MESSAGE):
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += len(record.value)
    if piece:
        yield piece


def _message(record: Record) -> pb.LogRecord:
    append_time = to_timestamp(record.timestamp_ms)
    return pb.LogRecord(offset=record.offset, append_time=append_time, key=record.key, value=record.value)

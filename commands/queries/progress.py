"""Queries about the whole fleet: the progress of every zone, and the latency of the last changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from commands.messages import to_message
from commands.queries.fold_reader import FoldReader
from commands.rpc.middleware import Call
from eventstore.log import FLEET, INSTALLS, ZONES
from projections.views.progress import Latencies, ProgressViews
from schemas.api import dpuplane_pb2 as pb

_ZONES_PER_MESSAGE = 100


class ProgressQueries:
    """Answers the queries that count rows. The counts of unchanged rows are cached."""

    def __init__(self, reader: FoldReader) -> None:
        self._reader = reader
        self._progress = ProgressViews()
        self._latencies = Latencies()

    async def list_zone_progress(
        self, request: pb.ListZoneProgressRequest, call: Call
    ) -> AsyncIterator[pb.ListZoneProgressResponse]:
        """Zones by partition, then by name. Each message is from one position; the next message may be from a later
        one.
        """
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET, INSTALLS), call)
        described: dict[int, set[str]] = {}
        for zone in self._reader.fleet.known_zones():
            described.setdefault(self._reader.partition_number(zone), set()).add(zone)
        for number in self._reader.partition_numbers:
            zones = sorted({*self._reader.zones(number).zones(), *described.get(number, ())})
            for start in range(0, len(zones), _ZONES_PER_MESSAGE):
                yield pb.ListZoneProgressResponse(
                    zones=[self._zone_progress(zone, number) for zone in zones[start : start + _ZONES_PER_MESSAGE]],
                    position=self._reader.token(ZONES, FLEET, INSTALLS, numbers=[number]),
                )
                await asyncio.sleep(0)

    async def get_latency(self, request: pb.GetLatencyRequest, call: Call) -> pb.Latency:
        await self._reader.wait_for_position(request.min_position, (INSTALLS,), call)
        numbers = self._reader.partition_numbers
        for number in numbers:
            self._latencies.take(number, self._reader.installs_at(number))
            await asyncio.sleep(0)
        return to_message(pb.Latency, self._latencies.view(), position=self._reader.token(INSTALLS, numbers=numbers))

    def _zone_progress(self, zone: str, number: int) -> pb.ZoneProgress:
        reader = self._reader
        state, installs = reader.zones(number), reader.installs(zone)
        return to_message(pb.ZoneProgress, self._progress.view(zone, state, reader.fleet, installs, reader.generation))

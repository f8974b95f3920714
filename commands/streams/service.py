"""The Streams service: its methods in snake case, called by `commands.rpc.middleware.RpcMiddleware`."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from commands.rpc.middleware import Call
from commands.streams.events import EventReader
from schemas.api import dpuplane_pb2 as pb


class StreamsService:
    """Routes each method to its reader."""

    def __init__(self, events: EventReader) -> None:
        self._events = events

    def read_events(self, request: pb.ReadEventsRequest, call: Call) -> AsyncGenerator[pb.ReadEventsResponse, None]:
        return self._events.read(request, call)

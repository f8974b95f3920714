"""The Streams service: its methods in snake case, called by `commands.rpc.middleware.RpcMiddleware`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from commands.rpc.middleware import Call, UndecodableRequest
from commands.streams.events import EventReader
from commands.streams.sessions import SessionKeeper
from commands.streams.watches import Watches
from schemas.api import dpuplane_pb2 as pb


class StreamsService:
    """Routes each method to its reader."""

    def __init__(self, events: EventReader, watches: Watches, sessions: SessionKeeper) -> None:
        self._events = events
        self._watches = watches
        self._sessions = sessions

    def watch(self, request: pb.WatchRequest, call: Call) -> AsyncGenerator[pb.WatchResponse, None]:
        return self._watches.watch(request, call)

    def read_events(self, request: pb.ReadEventsRequest, call: Call) -> AsyncGenerator[pb.ReadEventsResponse, None]:
        return self._events.read(request, call)

    def keep_session(
        self, requests: AsyncIterator[pb.KeepSessionRequest | UndecodableRequest], call: Call
    ) -> AsyncGenerator[pb.KeepSessionResponse, None]:
        return self._sessions.keep(requests, call)

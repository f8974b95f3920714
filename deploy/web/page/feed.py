"""The page's live connection: server-sent events, at most one message per refresh of the live view.

The next message is built from the present state when the previous one has been sent. A slow browser therefore has one
message queued here and receives fewer messages. A browser that reads nothing for 30 s is disconnected. The HTTP
server cancels the handler when a connection ends, so a closed page frees its place at once. Places per viewer (a
principal, or an address without TLS) are limited: 64 tabs of one person kept all others out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from deploy.web.page.live_view import LiveView
from deploy.web.page.requests import NO_STORE, NotReady, check_site, parameters, refused
from drivers.wire.agent_listener import PEER_IDENTITY
from drivers.wire.bounded_listener import peer_of
from eventstore.errors import PermanentError, TransientError
from projections.field_checks import quoted

FEEDS_MAX = 64
FEEDS_PER_VIEWER = 6
"""Maximum feeds of one viewer. A browser opens at most 6 connections to a server, and needs one of them for data."""
WRITE_S = 30.0
SILENCE_S = 2.0
"""Maximum time between messages, so that a page can tell an idle fleet from a lost connection."""


class Feeds:
    """Serves GET /page/feed."""

    def __init__(self, live_view: Callable[[], LiveView], now_ms: Callable[[], int]) -> None:
        self._live_view = live_view
        self._now_ms = now_ms
        self.refused = 0
        """Number of feeds refused because a limit of feeds was reached."""
        self._open: Counter[str] = Counter()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            check_site(request)
            parameters(request, ())
            live_view = self._live_view()
            viewer = _viewer(request)
            self._check_room(viewer)
        except (PermanentError, TransientError) as error:
            return refused(error)
        self._open[viewer] += 1
        try:
            with live_view.watching():
                return await self._feed(request, live_view)
        finally:
            self._open[viewer] -= 1
            if not self._open[viewer]:
                del self._open[viewer]

    def _check_room(self, viewer: str) -> None:
        """Raises NotReady if this process has FEEDS_MAX open feeds, or this viewer has FEEDS_PER_VIEWER."""
        fault = ""
        if self._open.total() >= FEEDS_MAX:
            fault = f"{FEEDS_MAX} pages are open at this process already"
        elif self._open[viewer] >= FEEDS_PER_VIEWER:
            fault = f"{quoted(viewer)} has {FEEDS_PER_VIEWER} pages open at this process already"
        if fault:
            self.refused += 1
            raise NotReady(f"feed: {fault}, the limit; close one of them")

    async def _feed(self, request: web.Request, live_view: LiveView) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**NO_STORE, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        look = 0
        try:
            while not live_view.is_over:
                look, found = await live_view.changes(look, timeout_s=SILENCE_S)
                async with asyncio.timeout(WRITE_S):
                    await response.write(b"data: " + msgspec.json.encode(self._message(found)) + b"\n\n")
        except (TimeoutError, ConnectionError):
            pass
        return response

    def _message(self, found: dict[str, Any]) -> dict[str, Any]:
        zones = [value for key, value in found.items() if key.startswith("zone/")]
        rest = {key: value for key, value in found.items() if not key.startswith("zone/")}
        return {"now_ms": self._now_ms(), **rest, **({"zones": zones} if zones else {})}


def _viewer(request: web.Request) -> str:
    """The viewer to whose limit a feed counts: the principal, or the address of the browser."""
    identity = request.get(PEER_IDENTITY)
    return identity.principal if identity is not None and identity.principal else peer_of((str(request.remote),))

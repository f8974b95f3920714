"""The page's one live connection: server-sent events, a message per look of the board at most.

The next message is made only when the last one has left, from what is true then. So a slow browser holds one message
here and gets fewer of them, and one that takes nothing for half a minute is let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from deploy.page.board import Board
from deploy.page.requests import NO_STORE, NotReady, check_site, parameters, refused
from eventstore.errors import PermanentError, TransientError

FEEDS_MAX = 64
WRITE_S = 30.0
SILENCE_S = 2.0
"""Something is said at least this often, so that a page can tell a quiet fleet from a lost connection."""


class Feeds:
    """Serves GET /page/feed."""

    def __init__(self, board: Callable[[], Board], now_ms: Callable[[], int]) -> None:
        self._board = board
        self._now_ms = now_ms
        self._open = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            check_site(request)
            parameters(request, ())
            board = self._board()
            if self._open >= FEEDS_MAX:
                raise NotReady(f"feed: {self._open} pages look at this process already, the most there may be")
        except (PermanentError, TransientError) as error:
            return refused(error)
        self._open += 1
        try:
            with board.watching():
                return await self._feed(request, board)
        finally:
            self._open -= 1

    async def _feed(self, request: web.Request, board: Board) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**NO_STORE, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        look = 0
        try:
            while not board.is_over:
                look, found = await board.changes(look, timeout_s=SILENCE_S)
                async with asyncio.timeout(WRITE_S):
                    await response.write(b"data: " + msgspec.json.encode(self._message(found)) + b"\n\n")
        except (TimeoutError, ConnectionError):
            pass
        return response

    def _message(self, found: dict[str, Any]) -> dict[str, Any]:
        zones = [value for key, value in found.items() if key.startswith("zone/")]
        rest = {key: value for key, value in found.items() if not key.startswith("zone/")}
        return {"now_ms": self._now_ms(), **rest, **({"zones": zones} if zones else {})}

"""The API server of a source cluster as one process reaches it over its network, with the deadlines of production.

A request in flight takes effect even if its sender has died, or no longer waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

from drivers.kubernetes.client import REQUEST_S
from schemas.kubernetes.api import ApiError, KubernetesApi, PatchType, WatchEvent
from tests.simulation.network import Wire
from tests.support.virtual_loop import current_loop

WRITER: ContextVar[str] = ContextVar("writer", default="")
"""The sender of the request that an API server handles; empty for people and for programs of the cluster itself."""


class WiredApi:
    """An API server behind a wire, as one sender reaches it."""

    def __init__(self, api: KubernetesApi, wire: Wire, writer: str) -> None:
        self._api = api
        self._wire = wire
        self._writer = writer

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self._call(self._api.get(path, query))

    async def create(self, path: str, body: Any) -> bytes:
        return await self._call(self._api.create(path, body))

    async def replace(self, path: str, body: Any) -> bytes:
        return await self._call(self._api.replace(path, body))

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        return await self._call(self._api.patch(path, body, kind, query))

    async def delete(self, path: str, *, uid: str) -> bytes:
        return await self._call(self._api.delete(path, uid=uid))

    def watch(
        self, path: str, query: Mapping[str, str], *, idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._watch(path, query, idle_s)

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], idle_s: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        await self._travel()
        watch = self._api.watch(path, query, idle_s=idle_s)
        try:
            async with asyncio.timeout(REQUEST_S):
                events = await watch.__aenter__()
        except TimeoutError:
            raise _unreachable() from None
        try:
            async with aclosing(cast(Any, events)):
                yield self._events(events)
        finally:
            await watch.__aexit__(None, None, None)

    async def _events(self, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        async for event in events:
            await self._travel()
            yield event

    async def _call(self, request: Coroutine[Any, Any, bytes]) -> bytes:
        try:
            await self._travel()
        except BaseException:
            request.close()
            raise
        sent = current_loop().in_world(self._signed(request), "request to an API server")
        sent.add_done_callback(_retrieve_error)
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await asyncio.shield(sent)
        except TimeoutError:
            raise _unreachable() from None
        await self._travel()
        if self._wire.answers_lost:
            raise _unreachable()
        return answer

    async def _signed(self, request: Coroutine[Any, Any, bytes]) -> bytes:
        WRITER.set(self._writer)
        return await request

    async def _travel(self) -> None:
        await asyncio.sleep(self._wire.latency_s())
        if self._wire.is_isolated or self._wire.is_cut:
            raise _unreachable()


def _unreachable() -> ApiError:
    return ApiError(0, "Unreachable", "no answer from the API server")


def _retrieve_error(done: asyncio.Task[Any]) -> None:
    """Retrieve the error of a request whose sender no longer waits, so that asyncio does not report it."""
    if not done.cancelled():
        done.exception()

"""The front of the mock of a BMC: HTTPS, which the mock lacks, requests that are counted, and answers that are lost.

It passes every request to the mock, and changes two of its answers. The service root names no sessions, as those of the
mock have no token. The collection of tasks names the task of updates, which the mock leaves out.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import aiohttp
import msgspec
from aiohttp import web

ROOT = "/redfish/v1"
TASKS = f"{ROOT}/TaskService/Tasks"
UPDATE_TASK = f"{TASKS}/upgrade"
"""The only task that an update of the mock makes."""
UPDATE = "/UpdateService.SimpleUpdate"
_Json: TypeAlias = dict[str, Any]


class Front:
    """Passes requests to a mock. `requests` are their methods and paths. A test may set the other attributes at any
    time."""

    def __init__(self, session: aiohttp.ClientSession, mock: str) -> None:
        self.requests: list[tuple[str, str]] = []
        self.has_sessions = False
        """Whether the service root names the sessions of the mock."""
        self.lists_tasks = True
        """Whether the collection of tasks names the task of updates."""
        self.names_tasks = True
        """Whether the answer to an update has the location of its task."""
        self.lost_updates = 0
        """The number of the next updates whose answer is lost, after the mock has accepted them."""
        self.polled = asyncio.Event()
        """The task of an update was asked for."""
        self.may_poll = asyncio.Event()
        """Until it is set, requests for the task of an update wait."""
        self.may_poll.set()
        self._session = session
        self._mock = mock

    @property
    def updates(self) -> int:
        """The number of updates that the mock was asked for."""
        return self.count("POST", UPDATE)

    def count(self, method: str, end: str) -> int:
        """The number of requests of this method for paths with this end."""
        return sum(asked == method and path.endswith(end) for asked, path in self.requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if request.path == UPDATE_TASK:
            self.polled.set()
            await self.may_poll.wait()
        status, headers, content = await self._answer(request)
        if request.path.endswith(UPDATE) and self.lost_updates:
            self.lost_updates -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status, headers=headers, body=content)

    async def _answer(self, request: web.Request) -> tuple[int, dict[str, str], bytes]:
        """The answer of the mock, with the changes of this front."""
        async with self._session.request(
            request.method,
            self._mock + request.path,
            data=await request.read(),
            headers={"Content-Type": request.content_type},
            allow_redirects=False,
        ) as answer:
            content = await answer.read()
            kept = ("Content-Type", "Location") if self.names_tasks else ("Content-Type",)
            headers = {name: answer.headers[name] for name in kept if name in answer.headers}
            if answer.status == web.HTTPOk.status_code and request.method == "GET":
                content = self._changed(request.path, content)
            return answer.status, headers, content

    def _changed(self, path: str, content: bytes) -> bytes:
        if path == f"{ROOT}/" and not self.has_sessions:
            root = msgspec.json.decode(content, type=_Json)
            del root["SessionService"]
            return msgspec.json.encode(root)
        if path == TASKS and self.lists_tasks and self.updates:
            tasks = msgspec.json.decode(content, type=_Json)
            assert not any(UPDATE_TASK in each.values() for each in tasks["Members"])
            tasks["Members"].append({"@odata.id": UPDATE_TASK})
            return msgspec.json.encode(tasks)
        return content


@asynccontextmanager
async def fronted(mock: str, context: ssl.SSLContext, host: str) -> AsyncIterator[tuple[Front, str]]:
    """A front of the mock at this URL, with the address at which the plane finds it."""
    async with aiohttp.ClientSession() as session:
        front = Front(session, mock)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", front.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, 0, ssl_context=context).start()
            yield front, f"redfish://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

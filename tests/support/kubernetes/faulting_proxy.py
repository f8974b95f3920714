"""An HTTP proxy in front of a real API server that fails in ways in which the server cannot be made to fail.

The proxy forwards every request to the real server, with the caller's credentials, and changes the answer: errors with
and without the effect of the request, lists without objects that exist, watches that are silent or expire, slow and
broken answers. It serves TLS with the certificate of an API server that the tests started.

The proxy records each request and each write that the real server committed, so a test can compare the writes with the
writes that were needed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from projections.kubernetes.status_body import without_stamps
from tests.support.kubernetes.answer_faults import REASONS, AnswerFault, Injected, Refusal, error_body
from tests.support.kubernetes.api_server import HOST, ApiServer

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_BODY_BYTES = 16 << 20
HOP_BY_HOP = frozenset({"connection", "content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that concern one connection, or that the proxy computes itself."""

Shown = Callable[[dict[str, Any]], bool]


class Committed(NamedTuple):
    """A write that the real server committed, with the object that it answered."""

    method: str
    path: str
    object: dict[str, Any]


class Seen(NamedTuple):
    """A request of a client, with its time and the status that the client got; 0 if it got no complete answer."""

    time_s: float
    method: str
    path: str
    query: Mapping[str, str]
    status: int


class OpenWatch:
    """A watch of a client. Its lines pass unless it is stalled."""

    def __init__(self, path: str, response: web.StreamResponse, request: web.Request) -> None:
        self.path = path
        self.is_stalled = False
        self._response = response
        self._request = request
        self.ended = asyncio.Event()

    async def send(self, line: bytes) -> None:
        if not self.is_stalled:
            await self._response.write(line)

    async def expire(self) -> None:
        """Send the event of an expired watch, and end the watch."""
        body = error_body(410, "too old resource version (injected)")
        with suppress(OSError):
            await self._response.write(json.dumps({"type": "ERROR", "object": body}).encode() + b"\n")
        self.ended.set()

    def cut(self) -> None:
        """Reset the connection in the middle of a line."""
        if self._request.transport is not None:
            self._request.transport.abort()
        self.ended.set()


class FaultingProxy:
    """A proxy in front of one API server. It changes no answer until a test asks for it."""

    def __init__(self, cluster: ApiServer) -> None:
        self.is_down = False
        """Whether every connection is closed without an answer. `go_down` also closes the open ones."""
        self.stalled = ""
        """Watches of paths with this text send nothing, and stay open; empty for none."""
        self.answer_delay_s = 0.0
        """Delay of every answer, after the server has handled the request."""
        self.requests: list[Seen] = []
        self.committed: list[Committed] = []
        self.injected: Counter[str] = Counter()
        """Number of injected faults, by their kind."""
        self.random_fault: Callable[[str, str], AnswerFault | None] | None = None
        """Chooses a fault for a request by its method and path, if none was injected for it."""
        self._cluster = cluster
        self._faults: list[Injected] = []
        self._shown: dict[str, tuple[Shown, str]] = {}
        self._watches: set[OpenWatch] = set()
        self._port = 0
        self._upstream: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultingProxy]:
        """Serve during the context."""
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(*self._cluster.serving_certificate())
        connector = aiohttp.TCPConnector(ssl=self._cluster.client_context(), limit=0)
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=MAX_BODY_BYTES) as self._upstream:
            await runner.setup()
            await web.TCPSite(runner, HOST, 0, ssl_context=serving).start()
            self._port = runner.addresses[0][1]
            try:
                yield self
            finally:
                self.cut_watches()
                await runner.cleanup()

    # -- faults

    def inject(self, fault: AnswerFault, *methods: str, within: str = "", times: int = 1) -> None:
        """Apply a fault to the next requests with one of these methods (default: all), and with `within` in their path
        or query. Watches have the method WATCH."""
        self._faults.append(Injected(fault, frozenset(methods), within, times))

    @property
    def is_faulty(self) -> bool:
        """Whether an injected fault still waits for its request."""
        return bool(self._faults)

    def clear_injected(self) -> None:
        """End the faults of single answers. Hidden objects and stalled watches stay."""
        self._faults.clear()

    def clear(self) -> None:
        """End every fault that is in force."""
        self._faults.clear()
        self._shown.clear()
        self.random_fault, self.stalled, self.is_down, self.answer_delay_s = None, "", False, 0.0

    def show(self, path: str, shown: Shown, *, unless: str = "") -> None:
        """Let lists of a path contain only the objects for which `shown` is true. The lists look complete. Lists whose
        path or query has the text `unless` contain every object."""
        self._shown[path] = shown, unless

    def show_all(self) -> None:
        """Let lists contain every object again."""
        self._shown.clear()

    def go_down(self) -> None:
        """Refuse every connection until `clear`, and close the open watches."""
        self.is_down = True
        self.cut_watches()

    def stall(self, within: str) -> None:
        """Keep watches with this text in their path open without a byte, present and later ones, until `clear`."""
        self.stalled = within
        for watch in self._watches:
            watch.is_stalled = watch.is_stalled or within in watch.path

    def cut_watches(self, within: str = "") -> None:
        """Reset the connections of open watches."""
        for watch in self._of(within):
            self.injected["cut watch"] += 1
            watch.cut()

    async def expire_watches(self, within: str = "") -> None:
        """End open watches with the event of an expired resource version (410)."""
        for watch in self._of(within):
            self.injected["410 on a watch"] += 1
            await watch.expire()

    def watches(self, within: str = "") -> int:
        """Number of open watches."""
        return len(self._of(within))

    def _of(self, within: str) -> list[OpenWatch]:
        return [watch for watch in self._watches if within in watch.path]

    # -- requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.is_down:
            self.injected["down"] += 1
            return self._without_answer(request)
        is_watch = request.query.get("watch") in ("true", "1")
        method = "WATCH" if is_watch else request.method
        fault = self._fault_for(method, str(request.rel_url))
        if fault is not None:
            self.injected[str(fault)] += 1
        if isinstance(fault, Refusal) and not fault.is_committed:
            self._record(request, method, fault.status)
            return fault.response()
        if is_watch:
            self._record(request, method, 200)
            return await self._watch(request)
        try:
            return await self._forward(request, fault)
        except asyncio.CancelledError:  # the client gave up
            self._record(request, method, 0)
            raise

    async def _forward(self, request: web.Request, fault: AnswerFault | None) -> web.StreamResponse:
        body = await request.read()
        await asyncio.sleep(fault.request_delay_s if fault is not None else 0.0)
        async with self._upstream.request(
            request.method,
            f"{self._cluster.url}{request.rel_url}",
            data=body,
            headers={name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP},
        ) as answer:
            data, status = await answer.read(), answer.status
        if request.method in WRITES and status < 300:
            self.committed.append(Committed(request.method, request.path, json.loads(data)))
        await asyncio.sleep(max(self.answer_delay_s, fault.delay_s if fault is not None else 0.0))
        if self.is_down or (fault is not None and fault.cut_after is not None):
            self._record(request, request.method, 0)
            return await self._cut_answer(request, data, fault.cut_after if fault is not None else 0.0)
        if isinstance(fault, Refusal):
            self._record(request, request.method, fault.status)
            return fault.response()
        self._record(request, request.method, status)
        data = self._filtered(request, data) if request.method == "GET" and status == 200 else data
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        return web.Response(status=status, body=data, headers=headers)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._cluster.url}{request.rel_url}"
        async with self._upstream.get(url, headers=headers, timeout=timeout) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            watch = OpenWatch(request.path, response, request)
            watch.is_stalled = bool(self.stalled) and self.stalled in request.path
            self._watches.add(watch)
            try:
                await self._pump(answer, watch)
            except OSError:
                watch.cut()
            finally:
                self._watches.discard(watch)
            return response

    async def _pump(self, answer: aiohttp.ClientResponse, watch: OpenWatch) -> None:
        """Pass lines on until the server or a fault ends the watch."""
        ended = asyncio.ensure_future(watch.ended.wait())
        try:
            while True:
                line = asyncio.ensure_future(answer.content.readline())
                try:
                    await asyncio.wait((line, ended), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not line.done():
                        line.cancel()
                if ended.done():
                    return
                if not (data := line.result()):
                    if watch.is_stalled:
                        await ended
                    return
                await watch.send(data)
        except aiohttp.ClientError:
            watch.cut()
        finally:
            ended.cancel()

    def _fault_for(self, method: str, target: str) -> AnswerFault | None:
        for injected in self._faults:
            if injected.concerns(method, target):
                injected.times -= 1
                if not injected.times:
                    self._faults.remove(injected)
                return injected.fault
        return self.random_fault(method, target) if self.random_fault is not None else None

    def _filtered(self, request: web.Request, data: bytes) -> bytes:
        """A list without the objects that are not shown."""
        shown, unless = self._shown.get(request.path, (None, ""))
        if shown is None or (unless and unless in str(request.rel_url)):
            return data
        found = json.loads(data)
        kept = [item for item in found["items"] if shown(item)]
        self.injected["hidden objects"] += len(found["items"]) - len(kept)
        return json.dumps({**found, "items": kept}).encode()

    def _record(self, request: web.Request, method: str, status: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self.requests.append(Seen(now_s, method, request.path, dict(request.query), status))

    async def _cut_answer(self, request: web.Request, data: bytes, share: float | None) -> web.StreamResponse:
        """Send this share of an answer, and reset the connection."""
        if share:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.content_length = len(data)
            await response.prepare(request)
            await response.write(data[: max(1, int(len(data) * share))])
            await asyncio.sleep(0.05)  # a reset may drop bytes that the client has not read yet
        return self._without_answer(request)

    def _without_answer(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=503, reason=REASONS[503])


def repeated(committed: Iterable[Committed]) -> list[Committed]:
    """The committed writes after which their object had the same content as before, apart from the position and the
    times of its conditions: writes that were not needed."""
    found: list[Committed] = []
    known: dict[str, Any] = {}
    for each in committed:
        about = each.object.get("metadata", {})
        content = {name: part for name, part in each.object.items() if name not in ("metadata", "status")}
        content["metadata"] = {name: about.get(name) for name in ("annotations", "labels", "ownerReferences")}
        content["status"] = without_stamps(each.object.get("status", {}))
        if each.method != "DELETE" and known.get(about.get("uid", "")) == content:
            found.append(each)
        known[about.get("uid", "")] = content
    return found


@asynccontextmanager
async def faulting(cluster: ApiServer) -> AsyncIterator[FaultingProxy]:
    """Run a proxy in front of a control plane during the context."""
    async with FaultingProxy(cluster).running() as proxy:
        yield proxy

"""Servers that answer queries as of a point of the past: one process for each point, started on demand.

A server (as_of_server.py) runs for some time after a query, because a reader of a point mostly sends several queries.
The least recently used server is replaced first. No server writes to the log or to the live folds, so a query of the
past costs at most one core at low priority, and the memory of one more replica per server.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from commands.queries.as_of import AsOfQueries
from deploy.host.child_process import answers_of, start_child
from deploy.operations.past.as_of_server import AsOfRequest
from deploy.settings.settings import Settings
from eventstore.as_of import check_not_in_future, parse_as_of
from eventstore.errors import LogUnavailable, PermanentError
from eventstore.reasons import Fault, Reason

IDLE_S = 120.0
"""A server without a request for this long is stopped."""

CHECK_S = 5.0
"""Interval of checks for idle servers."""

PAUSE_S = 0.5
RETURN_S = 3.0
"""A reader may return within this time for more results, or for a point that was still being folded; until then its
server is not evicted.
"""

_MESSAGE_BYTES_MAX = 64 << 20
_PROGRAM = "deploy.operations.past.as_of_server"


class AsOfServers:
    """An AsOfSource of the API: servers by their requested position or time. Create it with `open`."""

    def __init__(self, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._now_ms = now_ms
        self._started = 0
        self._servers: OrderedDict[str, _AsOfServer] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, now_ms: Callable[[], int]) -> AsyncIterator[AsOfServers]:
        """A context that stops all servers at its end."""
        as_of_servers = cls(settings, now_ms)
        idle_stopper = asyncio.create_task(as_of_servers._stop_idle())
        try:
            yield as_of_servers
        finally:
            idle_stopper.cancel()
            for text in list(as_of_servers._servers):
                as_of_servers._stop(text)
            await asyncio.gather(idle_stopper, *as_of_servers._ending, return_exceptions=True)
            if as_of_servers._folder is not None:
                as_of_servers._folder.cleanup()

    async def at(self, text: str, *, timeout_s: float) -> AsOfQueries:
        """The Queries service as of a position or time.

        Raises PermanentError if there is no such point, and LogUnavailable if folding takes longer than the timeout;
        folding continues.
        """
        check_not_in_future(parse_as_of(text), self._now_ms())
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + timeout_s
        while (server := self._get_or_start(text)) is None:
            if now_s() >= until_s:
                reason = f"as_of: {len(self._servers)} other past times are being folded; try again"
                raise LogUnavailable(Fault(reason, Reason.STILL_FOLDING))
            await asyncio.sleep(min(PAUSE_S, max(0.0, until_s - now_s())))
        return await server.ready(max(0.0, until_s - now_s()))

    def _get_or_start(self, text: str) -> _AsOfServer | None:
        """The server for this position or time; None while no further server can be started."""
        found = self._servers.get(text)
        if found is not None and found.is_over:
            self._stop(text)
            found = None
        if found is None:
            if len(self._servers) >= self._settings.as_of_servers and not self._evict():
                return None
            order = AsOfRequest(settings=self._settings, at=text, socket=self._socket())
            found = self._servers[text] = _AsOfServer(order)
        self._servers.move_to_end(text)
        return found

    def _socket(self) -> Path:
        """A socket path for the next server. The folder is created on first use: most processes never need one."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="dpuplane-past-")
        self._started += 1
        return Path(self._folder.name, str(self._started))

    def _evict(self) -> bool:
        """Stop the least recently used server, unless all servers may still be in use. Returns whether one was
        stopped.
        """
        for text, server in self._servers.items():
            if server.is_over or server.idle_s() >= (PAUSE_S if server.is_ready else RETURN_S):
                self._stop(text)
                return True
        return False

    def _stop(self, text: str) -> None:
        ending = self._servers.pop(text).end()
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _stop_idle(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            for text in [text for text, server in self._servers.items() if server.idle_s() >= IDLE_S]:
                self._stop(text)


class _AsOfServer:
    """The process of one server: starting, folding, serving, ended."""

    def __init__(self, order: AsOfRequest) -> None:
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._asked_s = self._loop.time()
        self._waiting = 0
        self._progress = "it is being opened"
        self._channel: grpc.aio.Channel | None = None
        self._serving: asyncio.Future[AsOfQueries] = self._loop.create_future()
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        """Whether the point does not exist, or the process has ended."""
        return self._task.done() or (self._serving.done() and self._serving.exception() is not None)

    @property
    def is_ready(self) -> bool:
        return self._channel is not None

    def idle_s(self) -> float:
        """Seconds since the last query."""
        return 0.0 if self._waiting else self._loop.time() - self._asked_s

    async def ready(self, timeout_s: float) -> AsOfQueries:
        """Wait until the log is folded up to the requested point, and return the queries at this point. Raises the
        errors of `AsOfServers.at`.
        """
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._serving)
        except TimeoutError:
            raise LogUnavailable(Fault(f"as_of: {self._progress}; repeat the query", Reason.STILL_FOLDING)) from None
        finally:
            self._waiting -= 1
            self._asked_s = self._loop.time()

    def end(self) -> asyncio.Task[None]:
        """Kill the process. The task ends when the process has ended."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        process = start_child(_PROGRAM, self._order)
        try:
            async for answer in answers_of(process):
                self._handle(answer)
        finally:
            process.kill()
            if not self._serving.done():
                self._fail(LogUnavailable("as_of: the process that folds it ended; try again"))
            if self._channel is not None:
                await self._channel.close(None)
            await asyncio.to_thread(process.wait)

    def _handle(self, said: dict[str, object]) -> None:
        match said:
            case {"done": int(done), "total": int(total)}:
                share = 100 * done // total if total else 100
                self._progress = f"{done:,} of {total:,} records are folded ({share} %)"
            case {"ready": True}:
                options = [("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX)]
                self._channel = grpc.aio.insecure_channel(f"unix:{self._order.socket}", options=options)
                self._serving.set_result(AsOfQueries(self._channel))
            case {"refused": str(reason)}:
                self._fail(PermanentError(reason))
            case {"failed": str(reason)}:
                self._fail(LogUnavailable(f"as_of: {reason}"))

    def _fail(self, error: Exception) -> None:
        self._serving.set_exception(error)
        self._serving.exception()  # mark the exception as retrieved: there may be no waiter

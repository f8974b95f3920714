"""BMCs over HTTP: a server for simulated BMCs, and the client for provisioners in other processes.

An address is `http://HOST:PORT/NAME`. Every call is a POST to ADDRESS/CALL with a JSON body and a JSON response. A
status other than 200 stands for one of the errors of `bmc`, with its sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp import web

from drivers.backends.bmc import (
    Bmc,
    Connect,
    NeedsOperator,
    Reading,
    SessionEnded,
    Task,
    TaskFailed,
    Unreachable,
)
from projections.field_checks import quoted

_MAX_ANSWER_BYTES = 1 << 20
_STATUS: dict[type[Exception], int] = {Unreachable: 503, SessionEnded: 409, TaskFailed: 500, NeedsOperator: 422}
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding JSON; invalid UTF-8 and unlimited nesting raise no DecodeError."""
_UNDIALABLE = (aiohttp.InvalidURL, UnicodeError)
"""Errors of dialing an invalid address; a host name with an empty or too long label raises UnicodeError."""
_ERRORS = {status: error for error, status in _STATUS.items()}

_Answer = TypeVar("_Answer")


class _Start(msgspec.Struct, frozen=True):
    token: int
    action: str
    image: str = ""
    url: str = ""


class _Cancel(msgspec.Struct, frozen=True):
    token: int
    task: str


class _Token(msgspec.Struct, frozen=True):
    token: int


class HttpBmc:
    """One BMC, over a client session that its owner closes."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address.rstrip("/")

    async def open(self, token: int) -> Reading:
        return await self._post("open", _Token(token), Reading)

    async def read(self, token: int) -> Reading:
        return await self._post("read", _Token(token), Reading)

    async def start(self, token: int, action: str, image: str, url: str = "") -> Task:
        return await self._post("start", _Start(token, action, image, url), Task)

    async def cancel(self, token: int, task: str) -> None:
        await self._post("cancel", _Cancel(token, task), None)

    async def _post(self, call: str, body: msgspec.Struct, answer: type[_Answer] | None) -> _Answer:
        try:
            url, data = f"{self._address}/{call}", msgspec.json.encode(body)
            async with self._session.post(url, data=data, allow_redirects=False) as response:
                content = await self._whole(response.content)
        except _UNDIALABLE as error:
            raise NeedsOperator(
                f"bmc_address: {quoted(self._address)} is not an address that can be dialed: {error}"
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"device: {self._address} did not respond: {error}") from error
        if response.status != 200:
            text = content.decode(errors="replace")[:253]
            raise _ERRORS.get(response.status, TaskFailed)(text or f"device: it returned HTTP status {response.status}")
        try:
            return msgspec.json.decode(content, type=answer)
        except _UNREADABLE as error:
            raise TaskFailed(f"device: {self._address} returned an invalid {call}: {error}") from error

    async def _whole(self, content: aiohttp.StreamReader) -> bytes:
        """Read a response to its end: even a small one arrives in pieces."""
        whole = bytearray()
        async for piece in content.iter_any():
            whole += piece
            if len(whole) > _MAX_ANSWER_BYTES:
                raise TaskFailed(f"device: {self._address} returned more than {_MAX_ANSWER_BYTES} bytes")
        return bytes(whole)


def http_connect(session: aiohttp.ClientSession) -> Connect:
    """A connector to BMCs over HTTP."""
    return lambda address: HttpBmc(session, address)


def application(device: Callable[[str], Bmc]) -> web.Application:
    """An application that serves BMCs by name. `device` may raise NeedsOperator for an unknown name."""

    def serving(call: Callable[[Bmc, bytes], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(request: web.Request) -> web.Response:
            try:
                answer = await call(device(request.match_info["name"]), await request.read())
            except tuple(_STATUS) as error:
                return web.Response(status=_STATUS[type(error)], text=str(error))
            except _UNREADABLE as error:
                return web.Response(status=422, text=f"body: {error}")
            return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

        return handler

    calls: dict[str, Callable[[Bmc, bytes], Awaitable[Any]]] = {
        "open": _open,
        "read": _read,
        "start": _start,
        "cancel": _cancel,
    }
    app = web.Application(client_max_size=1 << 16)
    for name, call in calls.items():
        app.router.add_post(f"/{{name}}/{name}", serving(call))
    return app


async def _open(bmc: Bmc, body: bytes) -> Reading:
    return await bmc.open(msgspec.json.decode(body, type=_Token).token)


async def _read(bmc: Bmc, body: bytes) -> Reading:
    return await bmc.read(msgspec.json.decode(body, type=_Token).token)


async def _start(bmc: Bmc, body: bytes) -> Task:
    asked = msgspec.json.decode(body, type=_Start)
    return await bmc.start(asked.token, asked.action, asked.image, asked.url)


async def _cancel(bmc: Bmc, body: bytes) -> None:
    asked = msgspec.json.decode(body, type=_Cancel)
    await bmc.cancel(asked.token, asked.task)

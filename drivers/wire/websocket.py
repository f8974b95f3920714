"""The agent link over WebSocket (aiohttp): an end of it, and the agent's dialer.

Both ends frame their messages themselves and write them to the connection's transport, which never waits and reports
its unsent bytes. This needs no task and no queue per link; aiohttp's own `send` waits for slow peers. A server's
WebSocket frames are not masked, so one message has the same bytes for every client and is framed once. The agent dials
and receives with aiohttp's client, but does not send with it: aiohttp's `send` is a coroutine that may wait, whereas
`Link.send` never waits and limits the unsent bytes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from ssl import SSLCertVerificationError, SSLContext
from typing import TYPE_CHECKING, Any

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    ClientWebSocketResponse,
    ClientWSTimeout,
    ServerDisconnectedError,
    TCPConnector,
    WSCloseCode,
    WSMessage,
    WSMsgType,
    WSServerHandshakeError,
)

from drivers.wire.links import Busy, Link, LinkClosed
from drivers.wire.protocol import MAX_DOWN_BYTES, MAX_UP_BYTES, ProtocolError, printable_line

if TYPE_CHECKING:
    from aiohttp.web import WebSocketResponse

PATH = "/agent"
DIAL_S = 10.0
CLOSE_S = 1.0
AGENT_BACKLOG_BYTES_MAX = 4 * MAX_UP_BYTES
MASK_BYTES = 4
MASKS_AT_ONCE = 256
_DENIED = {
    401: "does not accept the certificate: it may be revoked",
    403: "refuses the role of the certificate: it must be dpu-agent, or simulator for a simulator",
}
"""The meaning of an HTTP status if the relay gives no reason."""
REASON_BYTES_MAX = 1_000
SWITCHING_PROTOCOLS = 101
PINGS_MAX = 100
"""Maximum number of pings and pongs between two messages; they do not count as messages. No library sends this many."""


def framed(message: bytes) -> bytes:
    """An unfragmented binary WebSocket frame (RFC 6455, section 5.2), as sent by a server."""
    return _header(len(message), 0) + message


def masked(message: bytes, mask: bytes) -> bytes:
    """An unfragmented binary frame as sent by a client: masked, with an unpredictable mask, so that it cannot be
    crafted to resemble another protocol.
    """
    size = len(message)
    stream = (mask * (size // MASK_BYTES + 1))[:size]
    mixed = int.from_bytes(message) ^ int.from_bytes(stream)
    return _header(size, 0x80) + mask + mixed.to_bytes(size)


def _masks() -> Iterator[bytes]:
    """Masks for one use each, drawn many at a time: a system call for four bytes takes longer than the masking."""
    while True:
        drawn = secrets.token_bytes(MASKS_AT_ONCE * MASK_BYTES)
        for start in range(0, len(drawn), MASK_BYTES):
            yield drawn[start : start + MASK_BYTES]


def _header(size: int, mask_bit: int) -> bytes:
    if size < 126:
        return bytes((0x82, mask_bit | size))
    if size < 1 << 16:
        return bytes((0x82, mask_bit | 126)) + size.to_bytes(2)
    return bytes((0x82, mask_bit | 127)) + size.to_bytes(8)


class SocketLink:
    """One end of one connection. `frame` frames its messages; its backlog is limited to `backlog_max` bytes."""

    def __init__(
        self,
        socket: WebSocketResponse | ClientWebSocketResponse,
        transport: asyncio.WriteTransport,
        peer: str,
        frame: Callable[[bytes], bytes],
        backlog_max: int,
    ) -> None:
        self.peer = peer
        self._socket = socket
        self._transport = transport
        self._frame = frame
        self._backlog_max = backlog_max

    @property
    def backlog(self) -> int:
        return self._transport.get_write_buffer_size()

    def send(self, message: bytes) -> None:
        if self._transport.is_closing() or self._socket.closed:
            raise LinkClosed(f"the link to {self.peer} is closed")
        if self.backlog > self._backlog_max:
            self.abort()
            raise LinkClosed(f"the link to {self.peer} was dropped: the peer left {self.backlog} bytes unread")
        self._transport.write(self._frame(message))

    async def receive(self) -> bytes:
        for _ in range(PINGS_MAX):
            message = await self._socket.receive()
            if message.type is WSMsgType.BINARY:
                data: bytes = message.data
                return data
            if message.type is WSMsgType.PING:
                await self._pong(message.data)
            elif message.type is not WSMsgType.PONG:
                raise _ended(message, self.peer)
        raise ProtocolError(f"message: must arrive after at most {PINGS_MAX} pings")

    async def _pong(self, data: bytes) -> None:
        try:
            await self._socket.pong(data)
        except (ClientError, OSError) as error:
            raise LinkClosed(f"the link to {self.peer} broke: {error}") from error

    def abort(self) -> None:
        self._transport.abort()

    async def close(self) -> None:
        await self._end(2 * CLOSE_S, WSCloseCode.OK, b"")

    async def leave(self) -> None:
        """Close the connection as a relay that shuts down, and abort it if the peer does not respond."""
        await self._end(CLOSE_S, WSCloseCode.GOING_AWAY, b"the relay stops")

    async def _end(self, within_s: float, code: int, reason: bytes) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._socket.close(code=code, message=reason)
        except (TimeoutError, ClientError, OSError):
            self.abort()


class _ClientSocket(ClientWebSocketResponse):
    """A client's WebSocket that exposes its transport."""

    def __init__(self, reader: Any, writer: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(reader, writer, *arguments, **options)
        self.transport: asyncio.WriteTransport = writer.transport


class Dialer:
    """Opens links to relays; `dial` is a `links.Dial`.

    `ssl` gives the context of each new link, so that a renewed certificate is used from the next link on.
    """

    def __init__(self, ssl: Callable[[], SSLContext] | None = None) -> None:
        self._ssl = ssl
        self._masks = _masks()
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Dialer:
        timeouts = ClientTimeout(total=None, connect=DIAL_S)
        self._session = ClientSession(
            connector=TCPConnector(limit=0),
            timeout=timeouts,
            raise_for_status=_check_opened,
            ws_response_class=_ClientSocket,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def dial(self, address: str) -> Link:
        assert self._session is not None, "used outside its `async with`"
        scheme = "ws" if self._ssl is None else "wss"
        try:
            async with asyncio.timeout(DIAL_S):
                socket = await self._session.ws_connect(
                    f"{scheme}://{address}{PATH}",
                    max_msg_size=MAX_DOWN_BYTES,
                    timeout=ClientWSTimeout(ws_close=CLOSE_S),
                    autoping=False,
                    ssl=self._ssl() if self._ssl is not None else True,
                )
        except WSServerHandshakeError as error:
            if error.status == 503:
                raise Busy(f"{address} accepts no new agents at present", _seconds(error)) from error
            raise LinkClosed(f"{address} {_denial(error)}") from error
        except (ClientError, OSError, TimeoutError) as error:
            raise LinkClosed(f"{address} {_fault(error)}") from error
        assert isinstance(socket, _ClientSocket)
        return SocketLink(socket, socket.transport, address, self._masked, AGENT_BACKLOG_BYTES_MAX)

    def _masked(self, message: bytes) -> bytes:
        return masked(message, next(self._masks))


async def _check_opened(answer: ClientResponse) -> None:
    """Raise the error of aiohttp for an answer that opens no link, with the relay's reason as its message: aiohttp
    itself does not read the reason."""
    if answer.status == SWITCHING_PROTOCOLS:
        return
    try:
        reason = (await answer.content.read(REASON_BYTES_MAX)).decode(errors="replace")
    except ClientError:
        reason = ""
    finally:
        answer.close()
    raise WSServerHandshakeError(
        answer.request_info, (), status=answer.status, message=printable_line(reason.strip()), headers=answer.headers
    )


def _denial(error: WSServerHandshakeError) -> str:
    """Why a relay does not open a link: its own reason, if it gives one."""
    if error.status not in _DENIED:
        return f"answered HTTP status {error.status} instead of opening a link"
    return f"refuses the link: {error.message}" if error.message else _DENIED[error.status]


def _fault(error: Exception) -> str:
    """Why a relay was not reached, without the additions of the HTTP client."""
    match error:
        case ClientConnectorCertificateError(certificate_error=SSLCertVerificationError() as refused):
            reason = getattr(refused, "verify_message", "") or refused  # errors of the check of names have no such text
            return f"has a certificate that is not accepted: {reason}"
        case ClientSSLError():
            return f"cannot be reached by TLS: {error}"
        case ClientConnectorError(os_error=OSError(errno=number, strerror=text)):
            return f"cannot be reached: {os.strerror(number) if number and number > 0 else text or error}"
        case ClientResponseError():
            return "does not speak HTTP: it is not the address of agents of a relay"
        case ServerDisconnectedError():
            return "closed the connection without an answer; if this repeats, check that both sides use TLS, or neither"
        case TimeoutError():
            return f"cannot be reached: no answer within {DIAL_S:g} s"
        case _:
            return f"cannot be reached: {error or type(error).__name__}"


def _seconds(error: WSServerHandshakeError) -> float:
    """The time until a retry that a busy relay asks for, at most one minute."""
    try:
        advice = float(error.headers["Retry-After"]) if error.headers else 1.0
    except (KeyError, ValueError):
        return 1.0
    return min(60.0, max(0.0, advice))


def _ended(message: WSMessage, peer: str) -> ProtocolError | LinkClosed:
    """The error for a WebSocket message that is neither binary nor a ping."""
    if message.type is WSMsgType.TEXT:
        return ProtocolError("message: must be a binary WebSocket message, not text")
    if message.type is WSMsgType.ERROR:
        return LinkClosed(f"the link to {peer} broke: {message.data}")
    return LinkClosed(f"{peer} closed the link")

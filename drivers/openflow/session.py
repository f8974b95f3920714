"""A session with one bridge of Open vSwitch over its OpenFlow socket: atomic bundles of flows, and dumps."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from drivers.openflow import messages as of
from drivers.openflow.messages import Flow
from eventstore.errors import TransientError
from projections.field_checks import quoted

CONNECT_S = 5.0
ECHO_S = 5.0
"""A switch that sends nothing for this time is asked for an echo."""
ANSWER_S = 60.0
"""Timeout of a reply. The session is lost if the switch sends nothing for this time. The limit is the same without a
request: one thread of the switch serves all sessions, and while it commits a large bundle it answers no echo."""
CHUNK = 1 << 18
"""Bytes that are written before the session waits for the switch to read them."""
CLOSED = "the switch closed the connection"
_UPDATE_XID, _HELLO_XID = 0, 1


class SwitchLost(TransientError):
    """There is no session with the switch, or it ended."""


class SwitchRefused(TransientError):
    """The switch refused a request, and holds what it held before."""


class Watched(NamedTuple):
    """The flows of a table that have these bits in their cookie; all of them if the mask is 0. Also those with one of
    these priorities: a flow of another program that replaces a watched one has its own cookie."""

    table: int
    cookie: int = 0
    mask: int = 0
    priorities: frozenset[int] = frozenset()


class SwitchSession:
    """One connection. `serve` must run while requests are made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._xids = count(_HELLO_XID + 1)
        self._waiting: dict[int, tuple[asyncio.Future[None], Callable[[int, bytes], bool]]] = {}
        """By xid: the result of a request, and the function that takes its replies and tells whether it is the last."""
        self._watched: dict[int, Watched] = {}
        self._changed = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> SwitchSession:
        """Connect to a bridge and agree on OpenFlow 1.4. Raises SwitchLost."""
        try:
            async with asyncio.timeout(CONNECT_S):
                session = cls(*await asyncio.open_unix_connection(path))
        except FileNotFoundError as error:
            raise SwitchLost(f"Open vSwitch has no bridge {quoted(path.stem)}: {path} does not exist") from error
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
            raise SwitchLost(f"{path} cannot be connected: {reason}") from error
        try:
            await session._agree(path)
        except BaseException:
            session.close()
            raise
        return session

    async def _agree(self, path: Path) -> None:
        self._writer.write(of.hello(_HELLO_XID))
        try:
            async with asyncio.timeout(CONNECT_S):
                version, kind, _, body = await self._receive()
        except TimeoutError as error:
            raise SwitchLost(f"{path} did not answer within {CONNECT_S:g} s") from error
        except (OSError, EOFError, of.MessageInvalid) as error:
            raise SwitchLost(f"{path} does not speak OpenFlow") from error
        if kind != of.HELLO or not of.is_offered(body, version):
            raise SwitchLost(f"{path} does not offer OpenFlow 1.4: add it to the column protocols of the bridge")

    async def serve(self) -> None:
        """Receive until the connection ends. Raises SwitchLost."""
        silent = 0
        try:
            while True:
                try:
                    async with asyncio.timeout(ECHO_S):
                        _, kind, xid, body = await self._receive()
                except TimeoutError:
                    silent += 1
                    if silent * ECHO_S >= ANSWER_S:
                        raise SwitchLost(f"the switch sent nothing for {ANSWER_S:.0f} s") from None
                    self._write(of.message(of.ECHO_REQUEST, next(self._xids)))
                    continue
                silent = 0
                self._take(kind, xid, body)
        except (OSError, EOFError) as error:
            raise SwitchLost(CLOSED) from error
        except (of.MessageInvalid, struct.error) as error:
            raise SwitchLost(f"the switch sent a message that cannot be read: {error}") from error
        finally:
            for result, _ in self._waiting.values():
                if not result.done():
                    result.set_exception(SwitchLost(CLOSED))
            self.close()

    def close(self) -> None:
        """End the session without sending what is buffered: a switch that does not read would keep writers waiting."""
        self._writer.transport.abort()

    async def install(self, added: Iterable[Flow], deleted: Iterable[Flow]) -> None:
        """Add flows and delete flows in one bundle: a packet meets all of them or none. Additions come first. Raises
        SwitchRefused, SwitchLost."""
        bundle = next(self._xids)
        await self._control(bundle, of.OPEN, of.OPENED)
        forget, result = self._expect(bundle, lambda kind, body: False)
        try:
            pending = bytearray()
            for command, flows in ((of.ADD, added), (of.DELETE_STRICT, deleted)):
                for flow in flows:
                    pending += of.in_bundle(bundle, bundle, of.flow_mod(bundle, command, flow))
                    if len(pending) >= CHUNK:
                        await self._send(pending)
                        pending = bytearray()
            await self._send(pending)
            await self._control(bundle, of.CLOSE, of.CLOSED)
            if result.done():  # Open vSwitch would commit the other flows of the bundle
                await self._control(bundle, of.DISCARD, of.DISCARDED)
                result.result()
            await self._control(bundle, of.COMMIT, of.COMMITTED)
        except SwitchRefused:
            if result.done() and (cause := result.exception()) is not None:
                raise cause from None  # the error of the flow says more than that of the commit
            raise
        finally:
            forget()

    async def flows(self, cookie: int, cookie_mask: int, table: int = of.ALL_TABLES) -> list[Flow]:
        """The flows with these bits in their cookie, of one table or of all. Raises SwitchRefused, SwitchLost."""
        found: list[Flow] = []
        await self.read_flows(cookie, cookie_mask, found.append, table)
        return found

    async def read_flows(
        self, cookie: int, cookie_mask: int, add: Callable[[Flow], None], table: int = of.ALL_TABLES
    ) -> None:
        """Call `add` with each of these flows as it arrives. Raises SwitchRefused, SwitchLost."""

        def take(kind: int, body: bytes) -> bool:
            for flow in of.flows(body):
                add(flow)
            return not of.has_more(body)

        xid = next(self._xids)
        forget, result = self._expect(xid, take)
        try:
            await self._send(of.flows_request(xid, table, cookie, cookie_mask))
            await self._reply(result)
        finally:
            forget()

    async def watch(self, watched: Sequence[Watched]) -> None:
        """Have `until_changed` tell of changes of these flows. Raises SwitchLost, and SwitchRefused by an older Open
        vSwitch, which has monitors for OpenFlow 1.0 only."""
        self._watched = {each.table: each for each in watched}
        for table in self._watched:
            xid = next(self._xids)
            forget, result = self._expect(xid, lambda kind, body: not of.has_more(body))
            try:
                await self._send(of.monitor_request(xid, table))
                await self._reply(result)
            finally:
                forget()

    async def until_changed(self) -> None:
        """Wait until another program has changed watched flows since the last call."""
        await self._changed.wait()
        self._changed.clear()

    async def _control(self, bundle: int, request: int, reply: int) -> None:
        """Send a bundle control message and wait for its reply."""
        xid = next(self._xids)
        forget, result = self._expect(
            xid, lambda kind, body: kind == of.BUNDLE_CONTROL and of.bundle_kind(body) == reply
        )
        try:
            await self._send(of.bundle_control(xid, bundle, request))
            await self._reply(result)
        finally:
            forget()

    async def _reply(self, result: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await result
        except TimeoutError as error:
            raise SwitchLost(f"the switch did not answer within {ANSWER_S:.0f} s") from error

    def _expect(self, xid: int, take: Callable[[int, bytes], bool]) -> tuple[Callable[[], None], asyncio.Future[None]]:
        """The result of the request with this xid, and the function to call when nobody waits for it any more."""
        if self._writer.is_closing():  # nothing would end the wait
            raise SwitchLost(CLOSED)
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[xid] = (result, take)

        def forget() -> None:
            del self._waiting[xid]
            if result.done() and not result.cancelled():
                result.exception()  # an error that nobody asked for is not logged by asyncio

        return forget, result

    def _take(self, kind: int, xid: int, body: bytes) -> None:
        if kind == of.ECHO_REQUEST:
            self._write(of.message(of.ECHO_REPLY, xid, body))
            return
        if kind == of.MULTIPART_REPLY and xid == _UPDATE_XID:
            if any(self._is_watched(*each) for each in of.updates(body)):
                self._changed.set()
            return
        waiting = self._waiting.get(xid)
        if waiting is None or waiting[0].done():
            return
        result, take = waiting
        if kind == of.ERROR:
            result.set_exception(SwitchRefused(str(of.error(body))))
        elif take(kind, body):
            result.set_result(None)

    def _is_watched(self, table: int, priority: int, cookie: int) -> bool:
        watched = self._watched.get(table)
        if watched is None:
            return False
        return (cookie ^ watched.cookie) & watched.mask == 0 or priority in watched.priorities

    async def _send(self, data: bytes | bytearray) -> None:
        self._write(data)
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
        except TimeoutError as error:  # before OSError, of which it is a kind
            raise SwitchLost(f"the switch read nothing for {ANSWER_S:.0f} s") from error
        except OSError as error:
            raise SwitchLost(CLOSED) from error

    def _write(self, data: bytes | bytearray) -> None:
        if self._writer.is_closing():  # uvloop raises RuntimeError for a write to a closed transport
            raise SwitchLost(CLOSED)
        self._writer.write(data)

    async def _receive(self) -> tuple[int, int, int, bytes]:
        """The next message: its version, type, xid and body."""
        version, kind, length, xid = of.HEADER.unpack(await self._reader.readexactly(of.HEADER.size))
        if length < of.HEADER.size:
            raise of.MessageInvalid(f"its length is {length} bytes")
        return version, kind, xid, await self._reader.readexactly(length - of.HEADER.size)

"""A model of a bridge of Open vSwitch: its flows, and what it answers over OpenFlow 1.4. No I/O, and no time.

It decodes by the specification (sections 7.1 to 7.4), not with the code of the plane, and it passes the contracts that
a real bridge passes. What the plane does not send, it refuses.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from drivers.openflow.messages import Flow
from tests.support.memory_transport import LatencyS, Listener

FlowKey = tuple[int, int, bytes]
"""Table, priority and match: what tells a flow from the others."""

_HELLO = b"\x05\x00\x00\x10\x00\x00\x00\x01\x00\x01\x00\x08\x00\x00\x00\x20"
_REPLY_BYTES_MAX = 60_000
_IP, _IP6, _TCP, _UDP, _ICMPV6 = b"\x08\x00", b"\x86\xdd", b"\x06", b"\x11", b"\x3a"
_NEEDS: dict[int, tuple[int, tuple[bytes, ...]]] = {
    10: (5, (_IP, _IP6)),
    11: (5, (_IP,)),
    26: (5, (_IP6,)),
    14: (10, (_TCP,)),
    16: (10, (_UDP,)),
    29: (10, (_ICMPV6,)),
}
"""OXM fields that need another field before them, with one of these values (section 7.2.3.8)."""


class OpenFlowError(Exception):
    """An error message."""

    def __init__(self, kind: int, code: int) -> None:
        super().__init__(kind, code)
        self.body = struct.pack("!HH", kind, code)


TABLE_FULL = (5, 1)
_DELETED_MASK = (1 << 64) - 2
"""With all bits of the cookie, Open vSwitch does not look a flow up that is deleted."""
_BAD_TYPE, _BAD_MULTIPART, _BAD_TABLE, _BAD_PREREQUISITE, _BAD_WILDCARDS = (1, 1), (1, 2), (5, 2), (4, 9), (4, 5)
_BAD_GOTO, _BAD_BUNDLE, _BUNDLE_CLOSED, _BUNDLE_FAILED = (3, 2), (17, 2), (17, 4), (17, 13)


class _Change(NamedTuple):
    """An addition of a flow, or its deletion, which spares a flow with another cookie in the bits of the mask."""

    is_addition: bool
    flow: Flow
    xid: int
    mask: int

    @property
    def key(self) -> FlowKey:
        return self.flow.table, self.flow.priority, self.flow.match


class ModelSwitch:
    """The bridge. `refuse_next` is the number of bundles that it refuses at their commit, as one with a full table
    does, and `is_silent` has it answer nothing."""

    def __init__(self, latency_s: LatencyS = lambda: 0.0) -> None:
        self.flows: dict[FlowKey, Flow] = {}
        self.is_up = True
        self.is_silent = False
        self.refuse_next = 0
        self.refused = 0
        self.listener = Listener(self._accept, latency_s)
        self._connections: set[_Connection] = set()

    def stop(self) -> None:
        """Stop the switch: its flows are lost, and its connections end."""
        self.is_up = False
        self.flows.clear()
        for connection in list(self._connections):
            connection.transport.close()

    def commit(self, changes: list[_Change]) -> None:
        """Make all changes or none. Raises _ChangeRefused."""
        if self.refuse_next:
            self.refuse_next -= 1
            self.refused += 1
            raise _ChangeRefused(changes[0].xid, OpenFlowError(*TABLE_FULL))
        for change in changes:
            if change.is_addition:
                self.flows[change.key] = change.flow
            elif (found := self.flows.get(change.key)) and not (found.cookie ^ change.flow.cookie) & change.mask:
                del self.flows[change.key]

    def _accept(self) -> asyncio.Protocol:
        if not self.is_up:
            raise ConnectionRefusedError("the switch is down")
        return _Connection(self, self._connections)


class _ChangeRefused(Exception):
    """The change with this xid was refused."""

    def __init__(self, xid: int, error: OpenFlowError) -> None:
        super().__init__(xid)
        self.xid = xid
        self.error = error


class _Bundle:
    """Changes that a client collects until it commits them."""

    def __init__(self) -> None:
        self.changes: list[_Change] = []
        self.is_closed = False


class _Connection(asyncio.Protocol):
    """One client."""

    transport: asyncio.Transport

    def __init__(self, switch: ModelSwitch, connections: set[_Connection]) -> None:
        self._switch = switch
        self._connections = connections
        self._received = bytearray()
        self._bundles: dict[int, _Bundle] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        transport.write(_HELLO)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 8:
            _, kind, length, xid = struct.unpack_from("!BBHI", self._received)
            if len(self._received) < length:
                return
            body = bytes(self._received[8:length])
            del self._received[:length]
            try:
                self._take(kind, xid, body)
            except OpenFlowError as error:
                self._send(1, xid, error.body)

    def _take(self, kind: int, xid: int, body: bytes) -> None:
        if kind == 0 or self._switch.is_silent:
            return
        answer: dict[int, Callable[[int, bytes], None]] = {
            2: self._echo,
            18: self._stats,
            33: self._control,
            34: self._add,
        }
        if kind not in answer:
            raise OpenFlowError(*_BAD_TYPE)
        answer[kind](xid, body)

    def _echo(self, xid: int, body: bytes) -> None:
        self._send(3, xid, body)

    def _stats(self, xid: int, body: bytes) -> None:
        """The flows of a table, or of all (255), with these bits in their cookie. Like an old version, it has no
        monitors of flows."""
        if body[:2] != b"\x00\x01":
            raise OpenFlowError(*_BAD_MULTIPART)
        table, _, _, cookie, mask = struct.unpack_from("!8xB3xII4xQQ", body)
        parts = [b""]
        for flow in self._switch.flows.values():
            if table in (255, flow.table) and not (flow.cookie ^ cookie) & mask:
                if len(parts[-1]) > _REPLY_BYTES_MAX:
                    parts.append(b"")
                parts[-1] += _stats_of(flow)
        for number, part in enumerate(parts, 1):
            self._send(19, xid, struct.pack("!HH4x", 1, int(number < len(parts))) + part)

    def _control(self, xid: int, body: bytes) -> None:
        number, kind, flags = struct.unpack_from("!IHH", body)
        bundle = self._bundles.get(number)
        if kind == 0:
            self._bundles[number] = _Bundle()
        elif bundle is None:
            raise OpenFlowError(*_BAD_BUNDLE)
        elif kind == 2:
            bundle.is_closed = True
        else:
            del self._bundles[number]
            if kind == 4:
                self._commit(bundle)
        self._send(33, xid, struct.pack("!IHH", number, kind + 1, flags))

    def _commit(self, bundle: _Bundle) -> None:
        try:
            self._switch.commit(bundle.changes)
        except _ChangeRefused as refused:
            self._send(1, refused.xid, refused.error.body)
            raise OpenFlowError(*_BUNDLE_FAILED) from None

    def _add(self, xid: int, body: bytes) -> None:
        """Add a change to a bundle. One that is refused is not in it; the others are."""
        bundle = self._bundles.get(struct.unpack_from("!I", body)[0])
        if bundle is None:
            raise OpenFlowError(*_BAD_BUNDLE)
        if bundle.is_closed:
            raise OpenFlowError(*_BUNDLE_CLOSED)
        bundle.changes.append(_change(body[8:]))

    def _send(self, kind: int, xid: int, body: bytes) -> None:
        self.transport.write(struct.pack("!BBHI", 5, kind, 8 + len(body), xid) + body)


def _change(message: bytes) -> _Change:
    """Decode a flow mod. Raises OpenFlowError."""
    _, kind, length, xid, cookie, mask, table, command, _, _, priority = struct.unpack_from("!BBHIQQBBHHH", message)
    if kind != 14 or length != len(message) or (command, mask) not in ((0, 0), (4, _DELETED_MASK)):
        raise OpenFlowError(*_BAD_TYPE)
    if table > 253:
        raise OpenFlowError(*_BAD_TABLE)
    size = struct.unpack_from("!H", message, 50)[0]
    fields, instructions = message[52 : 48 + size], message[48 + size + -size % 8 :]
    _check_match(fields)
    if instructions[:2] == b"\x00\x01" and instructions[4] <= table:
        raise OpenFlowError(*_BAD_GOTO)
    return _Change(command == 0, Flow(table, priority, cookie, fields, instructions), xid, mask)


def _check_match(fields: bytes) -> None:
    seen: dict[int, bytes] = {}
    for kind, number, value, mask in _fields(fields):
        if mask and any(bit & ~of_mask for bit, of_mask in zip(value, mask, strict=True)):
            raise OpenFlowError(*_BAD_WILDCARDS)
        needed, values = _NEEDS.get(number, (0, ())) if kind == 0x8000 else (0, ())
        if values and seen.get(needed) not in values:
            raise OpenFlowError(*_BAD_PREREQUISITE)
        if kind == 0x8000:
            seen[number] = value


def _fields(match: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """The class, number, value and mask of each OXM field."""
    at = 0
    while at < len(match):
        kind, number, size = struct.unpack_from("!HBB", match, at)
        payload = match[at + 4 : at + 4 + size]
        half = size // 2 if number & 1 else size
        yield kind, number >> 1, payload[:half], payload[half:]
        at += 4 + size


def _stats_of(flow: Flow) -> bytes:
    """A flow as a switch reports it, section 7.3.5.2."""
    length = 4 + len(flow.match)
    rest = struct.pack("!HH", 1, length) + flow.match + bytes(-length % 8) + flow.instructions
    head = struct.pack(
        "!HBxIIHHHHH2xQQQ", 48 + len(rest), flow.table, 0, 0, flow.priority, 0, 0, 0, 0, flow.cookie, 0, 0
    )
    return head + rest

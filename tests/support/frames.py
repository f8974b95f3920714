"""Ethernet frames at the ends of wires in network namespaces, as they are, with their VLAN tags."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

PLAIN, IPV4 = 0x88B5, 0x0800
"""The EtherType for local experiments, and that of IPv4."""
_VLAN = 0x8100
_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_AUXDATA, _OUTGOING = 263, 8, 4
_AUXILIARY = struct.Struct("=IIIHHHH")
_VLAN_VALID = 1 << 4
_NEW_NETWORK = 0x4000_0000
_LIBC = ctypes.CDLL(None, use_errno=True)
SETTLED_S = 60.0
GATHER_S = 0.1


class Frame(NamedTuple):
    """A frame. `vlan` 0 is none; `address` is the source of an IPv4 packet, empty for a frame of another type."""

    to: str
    source: str
    vlan: int = 0
    address: str = ""

    def encoded(self, number: int) -> bytes:
        """The frame with a number, by which it is known again."""
        tag = struct.pack("!HH", _VLAN, self.vlan) if self.vlan else b""
        head = _mac(self.to) + _mac(self.source) + tag
        payload = number.to_bytes(46, "big")
        if not self.address:
            return head + PLAIN.to_bytes(2, "big") + payload
        packet = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, 253, 0)
        packet += socket.inet_aton(self.address) + socket.inet_aton("10.99.99.99")
        return head + IPV4.to_bytes(2, "big") + packet + payload


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread in a network namespace."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        assert not _LIBC.setns(there, _NEW_NETWORK), os.strerror(ctypes.get_errno())
        yield
    finally:
        assert not _LIBC.setns(here, _NEW_NETWORK), os.strerror(ctypes.get_errno())
        os.close(there)
        os.close(here)


class Wire:
    """The end of a wire: the interface eth0 of a namespace."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
            self._socket.bind(("eth0", 0))
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def received(self) -> list[tuple[int, int]]:
        """The numbers of the frames that have arrived, each with its VLAN."""
        found: list[tuple[int, int]] = []
        while True:
            try:
                data, auxiliary, _, address = self._socket.recvmsg(65_536, 256)
            except BlockingIOError:
                return found
            kind = int.from_bytes(data[12:14], "big")
            if address[2] != _OUTGOING and kind in (PLAIN, IPV4):
                found.append((int.from_bytes(data[-46:], "big"), _vlan(auxiliary)))


def _vlan(auxiliary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in auxiliary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, _, _, _, _, tci, _ = _AUXILIARY.unpack(data[: _AUXILIARY.size])
            return tci & 0xFFF if status & _VLAN_VALID else 0
    return 0


_NUMBERS = count(1)


async def reaches(
    wires: Mapping[str, Wire], sender: str, frame: Frame, expected: Mapping[str, int], *, may: Mapping[str, int]
) -> None:
    """Send a frame again and again until it reaches exactly the expected wires, with the VLAN of each. A switch in user
    space revalidates its cached decisions a moment after it has learned, so a frame may reach the wires of `may`
    before, and none of the others at any time."""
    async with asyncio.timeout(SETTLED_S):
        while True:
            for wire in wires.values():
                wire.received()
            number = next(_NUMBERS)
            wires[sender].send(frame.encoded(number))
            found = await _gathered(wires, number, len(expected))
            if found == expected:
                return
            strangers = found.items() - may.items() - expected.items()
            assert not strangers, f"{frame} from {sender} reached {strangers}"


async def _gathered(wires: Mapping[str, Wire], number: int, at_least: int) -> dict[str, int]:
    """The wires that a frame reached: those of a second, and a moment longer."""
    found: dict[str, int] = {}
    ends_at = asyncio.get_running_loop().time() + 1.0
    while asyncio.get_running_loop().time() < ends_at and len(found) < at_least:
        await asyncio.sleep(0.01)
        _gather(wires, number, found)
    await asyncio.sleep(GATHER_S)
    _gather(wires, number, found)
    return found


def _gather(wires: Mapping[str, Wire], number: int, found: dict[str, int]) -> None:
    for name, wire in wires.items():
        found.update((name, vlan) for each, vlan in wire.received() if each == number)

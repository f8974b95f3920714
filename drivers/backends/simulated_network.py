"""The simulated network of one device: it can fail, lose its document at a reboot, and find ports of services late."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import msgspec

from drivers.backends.device import DeviceFailed, Programmed
from drivers.wire.agent_messages import NO_DIGEST

_SERVICE = "service"


class NetworkFaults(NamedTuple):
    """Faults of a simulated network. Chances are from 0 to 1, per document."""

    failures: float = 0.0
    """Chance that the device fails and reports the failure."""
    ports_s: float = 0.0
    """Time from a document until the ports of its services exist, as a pod takes time to start."""


NO_NETWORK_FAULTS = NetworkFaults()


class _Interface(msgspec.Struct):
    name: str
    type: str


class _Document(msgspec.Struct):
    interfaces: tuple[_Interface, ...] = ()


def interfaces_of_services(document: bytes) -> tuple[str, ...]:
    """The interfaces whose ports are those of pods. Raises DeviceFailed for a document that cannot be read."""
    try:
        found = msgspec.json.decode(document, type=_Document)
    except msgspec.DecodeError as error:
        raise DeviceFailed(f"the document cannot be read: {error}") from error
    return tuple(each.name for each in found.interfaces if each.type == _SERVICE)


class SimulatedNetwork:
    """A `NetworkDevice` for an agent."""

    def __init__(self, faults: NetworkFaults = NO_NETWORK_FAULTS, *, rng: random.Random) -> None:
        self.faults = faults
        self.document = b""
        self.digest = NO_DIGEST
        self.programmed = 0
        """The number of documents that the device has taken."""
        self._rng = rng
        self._services: tuple[str, ...] = ()
        self._ports_at_s = 0.0

    async def program(self, document: bytes, digest: bytes) -> Programmed:
        if self._rng.random() < self.faults.failures:
            raise DeviceFailed("simulated failure of the device")
        services = interfaces_of_services(document)
        if any(name not in self._services for name in services):
            self._ports_at_s = asyncio.get_running_loop().time() + self.faults.ports_s
        self.document, self.digest, self._services = document, digest, services
        self.programmed += 1
        return await self.read_back()

    async def read_back(self) -> Programmed:
        has_ports = asyncio.get_running_loop().time() >= self._ports_at_s
        return Programmed(self.digest, () if has_ports else self._services)

    async def run(self) -> None:
        """Nothing is needed."""

    def lose(self) -> None:
        """Lose the document, as at a reboot of the device."""
        self.document, self.digest, self._services = b"", NO_DIGEST, ()

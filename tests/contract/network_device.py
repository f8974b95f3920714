"""The contract of the network of a device. It runs unchanged against every implementation."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import pytest

from drivers.backends.device import DeviceFailed, NetworkDevice, Programmed
from drivers.wire.agent_messages import NO_DIGEST
from projections.resources.network_documents.document import Document, Interface, Switch, SwitchPort, encoded

NetworkScenario = Callable[[NetworkDevice], Awaitable[None]]
CHANGES = 12
WEB = Interface("dpf/web", "service", settings={"serviceID": "web", "network": "mybrsfc", "interfaceName": "web_if"})


def physical(name: str, mtu: int = 1500) -> Interface:
    return Interface(f"dpf/{name}", "physical", name, mtu)


def chain(name: str, *interfaces: Interface, mtu: int = 1500) -> Switch:
    """A chain of one switch that connects these interfaces."""
    return Switch(f"dpf/{name}", 0, mtu, tuple(SwitchPort(each.name) for each in interfaces))


def some_document(rng: random.Random) -> Document:
    """A few ports, and chains of some of them."""
    interfaces = [
        physical(f"c{number}", rng.choice((1500, 9000))) for number in range(rng.randrange(6)) if rng.random() < 0.7
    ]
    chains = [
        chain(f"chain-{number}", *rng.sample(interfaces, rng.randrange(1, len(interfaces) + 1)))
        for number in range(rng.randrange(3))
        if interfaces
    ]
    return Document(interfaces=tuple(interfaces), switches=tuple(chains))


async def programmed(device: NetworkDevice, document: Document) -> Programmed:
    """Program a document. The result must be what the device reads back."""
    found = encoded(document)
    result = await device.program(found.text.encode(), bytes.fromhex(found.digest))
    assert result == await device.read_back()
    return result


def digest_of(document: Document) -> bytes:
    return bytes.fromhex(encoded(document).digest)


async def read_until(device: NetworkDevice, holds: Callable[[Programmed], bool]) -> Programmed:
    async with asyncio.timeout(60):
        while not holds(found := await device.read_back()):
            await asyncio.sleep(0.02)
    return found


class NetworkDeviceContract(ABC):
    """Each scenario gets a device that has no document."""

    @abstractmethod
    def with_network(self, scenario: NetworkScenario) -> None:
        """Run a scenario with a device."""

    @abstractmethod
    def add_port_of_web(self, device: NetworkDevice) -> None:
        """Have the port of WEB exist, now or soon."""

    @abstractmethod
    async def lose(self, device: NetworkDevice) -> bool:
        """Have the device lose what it holds. Returns whether it restores that by itself."""

    def test_a_device_without_a_document_says_so(self) -> None:
        async def scenario(device: NetworkDevice) -> None:
            assert await device.read_back() == Programmed(NO_DIGEST)

        self.with_network(scenario)

    def test_a_device_reads_back_the_digest_of_every_document(self) -> None:
        async def scenario(device: NetworkDevice) -> None:
            rng = random.Random(2)
            for _ in range(CHANGES):
                document = some_document(rng)
                assert await programmed(device, document) == Programmed(digest_of(document)), document

        self.with_network(scenario)

    def test_a_document_that_cannot_be_read_leaves_the_last_one(self) -> None:
        async def scenario(device: NetworkDevice) -> None:
            document = Document(interfaces=(physical("c0"),))
            await programmed(device, document)
            with pytest.raises(DeviceFailed, match="the document cannot be read: "):
                await device.program(b'{"interfaces":[{"na', bytes(16))
            assert await device.read_back() == Programmed(digest_of(document))

        self.with_network(scenario)

    def test_an_interface_without_a_port_is_connected_once_the_port_exists(self) -> None:
        async def scenario(device: NetworkDevice) -> None:
            near, far = physical("c0"), physical("c1")
            document = Document(interfaces=(near, far, WEB), switches=(chain("chain", near, WEB, far),))
            assert await programmed(device, document) == Programmed(digest_of(document), (WEB.name,))
            self.add_port_of_web(device)
            await read_until(device, lambda found: found == Programmed(digest_of(document)))
            assert await programmed(device, document) == Programmed(digest_of(document))

        self.with_network(scenario)

    def test_what_a_device_has_lost_is_told_and_restored(self) -> None:
        async def scenario(device: NetworkDevice) -> None:
            document = Document(interfaces=(physical("c0"), physical("c1")))
            document = Document(interfaces=document.interfaces, switches=(chain("chain", *document.interfaces),))
            await programmed(device, document)
            if await self.lose(device):
                await read_until(device, lambda found: found.digest == digest_of(document))
            else:
                assert (await device.read_back()).digest != digest_of(document)
                assert await programmed(device, document) == Programmed(digest_of(document))

        self.with_network(scenario)

"""Network documents under faults: processes, agents, links and devices fail while the objects change. At the end every
live DPU has the document that follows from the objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from drivers.backends.simulated_network import NetworkFaults
from drivers.relays.link_networks import LinkNetworks
from drivers.resources.networks import Networks
from drivers.wire.links import Link
from eventstore.log import ZONES
from projections.resources import kinds
from projections.resources.derivation import Derivation
from projections.resources.network_documents.derive import NetworkDocuments, node_of
from projections.resources.network_documents.stated import stated_networks
from tests.support.memory_plane import Plane, plane
from tests.unit.test_handover import SOURCE, Fleet, key
from tests.unit.test_network_handover import chain, fleet_of, physical
from tests.unit.test_network_link import Host, freeze, has_wanted, relays_of

pytestmark = pytest.mark.virtual_clock

HOSTS = ("h1", "h2", "h3", "h4")
STEPS = 60
LOSS = 0.2


class LossyLink:
    """An agent's end of a link that loses messages while `loss` says so."""

    def __init__(self, link: Link, rng: Random, loss: Callable[[], float]) -> None:
        self._link = link
        self._rng = rng
        self._loss = loss

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def send(self, data: bytes) -> None:
        if self._rng.random() >= self._loss():
            self._link.send(data)

    async def receive(self) -> bytes:
        while True:
            data = await self._link.receive()
            if self._rng.random() >= self._loss():
                return data


class LossyHost(Host):
    """A host behind lossy links."""

    loss = 0.0

    async def _dial(self, address: str) -> Link:
        return LossyLink(await super()._dial(address), self._on.rng(), lambda: self.loss)


class Faults:
    """A plane whose parts fail at random."""

    def __init__(self, on: Plane, fleet: Fleet, rng: Random) -> None:
        self.on = on
        self.fleet = fleet
        self.rng = rng
        self.hosts: dict[str, LossyHost] = {}
        self.relays: dict[str, Any] = {}
        self.down: set[str] = set()

    async def begin(self) -> None:
        self.relays |= await relays_of(self.on, "r1", "r2")
        for host in HOSTS:
            self.hosts[host] = LossyHost(self.on, host, self.relays)
            self.hosts[host].loss = LOSS
            self.hosts[host].start()

    async def step(self) -> None:
        """One random event, and a pause."""
        events = (self._edit, self._edit, self._process, self._agent, self._device, self._freeze)
        await self.rng.choice(events)()
        await asyncio.sleep(self.rng.choice((0.0, 0.1, 1.0, 5.0)))

    async def heal(self) -> None:
        """End every fault."""
        await freeze(self.on, is_frozen=False)
        for name in sorted(self.down):
            await self._start(name)
        for host in self.hosts.values():
            host.loss, host.device.faults = 0.0, NetworkFaults()

    async def _edit(self) -> None:
        name, rng = self.rng.choice(("web", "app")), self.rng
        match rng.randrange(4):
            case 0:
                await self.fleet.apply(kinds.DPU_SERVICE_INTERFACE, {"p2": physical(rng.choice(("p2", "p3")))})
            case 1 if key(kinds.DPU_SERVICE_CHAIN, name) in self.fleet.state.objects.rows:
                await self.fleet.delete(kinds.DPU_SERVICE_CHAIN, name)
            case _:
                label = {"matchLabels": {"kubernetes.io/hostname": "h1-dh1"}} if rng.random() < 0.3 else None
                ports = rng.sample(("p0", "p1", "p2"), rng.choice((1, 2, 3)))
                await self.fleet.apply(kinds.DPU_SERVICE_CHAIN, {name: chain(*ports, nodeSelector=label)})

    async def _process(self) -> None:
        """Kill one of each pair of processes, or start it again."""
        name = self.rng.choice(("b", "r1", "r2"))
        if name in self.down:
            await self._start(name)
        elif not self.down:
            self.down.add(name)
            self.on.kill(name)
            self.relays.pop(name, None)
            for host in self.hosts.values():
                host.lose_links()

    async def _start(self, name: str) -> None:
        self.down.discard(name)
        if name == "b":
            await self.on.start(name, "api")
        else:
            self.relays |= await relays_of(self.on, name)

    async def _agent(self) -> None:
        host = self.hosts[self.rng.choice(HOSTS)]
        await host.stop()
        if self.rng.random() < 0.5:
            host.erase()
        host.start()

    async def _device(self) -> None:
        host = self.hosts[self.rng.choice(HOSTS)]
        if self.rng.random() < 0.5:
            host.device.lose()
        else:
            host.device.faults = NetworkFaults(failures=self.rng.choice((0.0, 0.5)))

    async def _freeze(self) -> None:
        await freeze(self.on, is_frozen=self.rng.random() < 0.3)


async def run(seed: int) -> list[str]:
    """A run with faults. Returns the DPUs that do not end with the document that follows from the objects."""
    async with plane() as on:
        fleet = await fleet_of(on, *HOSTS, replicas=("a", "b"))
        faults = Faults(on, fleet, Random(seed))
        await faults.begin()
        for _ in range(STEPS):
            await faults.step()
        await faults.heal()
        await asyncio.sleep(150)
        wrong = [name for name, host in faults.hosts.items() if not has_wanted(on, host)]
        wrong += [name for name, host in faults.hosts.items() if host.content() != expected(fleet, name)]
        for host in faults.hosts.values():
            await host.stop()
        assert not any(replica.folded(p).halted for replica in on.replicas.values() for p in replica.partitions(ZONES))
        return wrong


def expected(fleet: Fleet, host: str) -> str:
    """The document of a DPU, derived from all objects at once."""
    derivation = Derivation()
    derivation.update(fleet.state, [*fleet.state.objects.rows, *fleet.state.observed.rows])
    documents = NetworkDocuments(stated_networks(fleet.state, derivation, SOURCE))
    node = node_of(fleet.state, derivation, key(kinds.DPU, f"{host}-d{host}"))
    assert node is not None, "the DPU has a DPU cluster"
    return documents.of_node(*node).text


@pytest.mark.parametrize("seed", range(4))
async def test_every_live_dpu_ends_with_the_document_that_the_objects_want(seed: int) -> None:
    assert not await run(seed)


def _never_again(self: LinkNetworks, state: Any, row: Any, now: float) -> bool:
    return row.version not in (state.sent, state.refused)


def _once(read: Any) -> Any:
    def read_once(self: Networks, source: str) -> bool:
        return source not in self._documents and bool(read(self, source))

    return read_once


async def test_a_relay_that_sends_no_document_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkNetworks, "_is_due", _never_again)
    assert await run(0) or await run(1)


async def test_a_handover_that_reads_the_objects_only_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Networks, "_read_networks", _once(Networks._read_networks))
    assert await run(0)

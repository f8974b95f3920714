"""Network documents from objects to agents and back, over relays that fold the log, with agents that fail or are
old."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.composition.roles import relay_of
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import MemoryNetworkStore
from drivers.agents.store import MemoryTableStore
from drivers.backends.device import DeviceFailed, Programmed
from drivers.backends.simulated import SimulatedDevice
from drivers.backends.simulated_network import NetworkFaults, SimulatedNetwork
from drivers.relays.relay import Relay
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Hello
from drivers.wire.links import Link, LinkClosed, memory_link_pair
from drivers.wire.relay_messages import Network, ToAgent
from eventstore.log import FLEET
from projections.resources import kinds
from projections.zones.rows import DpuNetwork
from schemas.events import NetworksReported, NetworksWanted, WritesFrozen, WritesThawed
from tests.support.memory_plane import Plane, plane
from tests.unit.test_handover import Fleet
from tests.unit.test_network_handover import chain, document, fleet_of, network, observed

pytestmark = pytest.mark.virtual_clock


def service(name: str) -> dict[str, Any]:
    end = {"serviceID": name, "network": "mybrsfc", "interfaceName": "eth1"}
    spec = {"interfaceType": "service", "service": end}
    return {"template": {"spec": {"template": {"metadata": {"labels": {"uplink": name}}, "spec": spec}}}}


class Host:
    """An agent with its network, whose process may end and start again. A host outlives its agent."""

    def __init__(self, on: Plane, host: str, relays: dict[str, Relay], *, takes_networks: bool = True) -> None:
        self.dpu = f"{host}-d{host}"
        self.device = SimulatedNetwork(NetworkFaults(), rng=on.rng())
        self._on = on
        self._relays = relays
        self._takes_networks = takes_networks
        self._store, self._tables = MemoryNetworkStore(), MemoryTableStore()
        self._task: asyncio.Task[None] | None = None
        self._links: list[Link] = []
        self._serving: list[asyncio.Task[None]] = []
        self.network: AgentNetwork
        self.boots = 0

    def start(self) -> None:
        self.boots += 1
        self.network = AgentNetwork(self.device, self._store)
        agent = Agent(
            AgentIdentity("z1", self.dpu, f"boot-{self.boots}"),
            [*self._relays],
            dial=self._dial,
            device=SimulatedDevice(rng=self._on.rng()),
            store=self._tables,
            rng=self._on.rng(),
            network=self.network if self._takes_networks else None,
        )
        self._task = asyncio.get_running_loop().create_task(agent.run())

    async def stop(self) -> None:
        tasks = [task for task in (self._task, *self._serving) if task is not None]
        self.lose_links()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._serving.clear()

    def lose_links(self) -> None:
        """Close the links of the agent, as when its relay ends."""
        for link in self._links:
            link.abort()
        self._links.clear()

    def erase(self) -> None:
        """Lose what the agent has stored, and the device holds, as a new installation does."""
        self._store, self._tables = MemoryNetworkStore(), MemoryTableStore()
        self.device.lose()

    def content(self) -> str:
        return self.device.document.decode()

    async def _dial(self, address: str) -> Link:
        if address not in self._relays:
            raise LinkClosed("down")
        theirs, ours = memory_link_pair(address, self.dpu)
        self._links.append(ours)
        self._serving.append(asyncio.get_running_loop().create_task(self._relays[address].serve(theirs)))
        return ours


async def relays_of(on: Plane, *names: str) -> dict[str, Relay]:
    """Relays in processes of their own."""
    found = {}
    for name in names:
        life = await on.start(name, "relay")
        found[name] = relay_of(life.replica, now_ms=on.now_ms, rng=on.rng())
        on.spawn(name, found[name].run())
    return found


def has_wanted(on: Plane, host: Host) -> bool:
    """Whether the device holds the wanted document, and the log knows."""
    zone = on.zone("z1")
    row = zone.networks.rows.get(host.dpu)
    return row is not None and row.is_applied and host.content() == zone.network_texts.rows[row.digest].text


async def begin(
    on: Plane, *hosts: str, old: tuple[str, ...] = (), relays: tuple[str, ...] = ("r1",)
) -> tuple[Fleet, dict[str, Host]]:
    fleet = await fleet_of(on, *hosts)
    serving = await relays_of(on, *relays)
    found = {host: Host(on, host, serving, takes_networks=host not in old) for host in hosts}
    for host in found.values():
        host.start()
    return fleet, found


async def test_documents_reach_agents_and_the_chain_becomes_ready() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1", "h2")
        await on.until(lambda: all(has_wanted(on, host) for host in hosts.values()))
        await on.until(lambda: observed(fleet).get("ready") is True)
        assert observed(fleet)["applied"] == observed(fleet)["selected"] == 2
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p1", "p0")})
        await on.until(lambda: '"dpf/p1"},{"interface":"dpf/p0"' in hosts["h1"].content())
        await on.until(lambda: all(has_wanted(on, host) for host in hosts.values()))
        await _stop(hosts)


async def test_an_idle_plane_sends_and_reports_nothing() -> None:
    async with plane() as on:
        _, hosts = await begin(on, "h1")
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        await asyncio.sleep(5)
        reports, taken = on.count(on.partition("z1"), NetworksReported), hosts["h1"].device.programmed
        await asyncio.sleep(120)
        assert on.count(on.partition("z1"), NetworksReported) == reports == 1
        assert hosts["h1"].device.programmed == taken == 1
        await _stop(hosts)


async def test_ports_that_come_late_hold_up_nothing_else() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1")
        hosts["h1"].device.faults = NetworkFaults(ports_s=30)
        await fleet.apply(kinds.DPU_SERVICE_INTERFACE, {"app": service("app")})
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"app": chain("app", "p0")})
        await on.until(
            lambda: "dpf/app has no port yet, waits for a pod of service" in observed(fleet, "app").get("message", "")
        )
        await on.until(lambda: observed(fleet, "web").get("ready") is True)
        assert network(on, "h1") is not None and '"dpf/app"' in hosts["h1"].content()
        await on.until(lambda: observed(fleet, "app").get("ready") is True)
        await _stop(hosts)


async def test_a_refused_document_is_tried_again_and_the_condition_says_why() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1")
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        before = hosts["h1"].content()
        hosts["h1"].device.faults = NetworkFaults(failures=1.0)
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p1", "p0")})
        await on.until(lambda: "DEVICE: simulated failure of the device" in observed(fleet)["message"])
        assert hosts["h1"].content() == before
        hosts["h1"].device.faults = NetworkFaults()
        await on.until(lambda: has_wanted(on, hosts["h1"]), timeout_s=120)
        await on.until(lambda: observed(fleet)["ready"] is True)
        await _stop(hosts)


async def test_a_document_that_is_refused_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[bytes] = []

    async def fails(self: SimulatedNetwork, document: bytes, digest: bytes) -> Programmed:
        attempts.append(digest)
        raise DeviceFailed("port 3: no answer")

    monkeypatch.setattr(SimulatedNetwork, "program", fails)
    async with plane() as on:
        _, hosts = await begin(on, "h1")
        await on.until(lambda: len(attempts) > 3, timeout_s=120)
        version = _row(on).version
        logged = [each.getMessage() for each in caplog.records if each.name == "drivers.agents.fault_log"]
        assert logged == [f"dpu h1-dh1 refused network document version {version}: port 3: no answer"]
        await _stop(hosts)


async def test_a_device_that_lost_its_document_gets_it_back_from_its_agent() -> None:
    async with plane() as on:
        _, hosts = await begin(on, "h1")
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        on.kill("r1")
        hosts["h1"].device.lose()
        await hosts["h1"].stop()
        hosts["h1"].start()
        await on.until(lambda: bool(hosts["h1"].content()))
        await _stop(hosts)


async def test_an_agent_that_lost_everything_is_reported_and_served_again_by_another_relay() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1", relays=("r1", "r2"))
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        await hosts["h1"].stop()
        fresh = Host(on, "h1", {"r2": hosts["h1"]._relays["r2"]})
        fresh.device.faults = NetworkFaults(failures=1.0)
        fresh.start()
        await on.until(lambda: network(on, "h1") is not None and _row(on).applied == 0)
        await on.until(lambda: observed(fleet)["ready"] is False)
        fresh.device.faults = NetworkFaults()
        await on.until(lambda: has_wanted(on, fresh), timeout_s=120)
        await fresh.stop()


async def test_an_agent_of_an_older_version_gets_no_document_and_goes_on() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1", "h2", old=("h1",))
        await on.until(lambda: has_wanted(on, hosts["h2"]))
        await on.until(lambda: observed(fleet).get("applied") == 1)
        assert observed(fleet)["message"].startswith("ready on 1 of 2 DPUs (h1-dh1: its agent")
        await asyncio.sleep(60)
        assert not hosts["h1"].content()
        await _stop(hosts)


async def test_a_freeze_stops_documents_until_the_thaw() -> None:
    async with plane() as on:
        fleet, hosts = await begin(on, "h1")
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        before = hosts["h1"].content()
        await freeze(on, is_frozen=True)
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p1", "p0")})
        await on.until(lambda: network(on, "h1") is not None and _row(on).applied < _row(on).version)
        await asyncio.sleep(30)
        assert hosts["h1"].content() == before
        await freeze(on, is_frozen=False)
        await on.until(lambda: has_wanted(on, hosts["h1"]))
        await _stop(hosts)


async def test_a_link_of_many_dpus_gets_one_message_and_a_restarted_relay_sends_nothing_twice() -> None:
    async with plane() as on:
        await fleet_of(on, *[f"h{number}" for number in range(5)])
        relays = await relays_of(on, "r1")
        names = [f"h{number}-dh{number}" for number in range(5)]
        await on.until(lambda: all(name in on.zone("z1").networks.rows for name in names))
        assert on.count(on.partition("z1"), NetworksWanted) == 1
        theirs, ours = memory_link_pair("r1", "zone")
        serving = asyncio.get_running_loop().create_task(relays["r1"].serve(theirs))
        ours.send(agent_messages.encode(Hello("z1", names, ["b"] * 5, [], True)))
        await _heard(ours)
        first = await _heard(ours)
        assert isinstance(first, Network) and first.dpus == 0, "for all DPUs of the link"
        assert first.document.decode() == on.zone("z1").network_texts.rows[_row(on, "h0").digest].text
        assert document(on, "h0")["switches"]
        ours.abort()
        await asyncio.wait({serving})


async def _heard(link: Link) -> ToAgent:
    async with asyncio.timeout(30):
        return relay_messages.decode(await link.receive())


def _row(on: Plane, host: str = "h1") -> DpuNetwork:
    return on.zone("z1").networks.rows[f"{host}-d{host}"]


async def freeze(on: Plane, *, is_frozen: bool) -> None:
    """Freeze all zones, or thaw them. A thaw without a freeze changes nothing."""
    replica = next(iter(on.replicas.values()))
    event = (WritesFrozen if is_frozen else WritesThawed)(on.command("all"), "")
    await replica.submit(replica.partition_for(FLEET, ""), b"", event, timeout_s=5.0)


async def _stop(hosts: dict[str, Host]) -> None:
    for host in hosts.values():
        await host.stop()

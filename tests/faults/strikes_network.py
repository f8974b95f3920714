"""Network faults: cuts in one or both directions, packet loss, low bandwidth, faults of a single connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tests.faults.brokers import CONTROLLER_PORT, PORT
from tests.faults.fault import ActiveFault, until_evident
from tests.faults.network_lab import HUB, Flow, LabHost, both
from tests.faults.proxy import Mode, Proxy
from tests.faults.roles import AGENTS, API, Role

# --- cuts


@asynccontextmanager
async def cut_from_log(active_fault: ActiveFault) -> AsyncIterator[None]:
    """All packets between a role and the brokers are dropped."""
    async with _dropping(active_fault, both(*_log_flows(active_fault, _any_role(active_fault)))):
        yield


@asynccontextmanager
async def log_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's packets reach the brokers; their responses are dropped."""
    async with _dropping(active_fault, [flow.back for flow in _log_flows(active_fault, _any_role(active_fault))]):
        yield


@asynccontextmanager
async def broker_isolated(active_fault: ActiveFault) -> AsyncIterator[None]:
    """One broker is disconnected from the other brokers, but clients still reach it as a leader."""
    assert active_fault.world.brokers is not None
    victim, *others = active_fault.rng.sample(active_fault.world.brokers.all, 3)
    async with _dropping(
        active_fault, both(*(Flow(victim.lab_host.address, other.lab_host.address) for other in others))
    ):
        yield


@asynccontextmanager
async def brokers_bridged(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Packets between two of three brokers are dropped; the third reaches both."""
    assert active_fault.world.brokers is not None
    one, other = active_fault.rng.sample(active_fault.world.brokers.all, 2)
    async with _dropping(active_fault, both(Flow(one.lab_host.address, other.lab_host.address))):
        yield


@asynccontextmanager
async def controller_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Packets from brokers to the controllers arrive; their responses are dropped, whichever controller leads."""
    assert active_fault.world.brokers is not None
    controllers = [broker.lab_host.address for broker in active_fault.world.brokers.all]
    async with _dropping(active_fault, [Flow(source=address, source_port=CONTROLLER_PORT) for address in controllers]):
        yield


@asynccontextmanager
async def cut_from_devices(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Packets between relays and devices are dropped; all other traffic passes."""
    relays = [Flow(target=relay.lab_host.address, target_port=AGENTS) for relay in active_fault.world.roles_of("relay")]
    async with _dropping(active_fault, both(*relays)):
        yield


@asynccontextmanager
async def api_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Commands reach a server; its responses are dropped."""
    victim = active_fault.rng.choice(active_fault.world.roles_of("api")).lab_host.address
    async with _dropping(active_fault, [Flow(target=victim, target_port=API).back]):
        yield


@asynccontextmanager
async def link_down(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's link is down in both directions, and its kernel reports it."""
    victim = _any_role(active_fault)
    async with active_fault.world.network_lab.link_down(victim.lab_host):
        yield
        active_fault.evidence["unanswered while down"] += not await victim.metrics()


@asynccontextmanager
async def link_flaps(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's link goes down and up several times."""
    victim = _any_role(active_fault)
    for _ in range(6):
        async with active_fault.world.network_lab.link_down(victim.lab_host):
            active_fault.evidence["times down"] += 1
            await asyncio.sleep(active_fault.rng.uniform(0.1, 1.0))
        await asyncio.sleep(active_fault.rng.uniform(0.1, 1.0))
    yield


# --- lossy, slow and reset networks


@asynccontextmanager
async def packets_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """15 % of all packets are lost."""
    async with _dropping(active_fault, _all_flows(active_fault), test="numgen random mod 100 < 15"):
        yield


@asynccontextmanager
async def large_packets_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A black hole on the way to the brokers: packets over 600 bytes are dropped without notice."""
    async with _dropping(
        active_fault, both(*_log_flows(active_fault, _any_role(active_fault))), test="ip length > 600"
    ):
        yield


@asynccontextmanager
async def low_bandwidth(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's bandwidth is 20 kB/s."""
    victim = _any_role(active_fault).lab_host.address
    async with _dropping(active_fault, both(Flow(source=victim)), test="limit rate over 20 kbytes/second"):
        yield


@asynccontextmanager
async def connections_reset(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Every connection of a role is reset, several times."""
    victim = _any_role(active_fault).lab_host.address
    for _ in range(5):
        flows = both(Flow(source=victim), Flow(target=victim))
        async with active_fault.world.network_lab.rule(flows, "reject with tcp reset", "meta l4proto tcp") as hits:
            await asyncio.sleep(0.3)
        active_fault.evidence["packets answered by a reset"] += hits.packets
        await asyncio.sleep(active_fault.rng.uniform(0.2, 1.0))
    yield


# --- single connections


@asynccontextmanager
async def produce_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Brokers accept the appends of `api-2`, and the connections close without the responses."""
    async with _proxied(active_fault, "log", "lose answers"):
        yield


@asynccontextmanager
async def log_delayed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Each request and response between the second API and the brokers is delayed by 2 s."""
    async with _proxied(active_fault, "log", "delay"):
        yield


@asynccontextmanager
async def log_byte_by_byte(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Traffic between brokers and the second API arrives byte by byte."""
    async with _proxied(active_fault, "log", "byte by byte"):
        yield


@asynccontextmanager
async def log_half_open(active_fault: ActiveFault) -> AsyncIterator[None]:
    """The second API's connections to the brokers stay open, and no data passes."""
    async with _proxied(active_fault, "log", "half-open"):
        yield


@asynccontextmanager
async def api_call_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A server's responses are lost, and its connections close when the fault heals."""
    async with _proxied(active_fault, "api", "lose answers"):
        yield


@asynccontextmanager
async def api_byte_by_byte(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Commands and their responses arrive byte by byte."""
    async with _proxied(active_fault, "api", "byte by byte"):
        yield


@asynccontextmanager
async def frames_byte_by_byte(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Frames for devices and their acknowledgements arrive byte by byte."""
    async with _proxied(active_fault, "agents", "byte by byte"):
        yield


@asynccontextmanager
async def frames_delayed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Frames for devices and their acknowledgements are delayed by 2 s."""
    async with _proxied(active_fault, "agents", "delay"):
        yield


@asynccontextmanager
async def device_links_half_open(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Devices' links stay open, and no data passes."""
    async with _proxied(active_fault, "agents", "half-open"):
        yield


@asynccontextmanager
async def device_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Devices' acknowledgements never reach the relays."""
    async with _proxied(active_fault, "agents", "lose answers"):
        yield


# --- helpers


def _any_role(active_fault: ActiveFault) -> Role:
    return active_fault.rng.choice(active_fault.world.roles)


def _log_flows(active_fault: ActiveFault, role: Role) -> Iterable[Flow]:
    """The traffic from a role to every broker, directly or through the proxies."""
    assert active_fault.world.brokers is not None
    here = role.lab_host.address
    for broker in active_fault.world.brokers.all:
        yield Flow(here, broker.lab_host.address, target_port=PORT)
        yield Flow(here, HUB, target_port=int(broker.proxy.address.rpartition(":")[2]))


def _all_flows(active_fault: ActiveFault) -> Sequence[Flow]:
    """The traffic of all hosts."""
    brokers = active_fault.world.brokers.all if active_fault.world.brokers else ()
    hosts: list[LabHost] = [each.lab_host for each in (*active_fault.world.roles, *brokers)]
    return [Flow(source=lab_host.address) for lab_host in hosts]


@asynccontextmanager
async def _dropping(active_fault: ActiveFault, flows: Sequence[Flow], test: str = "") -> AsyncIterator[None]:
    async with active_fault.world.network_lab.rule(flows, "drop", test) as hits:
        yield
    active_fault.evidence["packets dropped"] += hits.packets


@asynccontextmanager
async def _proxied(active_fault: ActiveFault, what: str, mode: Mode) -> AsyncIterator[None]:
    proxies: list[Proxy] = [proxy for name, proxy in active_fault.world.proxies.items() if name.startswith(what)]
    before = sum(proxy.counts[mode] for proxy in proxies)

    async def is_met() -> bool:
        return sum(proxy.counts[mode] for proxy in proxies) > before

    for proxy in proxies:
        proxy.set_mode(mode)
    try:
        yield
        await until_evident(is_met)
    finally:
        for proxy in proxies:
            proxy.set_mode("pass")
    active_fault.evidence[f"{what}: {mode}"] += sum(proxy.counts[mode] for proxy in proxies) - before

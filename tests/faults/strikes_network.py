"""Networks that are cut, one way or both, thinned, narrowed, or broken in a single connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tests.faults.brokers import CONTROLLER_PORT, PORT
from tests.faults.fault import ActiveFault
from tests.faults.network_lab import HUB, Flow, LabHost, both
from tests.faults.proxy import Mode, Proxy
from tests.faults.roles import AGENTS, API, Role

# --- cuts


@asynccontextmanager
async def cut_from_log(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role and all brokers hear nothing of each other."""
    async with _dropping(active_fault, both(*_to_log(active_fault, _any_role(active_fault)))):
        yield


@asynccontextmanager
async def log_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """What a role says reaches the brokers, and no answer comes back."""
    async with _dropping(active_fault, [way.back for way in _to_log(active_fault, _any_role(active_fault))]):
        yield


@asynccontextmanager
async def broker_isolated(active_fault: ActiveFault) -> AsyncIterator[None]:
    """One broker is cut off from the others, and only from them: clients still find it leading."""
    assert active_fault.world.brokers is not None
    victim, *others = active_fault.rng.sample(active_fault.world.brokers.all, 3)
    async with _dropping(
        active_fault, both(*(Flow(victim.lab_host.address, other.lab_host.address) for other in others))
    ):
        yield


@asynccontextmanager
async def brokers_bridged(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Two of three brokers hear nothing of each other; the third hears both."""
    assert active_fault.world.brokers is not None
    one, other = active_fault.rng.sample(active_fault.world.brokers.all, 2)
    async with _dropping(active_fault, both(Flow(one.lab_host.address, other.lab_host.address))):
        yield


@asynccontextmanager
async def controllers_deaf(active_fault: ActiveFault) -> AsyncIterator[None]:
    """What brokers say to the controllers arrives, and no answer comes back, whoever leads them."""
    assert active_fault.world.brokers is not None
    controllers = [broker.lab_host.address for broker in active_fault.world.brokers.all]
    async with _dropping(active_fault, [Flow(source=address, source_port=CONTROLLER_PORT) for address in controllers]):
        yield


@asynccontextmanager
async def cut_from_devices(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Relays and devices hear nothing of each other, while everything else goes on."""
    relays = [Flow(target=relay.lab_host.address, target_port=AGENTS) for relay in active_fault.world.of("relay")]
    async with _dropping(active_fault, both(*relays)):
        yield


@asynccontextmanager
async def api_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Commands reach a server, and its answers do not come back."""
    victim = active_fault.rng.choice(active_fault.world.of("api")).lab_host.address
    async with _dropping(active_fault, [Flow(target=victim, target_port=API).back]):
        yield


@asynccontextmanager
async def cable_pulled(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's link is down: nothing goes in or out, and its kernel knows."""
    victim = _any_role(active_fault)
    async with active_fault.world.network_lab.link_down(victim.lab_host):
        yield
        active_fault.evidence["unanswered while down"] += not await victim.metrics()


@asynccontextmanager
async def cable_flaps(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's link goes down and up."""
    victim = _any_role(active_fault)
    for _ in range(6):
        async with active_fault.world.network_lab.link_down(victim.lab_host):
            active_fault.evidence["times down"] += 1
            await asyncio.sleep(active_fault.rng.uniform(0.1, 1.0))
        await asyncio.sleep(active_fault.rng.uniform(0.1, 1.0))
    yield


# --- what still gets through


@asynccontextmanager
async def packets_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Of all packets, 15 in 100 are lost."""
    async with _dropping(active_fault, _everything(active_fault), test="numgen random mod 100 < 15"):
        yield


@asynccontextmanager
async def large_packets_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A black hole on the way to the brokers: whatever is larger than 600 bytes vanishes without a word."""
    async with _dropping(active_fault, both(*_to_log(active_fault, _any_role(active_fault))), test="ip length > 600"):
        yield


@asynccontextmanager
async def narrow_network(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role has 20 kB a second."""
    victim = _any_role(active_fault).lab_host.address
    async with _dropping(active_fault, both(Flow(source=victim)), test="limit rate over 20 kbytes/second"):
        yield


@asynccontextmanager
async def connections_reset(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Every connection of a role ends in a reset, again and again."""
    victim = _any_role(active_fault).lab_host.address
    for _ in range(5):
        ways = both(Flow(source=victim), Flow(target=victim))
        async with active_fault.world.network_lab.rule(ways, "reject with tcp reset", "meta l4proto tcp") as hits:
            await asyncio.sleep(0.3)
        active_fault.evidence["packets answered by a reset"] += hits.packets
        await asyncio.sleep(active_fault.rng.uniform(0.2, 1.0))
    yield


# --- single connections


@asynccontextmanager
async def produce_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Brokers take what the second API appends, and the connection ends before the answer."""
    async with _treated(active_fault, "log", "lose answers"):
        yield


@asynccontextmanager
async def log_delayed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Each request and each answer between the second API and the brokers takes two seconds more."""
    async with _treated(active_fault, "log", "delay"):
        yield


@asynccontextmanager
async def log_in_crumbs(active_fault: ActiveFault) -> AsyncIterator[None]:
    """What brokers and the second API say to each other comes byte by byte."""
    async with _treated(active_fault, "log", "crumbs"):
        yield


@asynccontextmanager
async def log_half_open(active_fault: ActiveFault) -> AsyncIterator[None]:
    """The second API's connections to the brokers are open, and nothing gets through."""
    async with _treated(active_fault, "log", "half-open"):
        yield


@asynccontextmanager
async def api_call_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A server's answers get lost on the way, and the connection ends in the end."""
    async with _treated(active_fault, "api", "lose answers"):
        yield


@asynccontextmanager
async def api_in_crumbs(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Commands and their answers come byte by byte."""
    async with _treated(active_fault, "api", "crumbs"):
        yield


@asynccontextmanager
async def frames_in_crumbs(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Frames for devices and their answers come byte by byte."""
    async with _treated(active_fault, "agents", "crumbs"):
        yield


@asynccontextmanager
async def frames_delayed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Frames for devices and their answers take two seconds more."""
    async with _treated(active_fault, "agents", "delay"):
        yield


@asynccontextmanager
async def device_links_half_open(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Devices' links are open, and nothing gets through."""
    async with _treated(active_fault, "agents", "half-open"):
        yield


@asynccontextmanager
async def device_answers_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Devices answer, and relays never hear it."""
    async with _treated(active_fault, "agents", "lose answers"):
        yield


# --- how


def _any_role(active_fault: ActiveFault) -> Role:
    return active_fault.rng.choice(active_fault.world.roles)


def _to_log(active_fault: ActiveFault, role: Role) -> Iterable[Flow]:
    """From a role to every broker, straight or by the proxies."""
    assert active_fault.world.brokers is not None
    here = role.lab_host.address
    for broker in active_fault.world.brokers.all:
        yield Flow(here, broker.lab_host.address, target_port=PORT)
        yield Flow(here, HUB, target_port=int(broker.proxy.address.rpartition(":")[2]))


def _everything(active_fault: ActiveFault) -> Sequence[Flow]:
    """Whatever any host says."""
    brokers = active_fault.world.brokers.all if active_fault.world.brokers else ()
    hosts: list[LabHost] = [each.lab_host for each in (*active_fault.world.roles, *brokers)]
    return [Flow(source=lab_host.address) for lab_host in hosts]


@asynccontextmanager
async def _dropping(active_fault: ActiveFault, ways: Sequence[Flow], test: str = "") -> AsyncIterator[None]:
    async with active_fault.world.network_lab.rule(ways, "drop", test) as hits:
        yield
    active_fault.evidence["packets dropped"] += hits.packets


@asynccontextmanager
async def _treated(active_fault: ActiveFault, what: str, mode: Mode) -> AsyncIterator[None]:
    proxies: list[Proxy] = [proxy for name, proxy in active_fault.world.proxies.items() if name.startswith(what)]
    before = sum(proxy.counts[mode] for proxy in proxies)
    for proxy in proxies:
        proxy.become(mode)
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.become("pass")
    active_fault.evidence[f"{what}: {mode}"] += sum(proxy.counts[mode] for proxy in proxies) - before

"""Networks that are cut, one way or both, thinned, narrowed, or broken in a single connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tests.faults.arena import HUB, Party, Way, both
from tests.faults.brokers import CONTROLLER_PORT, PORT
from tests.faults.fault import Blow
from tests.faults.proxy import Mode, Proxy
from tests.faults.roles import AGENTS, API, Role

# --- cuts


@asynccontextmanager
async def cut_from_log(blow: Blow) -> AsyncIterator[None]:
    """A role and all brokers hear nothing of each other."""
    async with _dropping(blow, both(*_to_log(blow, _any_role(blow)))):
        yield


@asynccontextmanager
async def log_answers_lost(blow: Blow) -> AsyncIterator[None]:
    """What a role says reaches the brokers, and no answer comes back."""
    async with _dropping(blow, [way.back for way in _to_log(blow, _any_role(blow))]):
        yield


@asynccontextmanager
async def broker_isolated(blow: Blow) -> AsyncIterator[None]:
    """One broker is cut off from the others, and only from them: clients still find it leading."""
    assert blow.world.brokers is not None
    victim, *others = blow.rng.sample(blow.world.brokers.all, 3)
    async with _dropping(blow, both(*(Way(victim.party.address, other.party.address) for other in others))):
        yield


@asynccontextmanager
async def brokers_bridged(blow: Blow) -> AsyncIterator[None]:
    """Two of three brokers hear nothing of each other; the third hears both."""
    assert blow.world.brokers is not None
    one, other = blow.rng.sample(blow.world.brokers.all, 2)
    async with _dropping(blow, both(Way(one.party.address, other.party.address))):
        yield


@asynccontextmanager
async def controllers_deaf(blow: Blow) -> AsyncIterator[None]:
    """What brokers say to the controllers arrives, and no answer comes back, whoever leads them."""
    assert blow.world.brokers is not None
    controllers = [broker.party.address for broker in blow.world.brokers.all]
    async with _dropping(blow, [Way(source=address, source_port=CONTROLLER_PORT) for address in controllers]):
        yield


@asynccontextmanager
async def cut_from_devices(blow: Blow) -> AsyncIterator[None]:
    """Relays and devices hear nothing of each other, while everything else goes on."""
    relays = [Way(target=relay.party.address, target_port=AGENTS) for relay in blow.world.of("relay")]
    async with _dropping(blow, both(*relays)):
        yield


@asynccontextmanager
async def api_answers_lost(blow: Blow) -> AsyncIterator[None]:
    """Commands reach a server, and its answers do not come back."""
    victim = blow.rng.choice(blow.world.of("api")).party.address
    async with _dropping(blow, [Way(target=victim, target_port=API).back]):
        yield


@asynccontextmanager
async def cable_pulled(blow: Blow) -> AsyncIterator[None]:
    """A role's link is down: nothing goes in or out, and its kernel knows."""
    victim = _any_role(blow)
    async with blow.world.arena.link_down(victim.party):
        yield
        blow.evidence["unanswered while down"] += not await victim.metrics()


@asynccontextmanager
async def cable_flaps(blow: Blow) -> AsyncIterator[None]:
    """A role's link goes down and up."""
    victim = _any_role(blow)
    for _ in range(6):
        async with blow.world.arena.link_down(victim.party):
            blow.evidence["times down"] += 1
            await asyncio.sleep(blow.rng.uniform(0.1, 1.0))
        await asyncio.sleep(blow.rng.uniform(0.1, 1.0))
    yield


# --- what still gets through


@asynccontextmanager
async def packets_lost(blow: Blow) -> AsyncIterator[None]:
    """Of all packets, 15 in 100 are lost."""
    async with _dropping(blow, _everything(blow), test="numgen random mod 100 < 15"):
        yield


@asynccontextmanager
async def large_packets_lost(blow: Blow) -> AsyncIterator[None]:
    """A black hole on the way to the brokers: whatever is larger than 600 bytes vanishes without a word."""
    async with _dropping(blow, both(*_to_log(blow, _any_role(blow))), test="ip length > 600"):
        yield


@asynccontextmanager
async def narrow_network(blow: Blow) -> AsyncIterator[None]:
    """A role has 20 kB a second."""
    victim = _any_role(blow).party.address
    async with _dropping(blow, both(Way(source=victim)), test="limit rate over 20 kbytes/second"):
        yield


@asynccontextmanager
async def connections_reset(blow: Blow) -> AsyncIterator[None]:
    """Every connection of a role ends in a reset, again and again."""
    victim = _any_role(blow).party.address
    for _ in range(5):
        ways = both(Way(source=victim), Way(target=victim))
        async with blow.world.arena.rule(ways, "reject with tcp reset", "meta l4proto tcp") as hits:
            await asyncio.sleep(0.3)
        blow.evidence["packets answered by a reset"] += hits.packets
        await asyncio.sleep(blow.rng.uniform(0.2, 1.0))
    yield


# --- single connections


@asynccontextmanager
async def produce_answers_lost(blow: Blow) -> AsyncIterator[None]:
    """Brokers take what the second API appends, and the connection ends before the answer."""
    async with _treated(blow, "log", "lose answers"):
        yield


@asynccontextmanager
async def log_delayed(blow: Blow) -> AsyncIterator[None]:
    """Each request and each answer between the second API and the brokers takes two seconds more."""
    async with _treated(blow, "log", "delay"):
        yield


@asynccontextmanager
async def log_in_crumbs(blow: Blow) -> AsyncIterator[None]:
    """What brokers and the second API say to each other comes byte by byte."""
    async with _treated(blow, "log", "crumbs"):
        yield


@asynccontextmanager
async def log_half_open(blow: Blow) -> AsyncIterator[None]:
    """The second API's connections to the brokers are open, and nothing gets through."""
    async with _treated(blow, "log", "half-open"):
        yield


@asynccontextmanager
async def api_call_answers_lost(blow: Blow) -> AsyncIterator[None]:
    """A server's answers get lost on the way, and the connection ends in the end."""
    async with _treated(blow, "api", "lose answers"):
        yield


@asynccontextmanager
async def api_in_crumbs(blow: Blow) -> AsyncIterator[None]:
    """Commands and their answers come byte by byte."""
    async with _treated(blow, "api", "crumbs"):
        yield


@asynccontextmanager
async def frames_in_crumbs(blow: Blow) -> AsyncIterator[None]:
    """Frames for devices and their answers come byte by byte."""
    async with _treated(blow, "agents", "crumbs"):
        yield


@asynccontextmanager
async def frames_delayed(blow: Blow) -> AsyncIterator[None]:
    """Frames for devices and their answers take two seconds more."""
    async with _treated(blow, "agents", "delay"):
        yield


@asynccontextmanager
async def device_links_half_open(blow: Blow) -> AsyncIterator[None]:
    """Devices' links are open, and nothing gets through."""
    async with _treated(blow, "agents", "half-open"):
        yield


@asynccontextmanager
async def device_answers_lost(blow: Blow) -> AsyncIterator[None]:
    """Devices answer, and relays never hear it."""
    async with _treated(blow, "agents", "lose answers"):
        yield


# --- how


def _any_role(blow: Blow) -> Role:
    return blow.rng.choice(blow.world.roles)


def _to_log(blow: Blow, role: Role) -> Iterable[Way]:
    """From a role to every broker, straight or by the proxies."""
    assert blow.world.brokers is not None
    here = role.party.address
    for broker in blow.world.brokers.all:
        yield Way(here, broker.party.address, target_port=PORT)
        yield Way(here, HUB, target_port=int(broker.proxy.address.rpartition(":")[2]))


def _everything(blow: Blow) -> Sequence[Way]:
    """Whatever any party says."""
    brokers = blow.world.brokers.all if blow.world.brokers else ()
    parties: list[Party] = [each.party for each in (*blow.world.roles, *brokers)]
    return [Way(source=party.address) for party in parties]


@asynccontextmanager
async def _dropping(blow: Blow, ways: Sequence[Way], test: str = "") -> AsyncIterator[None]:
    async with blow.world.arena.rule(ways, "drop", test) as hits:
        yield
    blow.evidence["packets dropped"] += hits.packets


@asynccontextmanager
async def _treated(blow: Blow, what: str, mode: Mode) -> AsyncIterator[None]:
    proxies: list[Proxy] = [proxy for name, proxy in blow.world.proxies.items() if name.startswith(what)]
    before = sum(proxy.counts[mode] for proxy in proxies)
    for proxy in proxies:
        proxy.become(mode)
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.become("pass")
    blow.evidence[f"{what}: {mode}"] += sum(proxy.counts[mode] for proxy in proxies) - before

"""Brokers that are killed, frozen and restarted, one, two or all of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from eventstore.log import CLIQUES, FLEET, ZONES, Partition
from tests.faults.brokers import Broker, Brokers
from tests.faults.fault import Blow
from tests.faults.roles import state_of
from tests.faults.world import PREFIX
from tests.support.kafka_operator import Operator

LED = (Partition(ZONES, 0), Partition(ZONES, 1), Partition(CLIQUES, 0), Partition(FLEET, 0))
SHORT_S = 0.2
WHOLE_S = 20.0
STOP_S = 20.0
"""A broker may take minutes to hand over what it leads where nobody can take it; supervisors do not wait so long."""


@asynccontextmanager
async def leader_killed(blow: Blow) -> AsyncIterator[None]:
    """kill -9 of the broker that leads a partition; it stays away for as long as the fault holds."""
    brokers = _brokers(blow)
    leader = await Operator(brokers.bootstrap, PREFIX).leader(blow.rng.choice(LED))
    (victim,) = (broker for broker in brokers.all if broker.process.node.id == leader)
    _kill(blow, victim)
    try:
        yield
    finally:
        victim.process.start()


@asynccontextmanager
async def brokers_restarted(blow: Blow) -> AsyncIterator[None]:
    """A rolling restart of all brokers."""
    brokers = _brokers(blow)
    for victim in blow.rng.sample(brokers.all, len(brokers.all)):
        await _stop(victim)
        blow.evidence["brokers restarted"] += 1
        victim.process.start()
        with suppress(TimeoutError):  # another fault may keep them apart
            async with asyncio.timeout(WHOLE_S):
                await brokers.ready()
    yield


@asynccontextmanager
async def all_brokers_killed(blow: Blow) -> AsyncIterator[None]:
    """kill -9 of every broker at once."""
    brokers = _brokers(blow)
    for victim in brokers.all:
        _kill(blow, victim)
    await asyncio.sleep(blow.rng.uniform(0, 3))
    for victim in brokers.all:
        victim.process.start()
    yield


@asynccontextmanager
async def broker_frozen(blow: Blow) -> AsyncIterator[None]:
    """One broker stands still for longer than its session lasts, and wakes up replaced."""
    async with _frozen(blow, [blow.rng.choice(_brokers(blow).all)]):
        yield


@asynccontextmanager
async def two_brokers_frozen(blow: Blow) -> AsyncIterator[None]:
    """Two of three brokers stand still: nothing can be acknowledged, and nothing decided about leaders."""
    async with _frozen(blow, blow.rng.sample(_brokers(blow).all, 2)):
        yield


@asynccontextmanager
async def brokers_stutter(blow: Blow) -> AsyncIterator[None]:
    """Freezes too short for anybody to be replaced, one after the other, on all brokers."""
    for _ in range(3):
        for victim in _brokers(blow).all:
            async with _frozen(blow, [victim]):
                await asyncio.sleep(SHORT_S)
            await asyncio.sleep(blow.rng.uniform(0, SHORT_S))
    yield


@asynccontextmanager
async def _frozen(blow: Blow, victims: Sequence[Broker]) -> AsyncIterator[None]:
    for victim in victims:
        victim.process.send(signal.SIGSTOP)
    try:
        yield
        blow.evidence["brokers seen stopped"] += sum(state_of(victim.process.pid) == "T" for victim in victims)
    finally:
        for victim in victims:
            victim.process.send(signal.SIGCONT)


async def _stop(victim: Broker) -> None:
    victim.process.send(signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            while victim.process.is_running:
                await asyncio.sleep(0.1)
    victim.process.kill()


def _brokers(blow: Blow) -> Brokers:
    assert blow.world.brokers is not None
    return blow.world.brokers


def _kill(blow: Blow, victim: Broker) -> None:
    assert victim.process.is_running
    victim.process.kill()
    blow.evidence["brokers killed"] += not victim.process.is_running
    victim.kills += 1

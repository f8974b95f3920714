"""Brokers that are killed, frozen and restarted, one, two or all of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from eventstore.log import CLIQUES, FLEET, ZONES, Partition
from tests.faults.brokers import Broker, Brokers
from tests.faults.fault import ActiveFault
from tests.faults.roles import state_of
from tests.faults.world import PREFIX
from tests.support.kafka_operator import Operator

LED = (Partition(ZONES, 0), Partition(ZONES, 1), Partition(CLIQUES, 0), Partition(FLEET, 0))
SHORT_S = 0.2
WHOLE_S = 20.0
STOP_S = 20.0
"""Time limit for an orderly stop. A broker may try for minutes to hand over its partitions when no other broker can
take them; a supervisor does not wait that long.
"""


@asynccontextmanager
async def leader_killed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGKILL of the broker that leads a partition. The broker stays down while the fault holds."""
    brokers = _brokers(active_fault)
    leader = await Operator(brokers.bootstrap, PREFIX).leader(active_fault.rng.choice(LED))
    (victim,) = (broker for broker in brokers.all if broker.process.node.id == leader)
    _kill(active_fault, victim)
    try:
        yield
    finally:
        victim.process.start()


@asynccontextmanager
async def brokers_restarted(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A rolling restart of all brokers."""
    brokers = _brokers(active_fault)
    for victim in active_fault.rng.sample(brokers.all, len(brokers.all)):
        await _stop(victim)
        active_fault.evidence["brokers restarted"] += 1
        victim.process.start()
        with suppress(TimeoutError):  # another fault may separate them
            async with asyncio.timeout(WHOLE_S):
                await brokers.ready()
    yield


@asynccontextmanager
async def all_brokers_killed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGKILL of every broker at once."""
    brokers = _brokers(active_fault)
    for victim in brokers.all:
        _kill(active_fault, victim)
    await asyncio.sleep(active_fault.rng.uniform(0, 3))
    for victim in brokers.all:
        victim.process.start()
    yield


@asynccontextmanager
async def broker_frozen(active_fault: ActiveFault) -> AsyncIterator[None]:
    """One broker is frozen for longer than its session timeout, and resumes after another broker has replaced it as
    leader.
    """
    async with _frozen(active_fault, [active_fault.rng.choice(_brokers(active_fault).all)]):
        yield


@asynccontextmanager
async def two_brokers_frozen(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Two of three brokers are frozen: no append is acknowledged, and no leader is elected."""
    async with _frozen(active_fault, active_fault.rng.sample(_brokers(active_fault).all, 2)):
        yield


@asynccontextmanager
async def brokers_frozen_briefly(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Freezes shorter than the session timeout, one after the other, on all brokers."""
    for _ in range(3):
        for victim in _brokers(active_fault).all:
            async with _frozen(active_fault, [victim]):
                await asyncio.sleep(SHORT_S)
            await asyncio.sleep(active_fault.rng.uniform(0, SHORT_S))
    yield


@asynccontextmanager
async def _frozen(active_fault: ActiveFault, victims: Sequence[Broker]) -> AsyncIterator[None]:
    for victim in victims:
        victim.process.send(signal.SIGSTOP)
    try:
        yield
        active_fault.evidence["brokers seen stopped"] += sum(state_of(victim.process.pid) == "T" for victim in victims)
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


def _brokers(active_fault: ActiveFault) -> Brokers:
    assert active_fault.world.brokers is not None
    return active_fault.world.brokers


def _kill(active_fault: ActiveFault, victim: Broker) -> None:
    assert victim.process.is_running
    victim.process.kill()
    active_fault.evidence["brokers killed"] += not victim.process.is_running
    victim.kills += 1

"""An agent's acknowledgements of frames, read at the relay's end of a link that the test drives."""

from __future__ import annotations

import asyncio
import random

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Ack, FromAgent, Hello
from drivers.wire.links import Link, memory_link_pair
from drivers.wire.relay_messages import Welcome
from projections.rules.rule import Delta
from tests.support.relays import FIRST, SECOND
from tests.support.rule_source import ALLOW, Tables
from tests.support.virtual_loop import run_virtual
from tests.unit.test_agent import device


def tables_of(epoch: int, version: int, *, second: bool = False) -> Tables:
    tables = Tables(["d"], epoch=epoch)
    tables.put(version, {ALLOW: SECOND if second else FIRST})
    return tables


async def acknowledgements_of(faults: DeviceFaults, *frames: tuple[int, Delta]) -> list[Ack]:
    """All acknowledgements that an agent sends for these frames, which it gets 90 s after each other."""
    received: list[FromAgent] = []
    relays, agents = memory_link_pair("r0", "agent")

    async def dial(_address: str) -> Link:
        return agents

    async def receive() -> None:
        while True:
            received.append(agent_messages.decode(await relays.receive()))
            if isinstance(received[-1], Hello):
                relays.send(relay_messages.encode(Welcome(1, 5, False, 3_600_000, [])))

    who, store, rng = AgentIdentity("z", "d", "boot"), MemoryTableStore(), random.Random(3)
    agent = Agent(who, ["r0"], dial=dial, device=device(faults), store=store, rng=rng)
    tasks = [asyncio.create_task(agent.run()), asyncio.create_task(receive())]
    await asyncio.sleep(1)
    for epoch, delta in frames:
        relays.send(relay_messages.encode_frame(epoch, delta))
        await asyncio.sleep(90)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [message for message in received if isinstance(message, Ack)]


def test_a_frame_that_is_applied_at_once_has_one_acknowledgement() -> None:
    first, second = tables_of(1, 5), tables_of(1, 6, second=True)
    older = first.snapshot("z")
    acks = run_virtual(acknowledgements_of(NO_DEVICE_FAULTS, (1, older), (1, second.snapshot("z")), (1, older)))
    assert [(len(ack.statuses), len(ack.refusals)) for ack in acks] == [(1, 0), (1, 0), (0, 1)]


def test_a_frame_of_a_later_epoch_is_not_reported_as_received_in_the_present_epoch() -> None:
    """The frame's version is a position in another log, so it means nothing next to the epoch that the device has."""
    slow = DeviceFaults(latency_ms=60_000.0, spread=0.0)
    frames = (1, tables_of(1, 5).snapshot("z")), (2, tables_of(2, 7, second=True).snapshot("z"))
    acks = run_virtual(acknowledgements_of(slow, *frames))
    statuses = [(has.epoch, has.received, has.applied) for ack in acks for has in ack.statuses]
    assert statuses[-1] == (2, 7, 7)
    assert {received for epoch, received, _ in statuses if epoch == 1} <= {0, 5}

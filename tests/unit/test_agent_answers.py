"""An agent's responses to frames, read at the relay's end of a link that the test drives."""

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


async def said_to(faults: DeviceFaults, *frames: tuple[int, Delta]) -> list[FromAgent]:
    """What an agent says to these frames, a minute and a half after each other."""
    said: list[FromAgent] = []
    relays, agents = memory_link_pair("r0", "agent")

    async def dial(_address: str) -> Link:
        return agents

    async def hear() -> None:
        while True:
            said.append(agent_messages.decode(await relays.receive()))
            if isinstance(said[-1], Hello):
                relays.send(relay_messages.encode(Welcome(1, 5, False, 3_600_000, [])))

    who, store, rng = AgentIdentity("z", "d", "boot"), MemoryTableStore(), random.Random(3)
    agent = Agent(who, ["r0"], dial=dial, device=device(faults), store=store, rng=rng)
    tasks = [asyncio.create_task(agent.run()), asyncio.create_task(hear())]
    await asyncio.sleep(1)
    for epoch, delta in frames:
        relays.send(relay_messages.encode_frame(epoch, delta))
        await asyncio.sleep(90)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [message for message in said if isinstance(message, Ack)]


def test_a_frame_that_is_taken_at_once_has_one_answer() -> None:
    first, second = tables_of(1, 5), tables_of(1, 6, second=True)
    older = first.snapshot("z")
    said = run_virtual(said_to(NO_DEVICE_FAULTS, (1, older), (1, second.snapshot("z")), (1, older)))
    answers = [(len(ack.statuses), len(ack.refusals)) for ack in said if isinstance(ack, Ack)]
    assert answers == [(1, 0), (1, 0), (0, 1)]


def test_a_frame_of_a_later_log_is_received_by_none_of_the_table_that_is_held() -> None:
    """Its version is a position in another log: beside the epoch that the device is still at, it means nothing."""
    slow = DeviceFaults(latency_ms=60_000.0, spread=0.0)
    frames = (1, tables_of(1, 5).snapshot("z")), (2, tables_of(2, 7, second=True).snapshot("z"))
    said = [ack for ack in run_virtual(said_to(slow, *frames)) if isinstance(ack, Ack)]
    statuses = [(has.epoch, has.received, has.applied) for ack in said for has in ack.statuses]
    assert statuses[-1] == (2, 7, 7)
    assert {received for epoch, received, _ in statuses if epoch == 1} <= {0, 5}

"""Deltas for versions that a DPU claims to have are computed at a limited rate."""

from __future__ import annotations

import asyncio

import pytest

from drivers.wire.agent_messages import Ack, Refusal
from drivers.wire.protocol import TableStatus
from projections.rules.device_table import RefusalCode
from tests.support.relays import FIRST, SECOND, THIRD, AgentPeer, relay_cluster
from tests.support.rule_source import ALLOW, Tables

pytestmark = pytest.mark.virtual_clock


async def test_a_dpu_that_claims_ever_other_versions_causes_few_deltas() -> None:
    """Each delta is computed from history, which blocks the loop for all other links."""
    tables = Tables(["d", "e"])
    for version in range(1, 1_000):
        tables.put(version, {ALLOW: FIRST if version % 2 else SECOND})
    async with relay_cluster(tables) as made:
        honest = AgentPeer(await made.dial("r0"))
        honest.hello("e", held=TableStatus(1, 1, 998, 998, 998, tables.history[998].digest))
        await honest.frame()
        for turn in range(3):
            peer = AgentPeer(await made.dial("r0"))
            for number in range(100):
                version = 1 + (37 * number + turn) % 900
                held = TableStatus(1, 1, version, version, version, tables.history[version].digest)
                if number % 3:
                    peer.say(Ack([held], []))
                    peer.say(Ack([], [Refusal(held, 999, RefusalCode.BASE, "no")]))
                else:
                    peer.hello("d", held=held)
            await asyncio.sleep(0.1)
        assert tables.deltas < 30
        tables.put(1_000, {ALLOW: THIRD})
        assert (await honest.frame()).delta.to_version == 1_000

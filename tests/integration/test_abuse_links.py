"""Abuse of the agent link by a DPU with a certificate: it lies, floods, or sends malformed messages.

Only its own link suffers, and its statements about other DPUs are ignored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.agents.agent import Agent
from drivers.relays.relay import TURN_PIECES, RelaySettings
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import NO_DIGEST, Ack, Heartbeat, Hello
from drivers.wire.links import Link, LinkClosed
from drivers.wire.protocol import MAX_UP_BYTES, ProtocolError, TableStatus
from drivers.wire.relay_messages import Frame, GoAway, HeartbeatReply
from drivers.wire.websocket import PINGS_MAX, SocketLink
from projections.field_checks import is_printable
from projections.rules.rule import Held
from tests.support.eventually import until
from tests.support.guarded_links import GuardedRelay, agent_of, dialed, guarded_relay
from tests.support.rule_source import ALLOW, Tables, packed

PATIENT = RelaySettings(handshakes_at_once=10_000, messages_per_second=50)
"""Settings under which a busy machine closes no link as silent, and a flood exceeds the limit even if read slowly."""


class Attacked(NamedTuple):
    """A relay, an honest agent (d0), and the link of a compromised agent (d1) after its Hello."""

    served: GuardedRelay
    tables: Tables
    honest: Agent
    link: Link

    def held(self, dpu: str) -> Held:
        return self.served.relay.zone_devices("z")[dpu]

    async def check_honest_agent(self, version: int) -> None:
        """Check that the honest agent gets the next table."""
        self.tables.put(version, {ALLOW: packed(f"10.{version}.0.0/16")})
        await until(lambda: self.honest.table == self.tables.table)
        await until(lambda: self.held("d0").version == version)


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[Attacked]:
    tables = Tables(["d0", "d1"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with (
        guarded_relay(folder, tables, settings=PATIENT) as served,
        agent_of("d0", served.address, served.cert_issuer.issue("dpu-agent/d0").certificates) as honest,
        dialed(served.address, served.cert_issuer.issue("dpu-agent/d1")) as link,
    ):
        await until(lambda: honest.table == tables.table)
        link.send(agent_messages.encode(Hello("z", ["d1"], ["b"], [])))
        while not isinstance(relay_messages.decode(await link.receive()), Frame):
            pass
        yield Attacked(served, tables, honest, link)


async def test_a_dpu_with_a_false_report_is_seen_to_differ_and_affects_no_other(tmp_path: Path) -> None:
    async with attacked(tmp_path) as attack:
        before = attack.held("d0")
        wrong = TableStatus(1, attack.tables.epoch, 5, 5, 5, b"\x07" * 16)
        attack.link.send(agent_messages.encode(Ack([wrong], [])))
        await until(lambda: attack.held("d1").digest == b"\x07" * 16)
        assert attack.held("d1").digest != attack.tables.table.digest
        everybody = (1 << 4096) - 1
        ahead = TableStatus(everybody, attack.tables.epoch, 2**40, 2**40, 2**40, NO_DIGEST)
        attack.link.send(agent_messages.encode(Heartbeat([ahead])))
        await attack.link.receive()
        assert attack.held("d0") == before
        await attack.check_honest_agent(6)


async def test_a_flood_closes_its_own_link_only(tmp_path: Path) -> None:
    async with attacked(tmp_path) as attack:
        beat = agent_messages.encode(Heartbeat([TableStatus(1, 0, 0, 0, 0, NO_DIGEST)]))
        with pytest.raises(LinkClosed):
            async with asyncio.timeout(60):
                while True:
                    for _ in range(TURN_PIECES):  # the relay reads no more messages per turn
                        attack.link.send(beat)
                    await asyncio.sleep(0)
        assert attack.served.relay.closed_for == {"malformed": 0, "silent": 0, "flooding": 1}
        await attack.check_honest_agent(6)


async def test_pings_are_answered_and_a_flood_of_pings_closes_its_own_link_only(tmp_path: Path) -> None:
    """Pings are not messages and were once not counted. All pings of one read were answered at once."""
    async with attacked(tmp_path) as attack:
        assert isinstance(attack.link, SocketLink)
        transport, masked_ping = attack.link._transport, b"\x89\x80\x01\x02\x03\x04"
        for _ in range(PINGS_MAX - 1):
            transport.write(masked_ping)
        attack.link.send(agent_messages.encode(Heartbeat([TableStatus(1, 0, 0, 0, 0, NO_DIGEST)])))
        assert isinstance(relay_messages.decode(await attack.link.receive()), HeartbeatReply)
        async with asyncio.timeout(60):
            while not transport.is_closing():
                transport.write(masked_ping * 1_000)
                await asyncio.sleep(0.01)
        assert attack.served.relay.closed_for["malformed"] == 1
        await attack.check_honest_agent(6)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff" * 100,
        bytes(MAX_UP_BYTES + 1),
        random.Random(4).randbytes(10_000),
        agent_messages.encode(Hello("z", ["d1\nlevel=info event=owned"], ["b"], [])),
        agent_messages.encode(Hello("other", ["d1"], ["b"], [])),
    ],
    ids=["empty", "no message", "too large", "random", "a forged log line", "another zone"],
)
async def test_a_malformed_message_closes_its_own_link_only(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with attacked(tmp_path) as attack:
        attack.link.send(said)
        with pytest.raises(LinkClosed):
            while True:
                answer = relay_messages.decode(await attack.link.receive())
                assert not isinstance(answer, GoAway) or "\n" not in answer.reason
        await attack.check_honest_agent(6)
    assert not [record for record in caplog.records if "\n" in record.getMessage()]


@settings(max_examples=300)
@given(st.binary(max_size=400) | st.binary(max_size=60).map(lambda tail: b"\x0a\x20" + tail))
def test_any_bytes_decode_to_a_message_or_a_protocol_error(data: bytes) -> None:
    for decode in (agent_messages.decode, relay_messages.decode):
        try:
            decode(data)
        except ProtocolError as error:
            assert is_printable(str(error))

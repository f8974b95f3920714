"""The in-process link, and the dialing of relays: waits and limits of both ends."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from drivers.wire import links
from drivers.wire.links import Busy, Link, LinkClosed, memory_link_pair
from drivers.wire.relay_connector import BACKOFF_LAST_S, GoAwayReceived, RelayConnector
from drivers.wire.relay_messages import GoAway


async def test_messages_arrive_in_order_and_count_as_backlog_until_taken() -> None:
    relay, agent = memory_link_pair("relay", "agent")
    relay.send(b"one")
    relay.send(b"three")
    assert (relay.backlog, agent.backlog) == (8, 0)
    assert [await agent.receive(), await agent.receive()] == [b"one", b"three"]
    assert relay.backlog == 0
    assert (relay.peer, agent.peer) == ("agent", "relay")


async def test_messages_sent_before_a_close_still_arrive() -> None:
    relay, agent = memory_link_pair("relay", "agent")
    relay.send(b"goodbye")
    await relay.close()
    assert await agent.receive() == b"goodbye"
    for end in (agent, relay):
        with pytest.raises(LinkClosed):
            await end.receive()
        with pytest.raises(LinkClosed):
            end.send(b"too late")


async def test_an_abort_wakes_a_waiting_receiver() -> None:
    relay, agent = memory_link_pair("relay", "agent")
    waiting = asyncio.create_task(agent.receive())
    await asyncio.sleep(0)
    relay.abort()
    with pytest.raises(LinkClosed):
        await waiting


async def test_a_peer_that_does_not_read_is_disconnected_at_the_backlog_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BACKLOG_BYTES_MAX", 100)
    relay, _agent = memory_link_pair("relay", "agent")
    relay.send(bytes(90))
    with pytest.raises(LinkClosed, match="left 90 bytes unread"):
        relay.send(bytes(20))


class FakeListeners:
    """Relays that refuse every dial until a test opens them. `dials` has the time and address of each."""

    def __init__(self) -> None:
        self.dials: list[tuple[float, str]] = []
        self.open: set[str] = set()
        self.busy_s: float | None = None

    async def dial(self, address: str) -> Link:
        self.dials.append((asyncio.get_running_loop().time(), address))
        if self.busy_s is not None:
            raise Busy("full", self.busy_s)
        if address not in self.open:
            raise LinkClosed("nobody there")
        return memory_link_pair("relay", "agent")[1]


def waits(dials: list[tuple[float, str]]) -> list[float]:
    times = [time for time, _ in dials]
    return [after - before for before, after in pairwise(times)]


@pytest.mark.virtual_clock
async def test_relays_are_dialed_in_turn_with_waits_that_grow_to_a_limit() -> None:
    listeners = FakeListeners()
    relays = RelayConnector(["a", "b"], listeners.dial, random.Random(1), who="dpu d")
    dialing = asyncio.create_task(relays.connect())
    await asyncio.sleep(2000)
    listeners.open = {"a", "b"}
    await dialing
    assert {address for _, address in listeners.dials[:2]} == {"a", "b"}
    assert all(first != second for (_, first), (_, second) in pairwise(listeners.dials))
    assert max(waits(listeners.dials)) <= BACKOFF_LAST_S
    assert sum(waits(listeners.dials)[:4]) < BACKOFF_LAST_S < sum(waits(listeners.dials)[-8:])


@pytest.mark.virtual_clock
async def test_a_busy_relay_is_not_dialed_for_as_long_as_it_asked() -> None:
    listeners = FakeListeners()
    listeners.busy_s = 7.0
    relays = RelayConnector(["a"], listeners.dial, random.Random(1), who="dpu d")
    dialing = asyncio.create_task(relays.connect())
    await asyncio.sleep(60)
    dialing.cancel()
    assert 60 / 8.4 < len(listeners.dials) < 1 + 60 / 7.0
    assert all(7.0 <= wait <= 8.4 for wait in waits(listeners.dials))


@pytest.mark.virtual_clock
async def test_a_go_away_sets_the_next_wait_and_a_welcome_resets_the_backoff() -> None:
    listeners = FakeListeners()
    listeners.open = {"a"}
    relays = RelayConnector(["a"], listeners.dial, random.Random(1), who="dpu d")
    await relays.connect()
    relays.lost(GoAwayReceived(GoAway("not served here", 9_000)))
    await relays.connect()
    assert 9.0 <= waits(listeners.dials)[-1] <= 10.8
    for _ in range(20):
        relays.lost(LinkClosed("gone"))
    relays.welcomed()
    relays.lost(LinkClosed("gone"))
    await relays.connect()
    assert waits(listeners.dials)[-1] <= 0.5

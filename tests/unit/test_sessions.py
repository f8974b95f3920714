"""Sessions of daemons: open while their agent is heard, expired a lease after that, by whichever server is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from commands.handlers.command_handler import CommandHandler
from commands.requests.cliques import open_session
from commands.rpc.middleware import Call, UndecodableRequest
from commands.streams.lasting import LastingStreams
from commands.streams.sessions import CHECK_S, LEASE_S, SessionKeeper
from eventstore.errors import PermanentError
from eventstore.log import CLIQUES
from projections.cliques.state import CliqueMember, CliquesState
from schemas.api import dpuplane_pb2 as pb
from schemas.events import IndicesClaimed, SessionExpired
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

DOMAIN, CLIQUE, NODE, UID = "d", "c", "n1", "pod-1"
MARGIN_S = 2 * CHECK_S


def keeper(made: Plane, name: str) -> SessionKeeper:
    replica = made.replicas[name]
    handle = partial(CommandHandler(replica, made.now_ms, made.rng()).handle, partial(open_session, edge=name))
    ranks = made.ranks(name)
    found = SessionKeeper(handle, LastingStreams(50), replica, lambda: ranks, now_ms=made.now_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


async def claim(made: Plane) -> None:
    replica = made.replicas["r1"]
    event = IndicesClaimed(made.command(DOMAIN), DOMAIN, CLIQUE, [NODE], [], [made.now_ms()], [UID], [])
    await replica.submit(replica.partition_for(CLIQUES, DOMAIN), DOMAIN.encode(), event, timeout_s=5)


def member(made: Plane, name: str = "r1") -> CliqueMember:
    replica = made.replicas[name]
    state: CliquesState = replica.state(replica.partition_for(CLIQUES, DOMAIN))
    return state.members.rows[f"{DOMAIN}/{CLIQUE}/{NODE}"]


def expirations(made: Plane) -> int:
    return sum(made.count(partition, SessionExpired) for partition in made.replicas["r1"].partitions(CLIQUES))


async def messages(
    count: int, every_s: float, session: str, *, then_s: float = 0.0
) -> AsyncIterator[pb.KeepSessionRequest]:
    for number in range(count):
        if number:
            await asyncio.sleep(every_s)
        yield pb.KeepSessionRequest(domain=DOMAIN, clique=CLIQUE, node=NODE, uid=UID, session=session)
    await asyncio.sleep(then_s)


async def hold(found: SessionKeeper, requests: AsyncIterator[pb.KeepSessionRequest | UndecodableRequest]) -> int:
    """Hold a session to its end; the number of answers."""
    return len([answer async for answer in found.keep(requests, Call("agent", 5.0))])


async def test_a_session_is_open_while_its_agent_is_heard_and_expires_a_lease_later() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await claim(made)
        found = keeper(made, "r1")
        assert await hold(found, messages(20, LEASE_S / 3, "s1")) == 20
        assert member(made).session_alive and expirations(made) == 0, "the lease is not over"
        waited_s = await made.until(lambda: not member(made).session_alive)
        assert LEASE_S - MARGIN_S <= waited_s <= LEASE_S + MARGIN_S
        assert (found.open, found.expired, expirations(made)) == (0, 1, 1)


async def test_a_silent_agent_loses_its_session_although_its_stream_stays_open() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await claim(made)
        found = keeper(made, "r1")
        made.spawn("r1", _ignored(hold(found, messages(1, 0, "s1", then_s=1_000))))
        await made.until(lambda: member(made).session_alive)
        waited_s = await made.until(lambda: not member(made).session_alive)
        assert LEASE_S - MARGIN_S <= waited_s <= LEASE_S + MARGIN_S
        assert found.open == 0, "the stream is closed"


async def test_a_newer_session_at_another_server_outlives_the_end_of_the_older_one() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await made.start("r2", "api")
        await claim(made)
        first, second = keeper(made, "r1"), keeper(made, "r2")
        await hold(first, messages(1, 0, "s1"))
        made.spawn("r2", _ignored(hold(second, messages(100, LEASE_S / 3, "s2"))))
        await asyncio.sleep(3 * LEASE_S)
        assert (member(made).session, member(made).session_alive, expirations(made)) == ("s2", True, 0)


async def test_the_sessions_of_a_dead_server_are_expired_by_another_after_a_full_lease() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await made.start("r2", "api")
        await claim(made)
        made.spawn("r2", _ignored(hold(keeper(made, "r2"), messages(100, LEASE_S / 3, "s2"))))
        first = keeper(made, "r1")
        await made.until(lambda: member(made).session_alive)
        made.kill("r2", beacon=True)
        await asyncio.sleep(2 * LEASE_S)
        assert member(made).session_alive, "its beacon is still there"
        made.gone.add("r2")
        waited_s = await made.until(lambda: not member(made).session_alive)
        assert LEASE_S - MARGIN_S <= waited_s <= LEASE_S + MARGIN_S
        assert first.expired == 1


async def test_a_server_that_starts_again_waits_a_lease_for_the_agents_of_its_former_process() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        await claim(made)
        await hold(keeper(made, "r1"), messages(1, 0, "s1"))
        made.kill("r1")
        await made.start("r1", "api")
        again = keeper(made, "r1")
        await asyncio.sleep(LEASE_S / 2)
        await hold(again, messages(2, LEASE_S / 3, "s1"))
        await asyncio.sleep(LEASE_S - MARGIN_S)
        assert member(made).session_alive, "the agent came back"
        await made.until(lambda: not member(made).session_alive)


async def test_a_session_of_no_member_is_refused_with_a_sentence() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        with pytest.raises(PermanentError, match="node"):
            await hold(keeper(made, "r1"), messages(1, 0, "s1"))
        with pytest.raises(PermanentError, match="not a valid KeepSessionRequest"):
            await hold(keeper(made, "r1"), _undecodable())


async def _undecodable() -> AsyncIterator[UndecodableRequest]:
    yield UndecodableRequest(3, "KeepSessionRequest")


async def _ignored(count: object) -> None:
    await count  # type: ignore[misc]

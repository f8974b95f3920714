"""A session opened twice under one command id, through two replicas, as after a lost response."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from commands.handlers.command_handler import CommandHandler
from commands.requests import cliques
from commands.rpc.middleware import Call
from eventstore.ids import uuid7
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.cliques.fold import CliquesFold
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp
from tests.support.memory_log import Contents, MemoryLog
from tests.support.replicas import running
from tests.support.toy_records import T0

pytestmark = pytest.mark.virtual_clock

CALL = Call("?caller", 5.0)
RNG = random.Random(3)


class Edge:
    """A replica with a command handler."""

    def __init__(self, contents: Contents, name: str) -> None:
        log, rng = MemoryLog(contents, lambda: T0), random.Random(name)
        self.replica = Replica(log, [CliquesFold()], store=DigestStore(), name=name, now_ms=lambda: T0, rng=rng)
        self.command_handler = CommandHandler(self.replica, lambda: T0, rng)

    async def open(self, request: pb.OpenSessionRequest, call: Call = CALL) -> pb.CommandResult:
        return await self.command_handler.handle(partial(cliques.open_session, edge=self.replica.name), request, call)


@asynccontextmanager
async def two_edges() -> AsyncIterator[tuple[Edge, Edge]]:
    contents = Contents(2)
    one, two = Edge(contents, "one"), Edge(contents, "two")
    async with running(one.replica, two.replica):
        spec = pb.ClaimSpec(node="n", create_time=to_timestamp(1), uid="u")
        claim = pb.ClaimIndicesRequest(domain="d", clique="c", claims=[spec])
        assert (await one.command_handler.handle(cliques.claim_indices, claim, CALL)).outcome == pb.OUTCOME_DONE
        yield one, two


def opening(session: str = "s") -> pb.OpenSessionRequest:
    command_id = uuid7(T0, RNG)
    return pb.OpenSessionRequest(command_id=command_id, domain="d", clique="c", node="n", uid="u", session=session)


async def test_a_repeat_through_another_replica_has_the_first_outcome() -> None:
    async with two_edges() as (one, two):
        request = opening()
        first = await one.open(request)
        assert first.outcome == pb.OUTCOME_DONE
        assert await two.open(request) == first
        member = one.replica.state(one.replica.partition_for("cliques", "d")).members.rows["d/c/n"]
        assert (member.session, member.edge) == ("s", "one")


async def test_two_replicas_at_once_give_one_outcome() -> None:
    """Each replica appends before it has folded the record of the other."""
    async with two_edges() as (one, two):
        request = opening()
        first, second = await asyncio.gather(one.open(request), two.open(request))
        assert (first.outcome, second) == (pb.OUTCOME_DONE, first)


async def test_another_session_under_the_same_id_is_refused() -> None:
    async with two_edges() as (one, two):
        request = opening()
        await one.open(request)
        other = pb.OpenSessionRequest()
        other.CopyFrom(request)
        other.session = "t"
        assert "was used for another command" in (await two.open(other)).reason
        assert (await two.open(request, Call("?stranger", 5.0))).outcome == pb.OUTCOME_REFUSED


async def test_an_id_of_another_kind_of_command_is_refused() -> None:
    async with two_edges() as (one, two):
        request = opening()
        command_id = request.command_id
        releases = [pb.ReleaseSpec(node="n")]
        release = pb.ReleaseIndicesRequest(command_id=command_id, domain="d", clique="c", releases=releases)
        await one.command_handler.handle(cliques.release_indices, release, CALL)
        assert (await two.open(request)).outcome == pb.OUTCOME_REFUSED

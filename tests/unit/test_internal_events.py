"""Common code of drivers: waiting for a turn and for the folds, and appends with an unknown outcome."""

from __future__ import annotations

import asyncio

import pytest

from drivers.internal_events import RANK_MAX, TURN_S, InternalEvents
from eventstore.errors import AppendRefused, AppendUnknown, LogMismatch, LogUnavailable
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from schemas.events import OutboxAcknowledged
from tests.support.memory_log import MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import T0, fact
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock


class FixedRank(Ranks):
    """Ranks in which this replica always has one rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def rank(self, subject: str, role: str) -> int:
        return self._rank

    def is_alive(self, replica: str) -> bool:
        return True

    def all_support(self, topic: str, version: int) -> bool:
        return True


def toy() -> Replica:
    return toy_replica(MemoryLog())


def internal_events_of(replica: Replica, rank: int) -> InternalEvents:
    return InternalEvents(replica, FixedRank(rank), "api")


@pytest.mark.parametrize("rank", [0, 1, 2, 5])
async def test_the_wait_for_a_turn_grows_with_the_rank(rank: int) -> None:
    async with running(replica := toy()):
        loop, internal_events = asyncio.get_running_loop(), internal_events_of(replica, rank)
        began_s = loop.time()
        assert not await internal_events.wait_for_turn("subject", FLEET_0, lambda: False)
        assert loop.time() - began_s == pytest.approx(rank * TURN_S)
        assert internal_events.turns == {min(rank, RANK_MAX): 1}


async def test_a_turn_is_dropped_when_another_replica_meets_the_need() -> None:
    async with running(replica := toy()):
        internal_events = internal_events_of(replica, 2)
        position = replica.position(FLEET_0)

        def is_met() -> bool:
            return replica.position(FLEET_0) > position

        turn = asyncio.ensure_future(internal_events.wait_for_turn("subject", FLEET_0, is_met))
        await asyncio.sleep(1.5 * TURN_S)
        await replica.append_event(FLEET_0, b"", fact("a"), timeout_s=5.0)
        assert await turn
        assert not internal_events.turns


@pytest.mark.parametrize("error", [AppendUnknown, AppendRefused, LogUnavailable])
def test_a_failed_append_is_counted(error: type[Exception]) -> None:
    assert run_virtual(_append_that_raises(error("no answer"))) == (False, 1)


def test_an_append_to_another_log_raises() -> None:
    with pytest.raises(LogMismatch, match="another log"):
        run_virtual(_append_that_raises(LogMismatch("another log")))


async def _append_that_raises(error: Exception) -> tuple[bool, int]:
    log = MemoryLog()
    log.failures.append_error = error
    internal_events = internal_events_of(toy_replica(log), 0)
    event = OutboxAcknowledged(internal_envelope("zones/0", "forwarder", T0), 7)
    return await internal_events.append(FLEET_0, "zones/0", event), internal_events.failures

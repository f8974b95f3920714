"""The status of a command by its id: a command reported as without effect never takes effect later."""

from __future__ import annotations

import asyncio

import pytest

from commands.queries.command_status import CommandStatus
from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.log import FLEET_0
from schemas.api import dpuplane_pb2 as pb
from tests.support.memory_log import Contents, MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import T0, Issuer

pytestmark = pytest.mark.virtual_clock


async def test_a_command_is_unknown_while_the_log_is_unreachable() -> None:
    loop = asyncio.get_running_loop()

    def now_ms() -> int:
        return T0 + round(loop.time() * 1_000)

    log, issuer = MemoryLog(Contents(4), now_ms), Issuer()
    command, never = issuer.set("a", now_ms=now_ms()), issuer.id(now_ms())
    async with running(replica := toy_replica(log, now_ms=now_ms, topics=TOPICS.deciding)):
        command_status = CommandStatus(replica, now_ms)
        log.failures.is_away = True
        log.contents.add(FLEET_0, now_ms(), b"key", encode(command))
        await asyncio.sleep(200)
        answers = [command_status.answer(each) for each in (command.envelope.command_id, never)]
        assert [answer.outcome for answer in answers] == [pb.OUTCOME_UNKNOWN, pb.OUTCOME_UNKNOWN]
        log.failures.is_away = False
        await asyncio.sleep(10)
        answers = [command_status.answer(each) for each in (command.envelope.command_id, never)]
        assert [answer.outcome for answer in answers] == [pb.OUTCOME_DONE, pb.OUTCOME_REFUSED]


async def test_a_command_is_unknown_while_a_partition_is_halted() -> None:
    """The records after the halt are not folded, even if the partition was read to its end before."""
    loop = asyncio.get_running_loop()

    def now_ms() -> int:
        return T0 + round(loop.time() * 1_000)

    log, never = MemoryLog(Contents(4), now_ms), Issuer().id(now_ms())
    async with running(replica := toy_replica(log, now_ms=now_ms, topics=TOPICS.deciding)):
        command_status = CommandStatus(replica, now_ms)
        await asyncio.sleep(200)
        assert command_status.answer(never).outcome == pb.OUTCOME_REFUSED
        replica.folded(FLEET_0).halted = "a bug"
        answer = command_status.answer(never)
        assert (answer.outcome, "fleet/0" in answer.reason) == (pb.OUTCOME_UNKNOWN, True)

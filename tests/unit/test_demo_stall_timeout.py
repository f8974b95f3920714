"""The demo waits as long as there is progress, prints its progress, and fails with one sentence."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from deploy.demo import load
from deploy.demo.load import DemoClient, DemoFailed, run_all
from deploy.demo.progress import LINE_S, Display
from deploy.demo.stall_timeout import CHECKS_MIN, STALL_S, StallTimeout
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import now_ms


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slow_plane_is_waited_for_while_it_makes_progress() -> None:
    clock = Clock()
    stall_timeout = StallTimeout(clock)
    for look in range(10 * CHECKS_MIN):
        clock.now += STALL_S * 0.9
        stall_timeout.check("DPUs up to date", 0, 200_000, look // 2)


def test_a_plane_without_progress_fails_the_demo_with_the_count() -> None:
    clock = Clock()
    stall_timeout = StallTimeout(clock)
    stall_timeout.check("DPUs up to date", 5, 200_000, 1)
    with pytest.raises(DemoFailed, match=r"^DPUs up to date: 5 of 200,000, without progress for 12\d s$"):
        for _ in range(1000):
            clock.now += 1
            stall_timeout.check("DPUs up to date", 5, 200_000, 1)


def test_a_blocked_loop_does_not_count_as_a_stalled_plane() -> None:
    clock = Clock()
    stall_timeout = StallTimeout(clock)
    for _ in range(CHECKS_MIN):
        clock.now += STALL_S * 10
        stall_timeout.check("DPUs up to date", 5, 200_000, 1)


def test_counts_are_printed_without_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Display(clock) as display, display.step("nodes joining", 2_000) as step:
        step.advance(10)
        clock.now += LINE_S
        step.advance(1_240)
        step.advance()
        clock.now += LINE_S
        step.set(1_999)
    assert capsys.readouterr().err.splitlines() == [
        "nodes joining (2,000)",
        "nodes joining: 1,250 of 2,000 after 5 s",
        "nodes joining: 1,999 of 2,000 after 10 s",
        "nodes joining: 2,000 of 2,000 after 10.0 s",
    ]


async def test_only_the_first_of_many_failures_is_raised() -> None:
    async def fail(number: int) -> None:
        raise DemoFailed(f"JoinNodes: refused, number {number}")

    with pytest.raises(DemoFailed, match=r"^JoinNodes: refused, number \d+$"):
        await run_all(fail, range(1_000))


class SlowServer:
    """A server without a definite answer before the last of `attempts` calls. `ids` has the command id of each call."""

    def __init__(self, *, attempts: int) -> None:
        self.ids: list[str] = []
        self._attempts = attempts

    async def join(self, request: Any, context: Any) -> pb.CommandResult:
        self.ids.append(request.command_id)
        if len(self.ids) == 1:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")
        outcome = pb.OUTCOME_DONE if len(self.ids) >= self._attempts else pb.OUTCOME_UNKNOWN
        return pb.CommandResult(command_id=request.command_id, outcome=outcome, reason="the log was busy")


@asynccontextmanager
async def asked(servicer: SlowServer) -> AsyncIterator[DemoClient]:
    server = grpc.aio.server()
    join = grpc.unary_unary_rpc_method_handler(
        servicer.join, pb.JoinNodesRequest.FromString, pb.CommandResult.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("dpuplane.v1.Commands", {"JoinNodes": join}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with DemoClient(f"127.0.0.1:{port}", now_ms=now_ms, rng=random.Random(1)) as api:
            yield api
    finally:
        await server.stop(0)


async def test_a_command_without_an_answer_is_sent_again_under_its_id() -> None:
    late = SlowServer(attempts=3)
    async with asked(late) as api:
        answer = await api.command("JoinNodes", pb.JoinNodesRequest(zone="z"))
    assert answer.outcome == pb.OUTCOME_DONE
    assert len(late.ids) == 3 and len(set(late.ids)) == 1 and late.ids[0]


async def test_a_command_that_is_never_answered_ends_the_demo_with_one_sentence() -> None:
    async with asked(SlowServer(attempts=100)) as api:
        with pytest.raises(DemoFailed, match=rf"^JoinNodes: no response in {load.TRIES} tries .*: the log was busy$"):
            await asyncio.wait_for(api.command("JoinNodes", pb.JoinNodesRequest(zone="z")), 30)

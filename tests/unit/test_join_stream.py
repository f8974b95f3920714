"""The summary of a stream of joins counts everything and stays below the message limit of gRPC clients."""

from __future__ import annotations

from commands.handlers.join_stream import _SummaryBuilder
from schemas.api import dpuplane_pb2 as pb

MIB = 1024 * 1024
LONG_REASON = "name: " + "x" * 150


def refused(request: int) -> pb.CommandResult:
    items = [
        pb.ItemResult(name=f"{request}-{item}-{'n' * 240}", outcome=pb.OUTCOME_REFUSED, reason=LONG_REASON)
        for item in range(1_000)
    ]
    return pb.CommandResult(
        command_id=f"id-{request}", outcome=pb.OUTCOME_REFUSED, items=items, reason="1000 items refused"
    )


def test_a_summary_of_refusals_stays_below_the_message_limit() -> None:
    tally = _SummaryBuilder()
    for request in range(100):
        tally.add(1_000, refused(request), "log")
    summary = tally.finished("log")
    assert summary.ByteSize() < 4 * MIB, "the default message limit of a gRPC client"
    assert (summary.requests, summary.nodes, summary.refused, summary.done) == (100, 100_000, 100_000, 0)
    assert [answer.command_id for answer in summary.refusals] == [f"id-{request}" for request in range(100)]
    assert list(summary.refusals[0].items) == list(refused(0).items), "the first refusal must have all its items"
    assert sum(len(answer.items) for answer in summary.refusals) == 1_000


def test_items_are_included_up_to_a_limit_over_all_results() -> None:
    tally = _SummaryBuilder()
    for request in range(3):
        answer = refused(request)
        del answer.items[400:]
        tally.add(400, answer, "log")
        assert len(answer.items) == 400, "the result of the caller must not be modified"
    assert [len(answer.items) for answer in tally.finished("log").refusals] == [400, 400, 200]


def test_a_summary_of_overlong_ids_stays_below_the_message_limit() -> None:
    tally = _SummaryBuilder()
    for request in range(100):
        tally.add(
            1,
            pb.CommandResult(command_id=f"{request:03}" + "x" * MIB, outcome=pb.OUTCOME_REFUSED, reason="no id"),
            "log",
        )
    summary = tally.finished("log")
    assert summary.ByteSize() < 4 * MIB
    assert [answer.command_id[:4] for answer in summary.refusals] == [f"{request:03}x" for request in range(100)]

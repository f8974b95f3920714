"""The summary of a stream of joins: it counts everything, and stays small enough to be received."""

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


def test_a_summary_of_nothing_but_refusals_can_be_received() -> None:
    tally = _SummaryBuilder()
    for request in range(100):
        tally.add(1_000, refused(request), "log")
    summary = tally.finished("log")
    assert summary.ByteSize() < 4 * MIB, "what a gRPC client takes unless told otherwise"
    assert (summary.requests, summary.nodes, summary.refused, summary.done) == (100, 100_000, 100_000, 0)
    assert [answer.command_id for answer in summary.refusals] == [f"id-{request}" for request in range(100)]
    assert list(summary.refusals[0].items) == list(refused(0).items), "the first are whole"
    assert sum(len(answer.items) for answer in summary.refusals) == 1_000


def test_items_are_kept_up_to_their_limit_across_answers() -> None:
    tally = _SummaryBuilder()
    for request in range(3):
        answer = refused(request)
        del answer.items[400:]
        tally.add(400, answer, "log")
        assert len(answer.items) == 400, "an answer is its caller's"
    assert [len(answer.items) for answer in tally.finished("log").refusals] == [400, 400, 200]


def test_a_summary_of_ids_that_are_none_can_be_received() -> None:
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

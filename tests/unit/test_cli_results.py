"""Results of several commands merged into one: the overall outcome, and the outcome of each name."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from deploy.cli.shared.errors import REFUSED, UNKNOWN
from deploy.cli.shared.results import exit_status, finish, merged_result
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name


def merged(*outcomes: str) -> pb.CommandResult:
    """The merged result of commands about one name each: n0, n1 and so on."""
    return merged_result(
        [([f"n{i}"], pb.CommandResult(outcome=f"OUTCOME_{outcome.upper()}")) for i, outcome in enumerate(outcomes)]
    )


@pytest.mark.parametrize(
    ("outcomes", "headline", "status"),
    [
        (("refused", "done"), "done", REFUSED),
        (("refused", "unchanged"), "unchanged", REFUSED),
        (("refused", "refused"), "refused", REFUSED),
        (("unchanged", "done"), "done", 0),
        (("unchanged", "unchanged"), "unchanged", 0),
        (("done", "held", "refused"), "held", REFUSED),
        (("done", "unknown", "held"), "unknown", UNKNOWN),
    ],
)
def test_a_merged_result_is_refused_only_if_every_part_is(
    outcomes: tuple[str, ...], headline: str, status: int
) -> None:
    answer = merged(*outcomes)
    assert (outcome_name(answer.outcome), exit_status(answer)) == (headline, status)
    told = {item.name: outcome_name(item.outcome) for item in answer.items}
    assert [told.get(f"n{i}", headline) for i in range(len(outcomes))] == list(outcomes)


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (
            pb.CommandResult(
                outcome=pb.OUTCOME_REFUSED,
                reason="node: no",
                items=[pb.ItemResult(name="n1", outcome=pb.OUTCOME_REFUSED, reason="node: no")],
            ),
            ["refused: node: no"],
        ),
        (
            pb.CommandResult(
                outcome=pb.OUTCOME_DONE, items=[pb.ItemResult(name="n1", outcome=pb.OUTCOME_REFUSED, reason="node: no")]
            ),
            ["done", "  n1: refused: node: no"],
        ),
        (
            pb.CommandResult(
                outcome=pb.OUTCOME_REFUSED,
                reason="node: no",
                items=[
                    pb.ItemResult(name=name, outcome=pb.OUTCOME_REFUSED, reason="node: no") for name in ("n1", "n2")
                ],
            ),
            ["refused: node: no", "  n1: refused: node: no", "  n2: refused: node: no"],
        ),
    ],
)
def test_the_sentence_about_the_only_item_is_printed_once(answer: pb.CommandResult, printed: list[str]) -> None:
    @click.command()
    def command() -> None:
        finish(answer, "table")

    assert CliRunner().invoke(command).output.splitlines() == printed

"""A list that is cut in the output says how many more there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import pytest
from click.testing import CliRunner

from deploy.cli.fleet import dpu_selection, dry_runs, inventory
from deploy.cli.operations import verify
from schemas.api import dpuplane_pb2 as pb


def printed(prints: Callable[[], object]) -> tuple[list[str], list[str]]:
    """The stdout and stderr lines of a command that prints this message."""
    ran = CliRunner().invoke(click.command()(prints))
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.stdout.splitlines(), ran.stderr.splitlines()


@pytest.mark.parametrize(("count", "last"), [(20, "  z/d19 (Ready)"), (23, "  and 3 more")])
def test_dpus_that_are_selected(count: int, last: str) -> None:
    found = [pb.Dpu(dpu=f"d{number}", zone="z", phase="Ready") for number in range(count)]
    lines = [*map(dpu_selection._line, found)]
    _, asked = printed(lambda: dpu_selection.confirm_selection(f"retry {count} DPUs", lines, yes=True))
    assert (asked[0], asked[-1], len(asked)) == (f"retry {count} DPUs:", last, min(count, 21) + 1)


@pytest.mark.parametrize(("count", "last"), [(50, "log d49"), (53, "and 3 more lines; 53 differences in total")])
def test_differences_of_a_verification(count: int, last: str) -> None:
    _, said = printed(lambda: verify._end([f"log d{number}" for number in range(count)]))
    assert said[0] == "log d0"
    assert said[-1].startswith(last) and len(said) == min(count, 51)


@pytest.mark.parametrize(
    ("count", "last"), [(20, "refused: n19 no"), (99, "and 79 more"), (100, "and at least 80 more")]
)
def test_refusals_of_an_import(count: int, last: str) -> None:
    items = [pb.ItemResult(name=f"n{number}", outcome=pb.OUTCOME_REFUSED, reason="no") for number in range(count)]
    refusals = [pb.CommandResult(outcome=pb.OUTCOME_REFUSED, items=[item]) for item in items]
    _, said = printed(lambda: inventory._finish(pb.ImportSummary(refusals=refusals), "json"))
    assert (said[0], said[-1], len(said)) == ("refused: n0 no", last, min(count, 21 if count > 20 else 20))


def dry_run(names: Sequence[str], *effects: pb.TableEffect) -> list[str]:
    answer = pb.CommandResult(outcome=pb.OUTCOME_DONE, dry_run=pb.DryRun(effects=effects))
    return printed(lambda: dry_runs.finish_dry_run([(names, answer)], "table"))[0]


@pytest.mark.parametrize(("count", "said"), [(3, "n0, n1, n2"), (5, "n0, n1, n2 and 2 more")])
def test_names_of_a_dry_run(count: int, said: str) -> None:
    assert dry_run([f"n{number}" for number in range(count)])[0] == f"{said}: would be done"


@pytest.mark.parametrize(
    ("count", "listed", "said"), [(20, 20, "z19:"), (30, 30, "z19 and 10 more:"), (9, 4, "z3 and 5 more:")]
)
def test_zones_of_a_dry_run(count: int, listed: int, said: str) -> None:
    """The server may list fewer zones than it counts."""
    effect = pb.TableEffect(zones=[f"z{number}" for number in range(listed)], zone_count=count)
    assert f"{said} addresses that become allowed" in dry_run(["n"], effect)[1]


@pytest.mark.parametrize(("count", "more"), [(20, []), (25, ["+ and 5 more prefixes"])])
def test_prefixes_of_a_dry_run(count: int, more: list[str]) -> None:
    rule = pb.RuleEffect(added=[f"10.0.0.{number}/32" for number in range(count)], prefixes_added=count)
    lines = dry_run(["n"], pb.TableEffect(zones=["z"], zone_count=1, rules=[rule]))
    first = lines.index("      + 10.0.0.0/32")
    assert [line.strip() for line in lines[first + 20 :]] == more

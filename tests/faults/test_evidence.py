"""A fault of a pair without an effect is detected, even if both faults share a count; so is an unanswered command."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest

from eventstore.log import FLEET_0
from schemas.api import dpuplane_pb2 as pb
from tests.faults.clients import GAVE_UP, Client
from tests.faults.fault import Fault
from tests.faults.judging import Verdict
from tests.faults.report import Report
from tests.faults.run import TrialResult, shown
from tests.faults.table import FAULTS
from tests.faults.trials import HIDDEN_IN_A_ROW, Trials
from tests.faults.workload import Asked, Workload
from tests.simulation.history import History
from tests.support.certs import CertIssuer

ONE, OTHER = FAULTS["broker isolated"], FAULTS["packets lost"]
BOTH, HIDDEN = {"one": 1, "other": 1}, {"one": 1, "other": 0}


def test_each_fault_of_a_pair_shows_itself() -> None:
    found = shown([ONE, OTHER], [{"packets dropped": 0}, {"packets dropped": 7}])
    assert found == {"packets dropped (broker isolated)": 0, "packets dropped (packets lost)": 7}


def test_a_fault_that_counted_nothing_is_none() -> None:
    assert shown([ONE], [{}]) == {"trace": 0}
    assert shown([ONE], [{"packets dropped": 3}]) == {"packets dropped": 3}


def test_a_fault_that_is_named_and_shows_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    report, trying = _trying([_tried(HIDDEN)])
    asyncio.run(trying.named([(ONE, OTHER)]))
    assert report.failed == 1
    assert "nothing shows that it happened: no other" in capsys.readouterr().out


def test_a_pair_that_is_drawn_and_hides_one_of_its_two_makes_room_for_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report, trying = _trying([_tried(HIDDEN), _tried(BOTH), _tried(BOTH)])
    asyncio.run(trying.drawn(cycle([(ONE, OTHER)]), 1))
    assert report.failed == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["hidden", "ok"]


def test_a_pair_that_hides_something_and_is_wrong_fails() -> None:
    report, trying = _trying([_tried(HIDDEN, "I1: lost")])
    asyncio.run(trying.drawn(cycle([(ONE, OTHER)]), 1))
    assert report.failed == 1


def test_a_command_that_nobody_answered_fails_also_in_a_pair_that_hides_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = _tried(HIDDEN)._replace(outcomes=Counter({GAVE_UP: 2}))
    report, trying = _trying([silent])
    asyncio.run(trying.drawn(cycle([(ONE, OTHER)]), 1))
    assert report.failed == 1
    assert "2 commands, or repeats, had no answer in 180 s" in capsys.readouterr().out


async def test_a_client_that_gives_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.clients.PATIENCE_S", 0.1)
    cert_files, rng = CertIssuer(tmp_path).issue("operator/ann"), random.Random(1)
    workload = Workload(rng, 1)
    client = Client("c", ["127.0.0.1:9"], History(), cert_files=cert_files, rng=rng, workload=workload, pause_s=1.0)
    await client.ask(Asked("ThawWrites", pb.ThawWritesRequest(zone="z"), FLEET_0))
    await client.close()
    assert client.counts[GAVE_UP] == 1


def test_pairs_that_only_hide_fail_in_the_end() -> None:
    report, trying = _trying([_tried(HIDDEN)] * (HIDDEN_IN_A_ROW + 1))
    asyncio.run(trying.drawn(cycle([(ONE, OTHER)]), 1))
    assert report.failed == 1


def _trying(outcomes: Sequence[TrialResult]) -> tuple[Report, Trials]:
    report, following = Report(), iter(outcomes)

    async def attempt(_: Sequence[Fault]) -> TrialResult:
        return next(following)

    return report, Trials(attempt, report)


def _tried(evidence: dict[str, int], *faults: str) -> TrialResult:
    verdict = Verdict(list(faults), 0, 0, 0.0)
    return TrialResult((ONE.name, OTHER.name), evidence, Counter(), 5, [0.0], 0.0, verdict, [])

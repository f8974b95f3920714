"""Missing evidence of a fault is detected, also in a pair whose faults count the same events; so are lost answers."""

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
from tests.faults.run import TrialResult, merged_evidence
from tests.faults.table import FAULTS
from tests.faults.trials import HIDDEN_IN_A_ROW, Trials
from tests.faults.workload import Call, Workload
from tests.simulation.history import History
from tests.support.certs import CertIssuer

FIRST, SECOND = FAULTS["broker isolated"], FAULTS["packets lost"]
BOTH_SHOWN, ONE_HIDDEN = {"one": 1, "other": 1}, {"one": 1, "other": 0}


def test_each_fault_of_a_pair_counts_its_own_evidence() -> None:
    found = merged_evidence([FIRST, SECOND], [{"packets dropped": 0}, {"packets dropped": 7}])
    assert found == {"packets dropped (broker isolated)": 0, "packets dropped (packets lost)": 7}


def test_a_fault_without_counts_has_the_evidence_zero() -> None:
    assert merged_evidence([FIRST], [{}]) == {"trace": 0}
    assert merged_evidence([FIRST], [{"packets dropped": 3}]) == {"packets dropped": 3}


def test_a_named_fault_without_evidence_fails(capsys: pytest.CaptureFixture[str]) -> None:
    report, trials = _trials([_result(ONE_HIDDEN)])
    asyncio.run(trials.run_named([(FIRST, SECOND)]))
    assert report.failed == 1
    assert "no evidence of the fault: no other" in capsys.readouterr().out


def test_a_random_pair_with_a_hidden_fault_is_replaced_by_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report, trials = _trials([_result(ONE_HIDDEN), _result(BOTH_SHOWN), _result(BOTH_SHOWN)])
    asyncio.run(trials.run_drawn(cycle([(FIRST, SECOND)]), 1))
    assert report.failed == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["hidden", "ok"]


def test_a_random_pair_with_a_hidden_fault_and_a_lost_command_fails() -> None:
    report, trials = _trials([_result(ONE_HIDDEN, "I1: lost")])
    asyncio.run(trials.run_drawn(cycle([(FIRST, SECOND)]), 1))
    assert report.failed == 1


def test_an_unanswered_command_fails_also_in_a_pair_with_a_hidden_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unanswered = _result(ONE_HIDDEN)._replace(outcomes=Counter({GAVE_UP: 2}))
    report, trials = _trials([unanswered])
    asyncio.run(trials.run_drawn(cycle([(FIRST, SECOND)]), 1))
    assert report.failed == 1
    assert "2 commands, or repeats, had no answer within 180 s" in capsys.readouterr().out


async def test_a_client_counts_the_commands_that_it_gave_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.clients.COMMAND_S", 0.1)
    cert_files, rng = CertIssuer(tmp_path).issue("operator/ann"), random.Random(1)
    workload = Workload(rng, 1)
    client = Client("c", ["127.0.0.1:9"], History(), cert_files=cert_files, rng=rng, workload=workload, pause_s=1.0)
    await client.send(Call("ThawWrites", pb.ThawWritesRequest(zone="z"), FLEET_0))
    await client.close()
    assert client.counts[GAVE_UP] == 1


def test_too_many_pairs_with_a_hidden_fault_in_a_row_fail() -> None:
    report, trials = _trials([_result(ONE_HIDDEN)] * (HIDDEN_IN_A_ROW + 1))
    asyncio.run(trials.run_drawn(cycle([(FIRST, SECOND)]), 1))
    assert report.failed == 1


def _trials(outcomes: Sequence[TrialResult]) -> tuple[Report, Trials]:
    report, results = Report(), iter(outcomes)

    async def run_trial(_: Sequence[Fault]) -> TrialResult:
        return next(results)

    return report, Trials(run_trial, report)


def _result(evidence: dict[str, int], *faults: str) -> TrialResult:
    verdict = Verdict(list(faults), 0, 0, 0.0)
    return TrialResult((FIRST.name, SECOND.name), evidence, Counter(), 5, [0.0], 0.0, verdict, [])

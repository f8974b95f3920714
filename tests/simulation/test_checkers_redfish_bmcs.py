"""The checkers of BMCs that speak Redfish, on written steps."""

from __future__ import annotations

import pytest

from projections.zones.rows import Dpu
from schemas import events as e
from tests.simulation.checkers import redfish_bmcs
from tests.simulation.history import BmcCalled, FinalBmc, UpdateCompleted
from tests.support.written_run import WrittenRun
from tests.support.written_steps import WrittenSteps

LOG = WrittenRun()
PHASE = "OS Installing"


def dpu(attempt: int, *, entered: int = 4, disowned: int = 4, image: str = "i") -> Dpu:
    return Dpu("z", 0, "", "", "redfish://d", PHASE, attempt, entered, 1, 1, image=image, disowned=disowned)


def installed(steps: WrittenSteps, row: Dpu, *, succeeds: bool = False) -> None:
    """An attempt at an installation, which begins with this row."""
    steps.add(e.StepStarted(LOG.stated(), "z", "d", PHASE, row.attempt, "p#1"), dpus={"d": row})
    if succeeds:
        steps.add(e.StepSucceeded(LOG.stated(), "z", "d", PHASE, row.attempt, {}), dpus={"d": row})


def updates(first: Dpu, second: Dpu, *, has_completed: bool = True) -> list[str]:
    """The report about two attempts that each tell the BMC to install."""
    calls = [BmcCalled("d", row.attempt, "install") for row in (first, second)]
    steps = WrittenSteps(*calls, FinalBmc("d", "i", is_busy=False))
    if has_completed:
        steps.log.history.add(UpdateCompleted("d", first.attempt))
    installed(steps, first)
    installed(steps, second)
    return list(redfish_bmcs.check_updates(steps.evidence()))


def test_an_update_that_has_completed_is_not_begun_again() -> None:
    twice = ["d was told to install again by attempt 6, but the update of 5 had completed"]
    assert updates(dpu(5), dpu(6)) == twice
    assert not updates(dpu(5), dpu(6), has_completed=False), "it was lost"
    assert not updates(dpu(5), dpu(6, disowned=5)), "the log has a failure of it"
    assert not updates(dpu(5), dpu(9, entered=8, disowned=4)), "another stay in the phase"


def images(runs: str, *later: int, is_busy: bool = False, succeeds: bool = True) -> list[str]:
    """The report about a card at rest that runs this image. Attempt 5 has installed i, and later ones were begun."""
    calls = [BmcCalled("d", attempt, "install") for attempt in (5, *later)]
    steps = WrittenSteps(*calls, BmcCalled("d", 99, "reboot"), FinalBmc("d", runs, is_busy))
    installed(steps, dpu(5), succeeds=succeeds)
    return list(redfish_bmcs.check_images(steps.evidence()))


@pytest.mark.parametrize(("runs", "shown"), [("j", "j"), ("", "no image")])
def test_a_card_runs_the_image_that_was_installed_last(runs: str, shown: str) -> None:
    assert images("i") == []
    assert images(runs) == [f"d runs {shown}, and attempt 5 reported i"]
    assert images(runs, 6) == [], "a later update has begun, and has not succeeded"
    assert images(runs, succeeds=False) == []


def test_no_update_runs_after_its_end_was_reported() -> None:
    assert images("i", is_busy=True) == ["d still runs an update, which attempt 5 reported as done"]

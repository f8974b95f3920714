"""Staged changes compared with the lists that devices had: a correct course, and wrong ones with one fault each."""

from __future__ import annotations

import pytest

from eventstore.log import FLEET_0
from projections.fleet.fold import FleetFold2
from projections.fleet.tables import zone_table as tables
from projections.staging.course import PATIENCE_MS
from schemas import events as e
from tests.simulation.checkers import Evidence, devices, staging
from tests.simulation.history import TableInstalled
from tests.support.written_run import ZONES_0, WrittenRun


class StagedRun:
    """A zone with the DPUs d0 and d1, and a staged drop of one of its nodes. The first stage has d0."""

    def __init__(self) -> None:
        self.run = run = WrittenRun()
        for joined in (run.join("a", "b", "c", "d"), run.join("w", labels={"app": "web"})):
            offset = run.write(ZONES_0, joined)
            run.write(FLEET_0, run.forward(joined, self._mark(), offset + 1))
        run.write(FLEET_0, e.FoldVersionUpgraded(run.stated("fold"), FleetFold2.version))
        rule = ("p", False, 5, "drop", "any", list[int](), {"app": "web"}, dict[str, str]())
        self.change = 1 + run.write(FLEET_0, e.PolicyStaged(run.said(), *rule, ["1", "100%"], 0, "0"))
        run.write(FLEET_0, e.StageDpusNamed(run.stated("p"), self.change, 1, 2, ["z"], ["d0"]))

    def _mark(self) -> int:
        return self.run.evidence().fleet.marks.get(0, 0)

    def observe(self, stage: int, named: int = 0) -> None:
        """A driver saw that no DPU waits."""
        said = self.run.stated("p")
        self.run.write(FLEET_0, e.StageObserved(said, self.change, stage, 2, named, 0, [], []))

    def request(self, verb: str) -> None:
        self.run.write(FLEET_0, e.StagesRequested(self.run.said(), "p", verb))

    def install(self, device: str, stage: int) -> None:
        """A device installs the present table of a stage."""
        table = tables.table(self.run.evidence().fleet, "z", stage)
        self.run.history.add(TableInstalled(self.run.now_s + 0.5, "z", device, 0, 1, table.version, table.digest))

    def evidence(self) -> Evidence:
        return self.run.evidence()


@pytest.fixture
def made() -> StagedRun:
    return StagedRun()


def faults(made: StagedRun) -> list[str]:
    run = made.evidence()
    return [*staging.check_stages(run), *staging.check_order(run), *devices.check_tables(run)]


def test_dpus_get_the_change_with_their_stage(made: StagedRun) -> None:
    made.install("d0", 0)
    made.install("d1", 0)
    made.observe(0, named=1)
    made.install("d0", 1)
    joined = made.run.join("late", labels={"app": "web"})
    offset = made.run.write(ZONES_0, joined)
    made.run.write(FLEET_0, made.run.forward(joined, made.evidence().fleet.marks[0], offset + 1))
    made.install("d0", 1)
    made.install("d1", 0)
    made.observe(1)
    made.install("d0", 0)
    made.install("d1", 0)
    made.observe(2)
    made.install("d1", 0)
    run = made.evidence()
    assert run.fleet.staged is not None and run.fleet.staged.result == "complete"
    assert len(run.canaries["z"]) == 2
    assert not faults(made) and not [*staging.check_ended(run)]


def test_a_dpu_beyond_the_released_stage_must_not_have_the_change(made: StagedRun) -> None:
    made.observe(0, named=1)
    made.install("d1", 1)
    assert [each.partition(" had version")[0] for each in faults(made)] == ["d1"]
    assert "before the release of its stage" in faults(made)[0]


def test_a_dpu_of_a_released_stage_must_not_get_the_list_without_the_change(made: StagedRun) -> None:
    made.observe(0, named=1)
    joined = made.run.join("late")
    offset = made.run.write(ZONES_0, joined)
    made.run.write(FLEET_0, made.run.forward(joined, made.evidence().fleet.marks[0], offset + 1))
    made.install("d0", 0)
    assert "without a change after the release of its stage" in faults(made)[0]


def test_after_an_undo_all_dpus_have_the_list_of_before(made: StagedRun) -> None:
    made.observe(0, named=1)
    made.install("d0", 1)
    made.request("undo")
    made.install("d0", 1)
    made.install("d1", 0)
    made.observe(1)
    made.install("d0", 0)
    assert not faults(made)


def test_a_change_that_nothing_holds_up_must_go_on(made: StagedRun) -> None:
    made.observe(0, named=1)
    made.run.now_s += PATIENCE_MS / 1_000 + staging.IDLE_S + 1
    made.run.write(FLEET_0, e.WritesThawed(made.run.said(), "z"))
    made.install("d0", 1)
    assert [*staging.check_ended(made.evidence())]
    made.request("pause")
    assert not [*staging.check_ended(made.evidence())]

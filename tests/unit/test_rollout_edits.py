"""Rollouts of DPUSets whose flavor is edited in place: its name stays, and its content changes."""

from __future__ import annotations

from projections.resources import kinds
from tests.unit.test_rollouts import installed, step


def test_a_flavor_that_is_edited_in_place_is_installed_in_waves_and_undone_by_applying_the_earlier_one() -> None:
    fleet = installed(3, waves="1")
    before = [fleet.dpu(number).released for number in range(3)]
    fleet.log.apply(kinds.DPU_FLAVOR, "flavor", '{"sysctl":{"parameters":["a=1"]}}')
    fleet.plan()
    assert (fleet.rollout.revision, fleet.rollout.wave) == (2, 0)
    assert step(fleet) == [0]
    assert fleet.dpu(0).released != before[0]
    outcome = fleet.request("undo")
    assert outcome.code == "refused"
    assert outcome.reason == (
        "revision: 1 differs in objects that were edited in place, whose earlier spec must be applied again: "
        "revision 1 of DPUSet dpf/set"
    )
    fleet.log.apply(kinds.DPU_FLAVOR, "flavor", "{}")
    fleet.settle()
    assert [fleet.dpu(number).released for number in range(3)] == before
    assert fleet.counts == {"DONE": 3}


def test_an_edit_that_no_installation_needs_is_no_revision() -> None:
    fleet = installed(2)
    fleet.log.apply(kinds.DPU_FLAVOR, "flavor", '{"serviceReadiness":{"gate":"OperationalReady"}}')
    fleet.settle()
    assert (fleet.rollout.revision, len(fleet.rollout.revisions), fleet.counts) == (1, 1, {"DONE": 2})

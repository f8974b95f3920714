"""The checkers of rollouts find a release beyond the limit, an image that was not released, and a rollout that stands.

The limit of the fold is broken on purpose: the checker that counts by itself must see it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.derivation import Derivation
from projections.resources.rollouts import advance
from projections.resources.rollouts.planned import next_record, set_plan
from projections.resources.state import LOCAL, ResourcesState
from projections.sizes import scaled_max_unavailable
from schemas import events as e
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.simulation.checkers import rollouts
from tests.support.resources import NAMESPACE
from tests.support.rollouts import key_of, set_spec
from tests.support.written_run import ZONES_0, WrittenRun

RESOURCES_0 = Partition(RESOURCES, 0)
SET = key_of(kinds.DPU_SET, "set")
DPUS = ("h0-d0", "h1-d1", "h2-d2", "h3-d3")


class RollingLog:
    """A log with four DPUs of a DPUSet that have its image, and a DPUSet that then states another image."""

    def __init__(self, limit: int | str = 1, kind: str = "RollingUpdate") -> None:
        self.run = WrittenRun()
        self.run.write(ZONES_0, e.FoldVersionUpgraded(self.run.stated("fold"), 2))
        for image in ("one", "two"):
            self.apply(kinds.BFB, image, json.dumps({"url": f"http://images/{image}.bfb"}))
            self.observe(kinds.BFB, image, ready=True)
        self.apply(kinds.DPU_FLAVOR, "flavor", "{}")
        for number in range(len(DPUS)):
            self.apply(kinds.DPU_NODE, f"h{number}", "{}")
            self.apply(kinds.DPU_DEVICE, f"d{number}", "{}", labels=[{DPU_NODE_NAME: f"h{number}"}])
        self.strategy = {"type": kind} | ({"rollingUpdate": {"maxUnavailable": limit}} if limit else {})
        self.state_image("one")
        for name in DPUS:
            self.install(name)
        self.advance()
        self.state_image("two")

    def apply(self, kind: str, name: str, spec: str, **columns: Any) -> None:
        optional = ("uids", "generations", "created_ms", "deleted_ms", "labels", "annotations", "expected_generations")
        given = {column: columns.get(column, []) for column in optional}
        event = e.ResourcesApplied(self.run.said(), LOCAL, [kind], [NAMESPACE], [name], specs=[spec], **given)
        self.run.write(RESOURCES_0, event)

    def observe(self, kind: str, name: str, **fields: Any) -> None:
        event = e.ResourcesObserved(self.run.said(), LOCAL, [kind], [NAMESPACE], [name], [], [json.dumps(fields)])
        self.run.write(RESOURCES_0, event)

    @property
    def state(self) -> ResourcesState:
        found: ResourcesState = self.run.evidence().folded[RESOURCES_0].state
        return found

    def state_image(self, image: str) -> None:
        """State an image, and the plan that follows from it."""
        self.apply(kinds.DPU_SET, "set", set_spec(image, self.strategy))
        self.plan()

    def plan(self) -> None:
        state, derivation = self.state, Derivation()
        derivation.update(state, {**state.objects.rows, **state.observed.rows})
        plan = set_plan(state, derivation, SET)
        assert plan is not None
        end = len(self.run.records[RESOURCES_0])
        event = next_record(state, plan, end, self.run.stated())
        assert event is not None
        self.run.write(RESOURCES_0, event)

    def advance(self) -> None:
        self.run.write(RESOURCES_0, e.RolloutAdvanced(self.run.stated(), LOCAL, [NAMESPACE], ["set"]))

    def install(self, name: str, *, is_ready: bool = True) -> None:
        """The DPU has what it was released to."""
        image = self.state.dpu_rollouts.rows[key_of(kinds.DPU, name)].released
        self.observe(kinds.DPU, name, ready=is_ready, phase="Ready", installed=image, image=image)

    def found(self, check: Any = rollouts.check_limits) -> list[str]:
        return [*check(self.run.evidence())]

    @property
    def taken(self) -> int:
        return rollouts.taken_count(self.run.records)


def break_the_limit(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """The fold allows more DPUs to be unavailable than a DPUSet states."""

    def too_many(text: str, total: int) -> int:
        return scaled_max_unavailable(text, total) + more

    monkeypatch.setattr(advance, "scaled_max_unavailable", too_many)


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 2), ("50%", 2), ("51%", 3), ("0%", 1), (9, 4), (0, 1)])
def test_releases_within_the_limit_are_no_fault(limit: int | str, count: int) -> None:
    log = RollingLog(limit)
    log.advance()
    assert (log.found(), log.taken) == ([], count)
    log.install("h0-d0")
    log.advance()
    assert (log.found(), log.taken) == ([], min(4, count + 1))


@pytest.mark.parametrize("limit", [1, 2, "50%", "51%"])
def test_a_fold_that_allows_one_more_is_a_fault(limit: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_the_limit(monkeypatch, 1)
    log = RollingLog(limit)
    log.advance()
    (fault,) = log.found()
    assert fault.endswith(f"are unavailable, and {log.taken - 1} may be")


def test_a_fold_that_forgets_a_dpu_that_broke_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken DPU is unavailable before the release."""
    for is_broken in (False, True):
        log = RollingLog()
        log.install("h3-d3", is_ready=False)
        if is_broken:
            break_the_limit(monkeypatch, 1)
        log.advance()
        assert bool(log.found()) == is_broken
        assert log.taken == int(is_broken)


def test_a_release_with_the_strategy_on_delete_is_a_fault() -> None:
    log = RollingLog(0, "OnDelete")
    log.advance()
    assert (log.found(), log.taken) == ([], 0), "the fold releases nothing"
    deleted = e.ResourcesDeleted(log.run.said(), LOCAL, [kinds.DPU], [NAMESPACE], ["h1-d1"], [])
    log.run.write(RESOURCES_0, deleted)
    assert (log.found(), log.taken) == ([], 1), "a user may"
    evidence = log.run.evidence()
    steps = evidence.steps[RESOURCES_0]
    steps[-1] = steps[-1]._replace(event=e.RolloutAdvanced(log.run.stated(), LOCAL, [NAMESPACE], ["set"]))
    (fault,) = rollouts.check_limits(evidence)
    assert fault.endswith(f"1 of 4 DPUs of {SET} are unavailable, and 0 may be")


def test_an_image_that_a_zone_wants_before_its_release_is_a_fault() -> None:
    log = RollingLog()
    name, key = "h1-d1", key_of(kinds.DPU, "h1-d1")
    state = log.state
    old, new = state.dpu_rollouts.rows[key].released, state.dpu_rollouts.rows[key].wanted
    log.advance()
    log.install("h0-d0")
    log.advance()
    end = len(log.run.records[RESOURCES_0])
    for mark, (to_offset, image) in enumerate([(end - 1, old), (end, new)]):
        begin = 0 if not mark else end - 1
        about = ([key], [name], ["z"], ["h1"], [""], [f"simulated:{name}"], [image])
        log.run.write(ZONES_0, e.DpusWanted(log.run.stated(), 0, begin, to_offset, *about))
    assert not log.found(rollouts.check_releases)
    evidence = log.run.evidence()
    steps = evidence.steps[ZONES_0]
    early = steps[-1].event
    assert isinstance(early, e.DpusWanted)
    steps[-1] = steps[-1]._replace(event=replace(early, to_offset=end - 1))
    (fault,) = rollouts.check_releases(evidence)
    assert fault.endswith(f"wants {new} on {name}, released to {old}")


def test_a_rollout_that_can_advance_at_rest_is_a_fault() -> None:
    log = RollingLog()
    assert log.found(rollouts.check_advanced) == [f"{RESOURCES_0}: the rollout of {SET} has not advanced"]
    for name in DPUS:
        log.advance()
        log.install(name)
    log.advance()
    assert not log.found(rollouts.check_advanced)
    log.apply(kinds.DPU_SET, "set", set_spec("one", log.strategy))
    assert log.found(rollouts.check_advanced) == [f"{RESOURCES_0} lacks the plan of {SET}"]

"""Rollouts under random edits, failures, duplicates and plans of replicas that lag behind.

At every record: no DPU that works is taken out of service beyond the limit of its DPUSet, nothing is released while the
rollout is paused or held, and every release is to the wanted image. At the end every rollout can be completed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from projections.resources import kinds
from projections.resources.rollouts.advance import is_in_force
from projections.resources.rollouts.index import RolloutIndex, SetIndex
from projections.resources.rollouts.pins import fields_of
from projections.resources.rollouts.planned import SetPlan, next_record, set_plan
from projections.resources.state import ResourcesState
from schemas.events import RolloutAdvanced, RolloutPlanned, RolloutRequested
from tests.support.delivered_machine import DELIVERIES, DeliveredMachine
from tests.support.resources import LOCAL, NAMESPACE, DeliveredResources
from tests.support.rollouts import PLAIN, RollingFleet, key_of
from tests.support.sometimes import Sometimes, sized

SET = key_of(kinds.DPU_SET, "set")
IMAGES = st.sampled_from(["one", "two", "three"])
LIMITS = st.sampled_from([1, 2, "50%", "100%"])
WAVES = st.sampled_from(["1", "2,50%", "1,2,3", ""])
SOMETIMES = Sometimes(
    "a working DPU was released",
    "a broken DPU was released",
    "the limit left no place",
    "a rollout was held",
    "a rollout was paused",
    "an earlier image came back",
    "an old plan was refused",
    "a plan with another limit was refused",
    "a wave baked",
    "a DPU was deleted",
    "a duplicate changed nothing",
    *DELIVERIES,
)


class RolloutMachine(DeliveredMachine):
    log: DeliveredResources
    sometimes = SOMETIMES

    def __init__(self) -> None:
        super().__init__()
        self.fleet = RollingFleet(6)
        self.log = self.fleet.log
        self.hosts = 6
        self.old_plans: list[RolloutPlanned] = []
        self.limit: int | str = 1
        self.fleet.apply_set("one")
        self.fleet.settle()
        self.before = self._rows()

    def _rows(self) -> tuple[dict[str, Any], dict[str, bool]]:
        """The rows of DPUs, and whether each works with the image that it is released to."""
        rows = dict(self.log.state.dpu_rollouts.rows)
        return rows, {key: self._works(key, row.released) for key, row in rows.items()}

    def _works(self, key: str, released: str) -> bool:
        seen = self.log.state.observed.rows.get(key)
        found = json.loads(seen.observation) if seen is not None else {}
        return bool(found.get("ready")) and found.get("installed") == released

    def _check(self, *, is_deletion: bool = False) -> None:
        """Compare the rows with those before the last record."""
        (old, worked), (new, works) = self.before, self._rows()
        self.before = new, works
        changed = [key for key in new if key in old and new[key].released != old[key].released]
        assert all(new[key].released == new[key].wanted for key in changed), "a release is to the wanted image"
        taken = [key for key in changed if worked[key]]
        SOMETIMES.saw("a working DPU was released", len(taken))
        SOMETIMES.saw("a broken DPU was released", len(changed) - len(taken))
        row = self.log.state.rollouts.rows.get(SET)
        if is_deletion or not taken:
            return
        assert row is not None
        assert not row.paused_by
        assert not row.held
        size = str(self.limit)
        share = math.ceil(len(new) * int(size[:-1]) / 100) if size.endswith("%") else int(size)
        assert sum(not each for each in works.values()) <= max(1, min(len(new), share))

    @rule(image=IMAGES, limit=LIMITS, waves=WAVES, bake=st.sampled_from(["", "30s"]))
    def edit(self, image: str, limit: int | str, waves: str, bake: str) -> None:
        self._keep_plan()
        given = {"waves": waves, "bake-time": bake}
        self.fleet.annotations = {f"dpuplane.io/rollout-{name}": text for name, text in given.items() if text}
        self.limit = limit
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}
        self.fleet.apply_set(image, strategy=strategy)
        self._check()

    @precondition(lambda self: self.hosts < 9)
    @rule()
    def add_host(self) -> None:
        self._keep_plan()
        self.fleet.add_host(self.hosts)
        self.hosts += 1
        self._check()

    @rule(number=st.integers(0, 30))
    def remove_host(self, number: int) -> None:
        self.log.delete(kinds.DPU_DEVICE, f"d{number:02}")
        self._check()

    def _keep_plan(self) -> None:
        """Keep the plan that a replica may state later."""
        plan = self._derived_plan()
        event = next_record(ResourcesState(), plan, self.log.delivered.end, PLAIN) if plan is not None else None
        if event is not None:
            self.old_plans.append(event)

    def _derived_plan(self) -> SetPlan | None:
        while not self.fleet.live.advance(self.log.state):
            pass
        return set_plan(self.log.state, self.fleet.live.derivation, SET)

    @rule()
    def plan(self) -> None:
        self.fleet.plan()
        self._check()

    @precondition(lambda self: self.old_plans)
    @rule(which=st.integers(0, 99))
    def state_an_old_plan(self, which: int) -> None:
        outcome = self.log.append(self.old_plans[which % len(self.old_plans)])
        SOMETIMES.saw("an old plan was refused", outcome.code == "refused")
        self._check()

    @rule(limit=LIMITS)
    def state_a_plan_with_another_limit(self, limit: int | str) -> None:
        """A plan of a replica that is wrong about the DPUSet."""
        plan = self._derived_plan()
        if plan is None or str(limit) == str(self.limit):
            return
        wrong = plan._replace(strategy=plan.strategy._replace(max_unavailable=str(limit)))
        event = next_record(ResourcesState(), wrong, self.log.delivered.end, PLAIN)
        assert event is not None
        assert self.log.append(event).code == "refused"
        SOMETIMES.saw("a plan with another limit was refused")
        self._check()

    @rule(times=st.integers(1, 3))
    def advance(self, times: int) -> None:
        for _ in range(times):
            outcome = self.fleet.advance()
            self._check()
        row = self.log.state.rollouts.rows[SET]
        SOMETIMES.saw("a duplicate changed nothing", times > 1 and outcome.code == "unchanged")
        SOMETIMES.saw("a rollout was held", bool(row.held))
        SOMETIMES.saw("a wave baked", row.baked_ms > 0)
        counts = self.fleet.counts
        is_open = outcome.code == "unchanged" and not row.held and not row.paused_by
        SOMETIMES.saw("the limit left no place", is_open and "OUTDATED" in counts)

    @rule(failing=st.one_of(st.just(set()), st.sets(st.integers(0, 8), max_size=2)), rounds=st.integers(1, 4))
    def roll(self, failing: set[int], rounds: int) -> None:
        """Rounds of the driver and the zones, in which every installation ends."""
        for _ in range(rounds):
            self.fleet.plan()
            self._check()
            self.advance(1)
            for dpu in self.fleet.hand_over():
                self.fleet.install(dpu, fails=int(dpu[-2:]) in failing)
            self.before = self._rows()
            self.advance(1)

    @rule(image=IMAGES, limit=LIMITS, waves=WAVES, fails=st.booleans())
    def begin(self, image: str, limit: int | str, waves: str, *, fails: bool) -> None:
        """An edit whose rollout begins at once."""
        self.edit(image, limit, waves, "30s")
        self.roll(set(range(9)) if fails else set(), 2)

    @rule(failing=st.sets(st.integers(0, 8)), working=st.sets(st.integers(0, 8)))
    def provision(self, failing: set[int], working: set[int]) -> None:
        self.fleet.hand_over()
        for dpu in [*self.fleet.images]:
            number = int(dpu[-2:])
            if dpu in self.log.state.dpu_rollouts.rows and number in failing | working:
                self.fleet.install(dpu, fails=number in failing)
        self.before = self._rows()

    @rule(number=st.integers(0, 30))
    def break_down(self, number: int) -> None:
        if (dpu := self.fleet.dpu_key(number)) in self.fleet.images:
            self.fleet.break_down(dpu)
            self.before = self._rows()

    @rule(rounds=st.integers(1, 3))
    def roll_back(self, rounds: int) -> None:
        self.request("undo")
        self.roll(set(), rounds)

    @rule(verb=st.sampled_from(["pause", "resume", "resume", "undo"]))
    def request(self, verb: str) -> None:
        outcome = self.fleet.request(verb)
        SOMETIMES.saw("a rollout was paused", verb == "pause" and outcome.code == "done")
        SOMETIMES.saw("an earlier image came back", verb == "undo" and outcome.code == "done")
        self._check()

    @precondition(lambda self: self.log.state.dpu_rollouts.rows)
    @rule(which=st.integers(0, 8))
    def delete_dpu(self, which: int) -> None:
        """Delete an outdated DPU if there is one."""
        rows = sorted(self.log.state.dpu_rollouts.rows.items())
        keys = [key for key, row in rows if row.released != row.wanted] or [key for key, _ in rows]
        outcome = self.log.delete(kinds.DPU, keys[which % len(keys)].rpartition("/")[2])
        SOMETIMES.saw("a DPU was deleted", outcome.code == "done")
        self._check(is_deletion=True)

    @rule(seconds=st.sampled_from([1, 40]))
    def wait(self, seconds: int) -> None:
        self.fleet.pass_time(seconds)

    def another(self) -> RolloutRequested:
        return RolloutRequested(self.log.envelope(), LOCAL, kinds.DPU_SET, NAMESPACE, "set", "pause", 0)

    @invariant()
    def a_plan_in_force_has_the_limit_of_its_set(self) -> None:
        row = self.log.state.rollouts.rows.get(SET)
        assert row is None or not is_in_force(self.log.state, SET, row) or row.max_unavailable == str(self.limit)

    @invariant()
    def the_index_follows_from_the_rows(self) -> None:
        copy = ResourcesState()
        for name in ("observed", "rollouts", "dpu_rollouts", "allocations"):
            getattr(copy, name).load(getattr(self.log.state, name).rows.items())
        copy.rederive()
        assert content(copy.rollout_index) == content(self.log.state.rollout_index)

    def teardown(self) -> None:
        self.fleet.annotations = {}
        if self.log.state.rollouts.rows.get(SET) is not None:
            self.fleet.apply_set("three", strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
            self.fleet.plan()
            self.fleet.request("resume")
            for _ in range(3):
                self.fleet.settle()
                for dpu in [*self.fleet.images]:
                    if dpu in self.log.state.dpu_rollouts.rows:
                        self.fleet.install(dpu)
            assert {*self.fleet.counts} <= {"DONE"}, self.fleet.counts
            row = self.log.state.rollouts.rows[SET]
            image = fields_of(row.pin)["bfb"] if row.pin else "three"
            assert all(each.released.startswith(f"{image}/") for each in self.log.state.dpu_rollouts.rows.values())
        self.log.delivered.check_replicas()


def content(index: RolloutIndex) -> dict[str, Any]:
    return {key: _of_set(found) for key, found in index.sets.items()}


def _of_set(found: SetIndex) -> Any:
    steps = {
        step: (set(each.outdated), set(each.broken), {number: set(keys) for number, keys in each.moving.items()})
        for step, each in found.steps.items()
    }
    counts = Counter({status: count for status, count in found.counts.items() if count})
    failed = {number: set(keys) for number, keys in found.failed.items()}
    return found.members, found.digest, counts, steps, failed


TestRolloutMachine = sized(RolloutMachine, 120, 40, SOMETIMES)


def test_a_duplicate_of_every_trigger_changes_nothing() -> None:
    fleet = RollingFleet(4)
    fleet.apply_set("one")
    fleet.settle()
    fleet.apply_set("two")
    fleet.plan()
    assert fleet.advance().code == "done"
    for _ in range(3):
        event = RolloutAdvanced(PLAIN, LOCAL, [NAMESPACE], ["set"])
        assert fleet.log.append(event).code == "unchanged"
    assert fleet.updated() == [0]

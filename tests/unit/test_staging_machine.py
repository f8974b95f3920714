"""Staged changes under random events, against a model: each DPU has the list of its stage, at versions that only grow.

The model keeps the policies of DPUs with and without the change from the accepted statements alone. Tables are expected
by the oracle of tests/support/fleet.py.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from projections.fleet.tables.zone_table import delta, snapshot, table
from projections.rules.policies import BUILT_IN, Policy
from projections.staging.course import PATIENCE_MS
from tests.support.fleet import (
    Device,
    Fleet,
    Item,
    actual_table,
    applied,
    digest_from_scratch,
    expected_table,
    saved_bytes,
)

ZONES = ("z0", "z1")
DPUS = tuple(f"{zone}/d{number}" for zone in ZONES for number in range(3))
STAGES = ("1", "3", "100%")
SOURCES: tuple[dict[str, str], ...] = ({}, {"app": "web"}, {"app": "db"})
SELECTORS: tuple[dict[str, str], ...] = ({}, {"site": "a"})


class StagingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.in_force: dict[str, Policy] = {BUILT_IN.name: BUILT_IN}
        self.before: Policy | None = None
        self.after: Policy | None = None
        self.name = ""
        self.phase = "none"
        self.released = 0
        self.named: dict[str, int] = {}
        self.devices: dict[str, tuple[int, Device]] = {dpu: (0, {}) for dpu in DPUS}

    @initialize(site=st.booleans())
    def begin(self, site: bool) -> None:
        self.fleet.unlimited()
        if site:
            self.fleet.describe("z0", {"site": "a"})

    @rule(number=st.integers(0, 5), zone=st.sampled_from(ZONES), labels=st.sampled_from(SOURCES))
    def join(self, number: int, zone: str, labels: dict[str, str]) -> None:
        known = self.fleet.state.members.rows.get(f"n{number}")
        created_ms = known.created_ms + 1 if known is not None else 1
        self.fleet.change(Item(f"n{number}", zone, f"10.0.0.{number + 1}", labels=labels, created_ms=created_ms))

    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        if f"n{number}" in self.fleet.state.members.rows:
            self.fleet.leave(f"n{number}")

    @rule(name=st.sampled_from("pq"), priority=st.integers(0, 1), sources=st.sampled_from(SOURCES))
    def edit(self, name: str, priority: int, sources: dict[str, str]) -> None:
        outcome = self.fleet.policy(name, priority=priority, action="drop", sources=sources)
        is_staged = self.phase == "open" and name == self.name
        assert (outcome.code == "refused") == is_staged
        if not is_staged:
            self.in_force[name] = _policy(name, priority, sources, {})

    @rule(
        name=st.sampled_from("pq"),
        priority=st.integers(0, 1),
        sources=st.sampled_from(SOURCES),
        zones=st.sampled_from(SELECTORS),
        is_deleted=st.booleans(),
    )
    def stage(
        self,
        name: str,
        priority: int,
        sources: dict[str, str],
        zones: dict[str, str],
        is_deleted: bool,
    ) -> None:
        outcome = self.fleet.stage(name, STAGES, priority=priority, sources=sources, zones=zones, is_deleted=is_deleted)
        if self.phase == "open":
            assert outcome.reason_code == "POLICY_STAGED"
        elif outcome.code == "done":
            self.name, self.phase, self.released, self.named = name, "open", 0, {}
            self.before, self.after = (
                self.in_force.get(name),
                None if is_deleted else _policy(name, priority, sources, zones),
            )

    @precondition(lambda self: self.phase == "open")
    @rule(dpus=st.sets(st.sampled_from(DPUS), max_size=2))
    def advance(self, dpus: set[str]) -> None:
        stage = self.released + 1
        if stage > len(STAGES):
            assert self.fleet.observe(self.released).code == "done"
            self.phase = "ended"
            return
        if stage < len(STAGES):
            outcome = self.fleet.name_dpus(stage, *sorted(dpus), total=len(DPUS))
            if outcome.code == "done":
                for dpu in dpus:
                    self.named.setdefault(dpu, stage)
        named = sum(each == stage for each in self.named.values())
        assert self.fleet.observe(self.released, named=named).code == "done"
        self.released = stage
        if stage == len(STAGES):
            self._put(self.after)

    @precondition(lambda self: self.phase == "open")
    @rule()
    def undo(self) -> None:
        assert self.fleet.request_stages("undo", self.name).code == "done"
        if self.released == len(STAGES):
            self._put(self.before)
        self.phase = "undone" if self.released else "ended"

    @precondition(lambda self: self.phase == "undone")
    @rule()
    def finish(self) -> None:
        self.fleet.now_ms += PATIENCE_MS
        assert self.fleet.observe(self.released, waiting=1).code == "done"
        self.phase = "ended"

    @rule()
    def reload(self) -> None:
        loaded = self.fleet.reload()
        assert saved_bytes(loaded) == saved_bytes(self.fleet.state)
        for zone in ZONES:
            assert loaded.stages_of(zone) == self.fleet.state.stages_of(zone)
            for stage in loaded.stages_of(zone):
                now, then = table(loaded, zone, stage), table(self.fleet.state, zone, stage)
                assert (now.version, now.digest) == (then.version, then.digest)
        self.fleet.state = loaded

    @rule(dpu=st.sampled_from(DPUS))
    def sync(self, dpu: str) -> None:
        """A relay sends a DPU what it lacks."""
        zone, _, name = dpu.partition("/")
        state, (version, had) = self.fleet.state, self.devices[dpu]
        stage = state.stage_of(zone, name)
        now = table(state, zone, stage)
        assert now.version >= version, "a device refuses an older version"
        step = delta(state, zone, version, stage) if version else None
        step = step or snapshot(state, zone, stage)
        has = applied(had, step)
        assert has == expected_table(state, zone, self._policies(dpu)), f"{dpu} in stage {stage}"
        assert digest_from_scratch(has) == step.digest
        assert version < step.to_version or has == had, "one version names one content"
        self.devices[dpu] = step.to_version, has

    @invariant()
    def every_list_is_that_of_the_model(self) -> None:
        for dpu in DPUS:
            zone, _, name = dpu.partition("/")
            stage = self.fleet.state.stage_of(zone, name)
            assert actual_table(self.fleet.state, zone, stage) == expected_table(
                self.fleet.state, zone, self._policies(dpu)
            )

    def _policies(self, dpu: str) -> list[Policy]:
        found = dict(self.in_force)
        has_change = self.phase == "open" and 0 < self.named.get(dpu, 0) <= self.released < len(STAGES)
        if has_change:
            found.pop(self.name, None)
            found |= {self.name: self.after} if self.after is not None else {}
        return [*found.values()]

    def _put(self, policy: Policy | None) -> None:
        self.in_force.pop(self.name, None)
        if policy is not None:
            self.in_force[self.name] = policy


def _policy(name: str, priority: int, sources: dict[str, str], zones: dict[str, str]) -> Policy:
    action = "drop"
    return Policy(name, priority, action, "any", (), dict(sources), dict(zones), 0)


StagingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStaging = StagingMachine.TestCase

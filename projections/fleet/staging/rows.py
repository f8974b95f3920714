"""Rows of staged changes, and the label sets of their cohorts.

A **cohort** is the DPUs of one released stage. It is a label set of zones with one more label, `STAGE`, whose key no
zone can have. So the list of a cohort, its versions and its previous lists are kept as those of any zones with equal
labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from projections.fleet.withdrawals.budgets import Hold
from projections.rules.lists import STAGE, Canary, is_cohort
from projections.rules.policies import Policy, Selector, matches, selector

MAX_STAGES = 10
MAX_NAMED_DPUS = 200_000
"""Maximum number of DPUs of all stages but the last: they take some 20 MB."""

MAX_FAILED_DPUS = 100
"""Maximum number of failed DPUs that are kept by name."""

PATIENCE_MS = 60_000
"""The time after which a DPU without a report counts as failed, if the bake time is shorter."""

ALL = "100%"
CURRENT = "current"
"""The key of the only row of staged changes."""

COMPLETE, UNDONE = "complete", "undone"
STAGING, PAUSED, HELD, UNDOING = OPEN_PHASES = ("staging", "paused", "held", "undoing")
"""What a change does that has not ended."""


class StagePlan(msgspec.Struct, frozen=True):
    """The stages of a change, each as its user gives it, the least duration of each, and the failure budget."""

    stages: tuple[str, ...]
    bake_ms: int
    failure_budget: str


class StagedChange(msgspec.Struct, frozen=True):
    """A staged change of a policy, and how far it is.

    `before` and `after` are None if there is no policy. `stage` is the number of released stages, and `released` has
    the table version of each of them. `failed` has the reason of each failed DPU (ZONE/NAME). Those in `forgiven` do
    not count again. `approved` is the hold that was approved for the change, if it was over a budget. `undone_by` is
    the operator who rolled the change back, at table version `undone_version`. `result` is empty until the end.
    """

    version: int
    policy: str
    before: Policy | None
    after: Policy | None
    plan: StagePlan
    requested_by: str
    began_ms: int
    since_ms: int
    stage: int = 0
    released: tuple[int, ...] = ()
    paused_by: str = ""
    held: str = ""
    failed: dict[str, str] = {}
    forgiven: tuple[str, ...] = ()
    approved: Hold | None = None
    undone_by: str = ""
    undone_version: int = 0
    result: str = ""
    ended_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the change goes on: neither ended nor rolled back."""
        return not self.result and not self.undone_by

    @property
    def is_everywhere(self) -> bool:
        """Whether the last stage is released, so that all DPUs should have the change."""
        return self.stage == len(self.plan.stages)

    @property
    def phase(self) -> str:
        """One word for what the change does now."""
        if self.result:
            return self.result
        if self.undone_by:
            return UNDOING
        return HELD if self.held else PAUSED if self.paused_by else STAGING

    @property
    def canary(self) -> Canary | None:
        """The policy that only the cohorts have; None if they have the policies of all other DPUs."""
        if not self.is_open or not self.stage or self.is_everywhere:
            return None
        return Canary(self.policy, self.after)

    @property
    def cohorts(self) -> range:
        """The numbers of the stages that have a cohort."""
        return range(1, min(self.stage, len(self.plan.stages) - 1) + 1) if not self.result else range(0)

    def version_of(self, stage: int) -> int:
        """The table version that a DPU of a stage should have at least; 0 if the change does not concern it now."""
        if self.undone_version:
            return self.undone_version
        if self.is_everywhere:
            return self.released[-1]
        return self.released[stage - 1] if stage else 0

    def concerns(self, labels: Mapping[str, str]) -> bool:
        """Whether the change may concern zones with these labels."""
        return any(policy is not None and matches(policy.zones, labels) for policy in (self.before, self.after))


class StagedDpus(msgspec.Struct, frozen=True):
    """The named DPUs of a zone, each with the number of its stage."""

    stages: dict[str, int]


class StageOf(NamedTuple):
    """A DPU and its stage."""

    zone: str
    dpu: str
    stage: int


def cohort_labels(labels: Selector, stage: int) -> Selector:
    """The label set of a cohort of zones with these labels."""
    return ((STAGE, str(stage)), *labels)


def zone_labels(labels: Selector) -> Selector:
    """The labels of the zones of a label set: without the label of a cohort."""
    return labels[1:] if is_cohort(labels) else labels


def dpu_key(zone: str, dpu: str) -> str:
    """A DPU in the columns of events and in rows."""
    return f"{zone}/{dpu}"


def stage_label(text: str) -> Selector | None:
    """The zone label of a stage KEY=VALUE; None for a number or percentage."""
    key, equals, value = text.partition("=")
    return selector({key: value}) if equals else None

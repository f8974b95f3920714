"""Rows of staged changes, and the label sets of their cohorts.

A **cohort** is the DPUs of one released stage. It is a label set of zones with one more label, `STAGE`, whose key no
zone can have. So the list of a cohort, its versions and its previous lists are kept as those of any zones with equal
labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.fleet.withdrawals.budgets import Hold
from projections.rules.lists import STAGE, Canary, is_cohort
from projections.rules.policies import Policy, Selector, matches
from projections.staging.course import Course
from projections.staging.plan import StagePlan

CURRENT = "current"
"""The key of the only row of staged changes."""


class StagedChange(Course, msgspec.Struct, frozen=True):
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
    def canary(self) -> Canary | None:
        """The policy that only the cohorts have; None if they have the policies of all other DPUs."""
        if not self.is_open or not self.stage or self.is_everywhere:
            return None
        return Canary(self.policy, self.after)

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


def cohort_labels(labels: Selector, stage: int) -> Selector:
    """The label set of a cohort of zones with these labels."""
    return ((STAGE, str(stage)), *labels)


def zone_labels(labels: Selector) -> Selector:
    """The labels of the zones of a label set: without the label of a cohort."""
    return labels[1:] if is_cohort(labels) else labels

"""The stages of a change as its user gives them: stages, bake time, failure budget."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from projections.field_checks import check_labels, quoted
from projections.rules.policies import Selector, selector
from projections.sizes import MAX_BAKE_MS, Size, read_size

MAX_STAGES = 10
MAX_NAMED_DPUS = 200_000
"""Maximum number of DPUs of all stages but the last: they take some 20 MB."""

ALL = "100%"


class StagePlan(msgspec.Struct, frozen=True):
    """The stages of a change, each as its user gives it, the least duration of each, and the failure budget."""

    stages: tuple[str, ...]
    bake_ms: int
    failure_budget: str


def fault_of_stages(stages: Sequence[str], bake_ms: int, failure_budget: str) -> str | None:
    """Why the stages of a change are invalid, in one sentence; None if they are valid."""
    if not 2 <= len(stages) <= MAX_STAGES:
        return f"stages: {len(stages)} stages must be from 2 to {MAX_STAGES}"
    sizes: list[Size] = []
    for number, text in enumerate(stages):
        key, equals, value = text.partition("=")
        size = read_size(text)
        if equals and (fault := check_labels("stages", {key: value})):
            return fault
        if not equals and (size is None or size.number < 1):
            return f"stages[{number}]: {quoted(text)} must be a number, a percentage, or KEY=VALUE of zones"
        sizes += [size] if size is not None else []
    if stages[-1] != ALL or ALL in stages[:-1]:
        return f"stages: the last one, and no other, must be {ALL}"
    if _decreases(sizes):
        return "stages: must not decrease: a stage is the share of all DPUs that have the change after it"
    if not 0 <= bake_ms <= MAX_BAKE_MS:
        return f"bake_ms: {bake_ms} must be from 0 to {MAX_BAKE_MS}"
    if read_size(failure_budget) is None:
        return f"failure_budget: {quoted(failure_budget)} must be a number of DPUs or a percentage, such as 1 or 5%"
    return None


def limit_of(stage: str, total: int) -> int:
    """The maximum number of DPUs that are named up to a stage, of `total` that the change concerns."""
    size = read_size(stage)
    return min(MAX_NAMED_DPUS, size.of(total)) if size is not None else MAX_NAMED_DPUS


def label_of(stage: str) -> Selector | None:
    """The zone label of a stage KEY=VALUE; None for a number or percentage."""
    key, equals, value = stage.partition("=")
    return selector({key: value}) if equals else None


def _decreases(sizes: Sequence[Size]) -> bool:
    for kind in (True, False):
        numbers = [size.number for size in sizes if size.is_percentage == kind]
        if numbers != sorted(numbers):
            return True
    return False

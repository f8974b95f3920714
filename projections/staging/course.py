"""How far a staged change is: what the row of any staged change has."""

from __future__ import annotations

from typing import Protocol

import msgspec

from projections.staging.plan import StagePlan

MAX_FAILED_DPUS = 100
"""Maximum number of failed DPUs that are kept by name."""

PATIENCE_MS = 60_000
"""The time after which a DPU without a report counts as failed, if the bake time is shorter."""

COMPLETE, UNDONE = "complete", "undone"
STAGING, PAUSED, HELD, UNDOING = OPEN_PHASES = ("staging", "paused", "held", "undoing")
"""What a change does that has not ended."""


class Staged(Protocol):
    """The row of a staged change.

    `version` is the position after its first record. `stage` is the number of released stages, and `released` has the
    position after the record of each. `since_ms` is when the last one was released. `failed` has the reason of each
    failed DPU (ZONE/NAME). Those in `forgiven` do not count again. `result` is empty until the end.
    """

    @property
    def version(self) -> int: ...
    @property
    def plan(self) -> StagePlan: ...
    @property
    def since_ms(self) -> int: ...
    @property
    def stage(self) -> int: ...
    @property
    def released(self) -> tuple[int, ...]: ...
    @property
    def paused_by(self) -> str: ...
    @property
    def held(self) -> str: ...
    @property
    def failed(self) -> dict[str, str]: ...
    @property
    def forgiven(self) -> tuple[str, ...]: ...
    @property
    def undone_by(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_everywhere(self) -> bool: ...


class Course:
    """What follows from the row of a staged change."""

    __slots__ = ()

    @property
    def is_open(self: Staged) -> bool:
        """Whether the change goes on: neither ended nor rolled back."""
        return not self.result and not self.undone_by

    @property
    def is_everywhere(self: Staged) -> bool:
        """Whether the last stage is released, so that all DPUs should have the change."""
        return self.stage == len(self.plan.stages)

    @property
    def phase(self: Staged) -> str:
        """One word for what the change does now."""
        if self.result:
            return self.result
        if self.undone_by:
            return UNDOING
        return HELD if self.held else PAUSED if self.paused_by else STAGING

    @property
    def cohorts(self: Staged) -> range:
        """The numbers of the released stages whose DPUs are named: all but the last one."""
        return range(1, min(self.stage, len(self.plan.stages) - 1) + 1) if not self.result else range(0)


class StagedDpus(msgspec.Struct, frozen=True):
    """The named DPUs of a zone, each with the number of its stage."""

    stages: dict[str, int]


def dpu_key(zone: str, dpu: str) -> str:
    """A DPU in the columns of events and in rows."""
    return f"{zone}/{dpu}"


def stage_text(row: Staged) -> str:
    """How far a change is."""
    stages = row.plan.stages
    return f"stage {row.stage} of {len(stages)}" + (f" ({stages[row.stage - 1]})" if row.stage else "")


def stop_reason(row: Staged) -> str:
    """Why no further stage is released: the change is held or paused; empty if it is neither."""
    return row.held or (f"paused by {row.paused_by}" if row.paused_by else "")

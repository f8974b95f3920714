"""Staged changes: which DPUs may have the changed list when, from raw records, and how a change goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from deploy.composition.roles import folds_of
from eventstore.folding.fold import folds_by_version
from eventstore.log import FLEET, FLEET_0
from projections.fleet.staging.rows import CURRENT, StagedChange
from projections.staging.course import PATIENCE_MS, STAGING
from schemas.events import StageDpusNamed
from tests.simulation.checkers.evidence import Evidence, Records, log_id_of
from tests.simulation.fresh import Step, refold
from tests.simulation.history import TableInstalled
from tests.simulation.plan import PARTITIONS

Found = Iterator[str]

IDLE_S = 30.0
"""How long a change that nothing holds up may stay in a stage, beyond its bake time and the patience with its DPUs."""


class _Course:
    """A staged change: the stage of each named DPU, and the version of each release, as records of fleet tell them.
    From `common` on, all DPUs should have one list again.
    """

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        self.released: dict[int, int] = {}
        self.common = inf

    def since(self, dpu: str) -> float:
        """The version from which a DPU should have the change."""
        return min(self.released.get(self.named.get(dpu, 0), inf), self.common)


def check_stages(run: Evidence) -> Found:
    """I32: a DPU has the list with a change only after the release of a stage that names it, and after that it gets no
    list without the change before the last stage or an undo.
    """
    courses = [*_courses(run)]
    for entry in run.history.of(TableInstalled):
        table = entry.version, entry.digest
        is_zones = run.tables[entry.zone].get(entry.version) == entry.digest
        is_canary = table in run.canaries[entry.zone]
        began = [each for each in courses if min(each.released.values()) <= entry.version]
        if is_zones == is_canary or not began:
            continue
        since, course = began[-1].since(f"{entry.zone}/{entry.device}"), began[-1]
        if is_canary and since > entry.version:
            yield f"{entry.device} had version {entry.version} with a change before the release of its stage"
        if is_zones and since <= entry.version < course.common:
            yield f"{entry.device} had version {entry.version} without a change after the release of its stage"


def _courses(run: Evidence) -> Iterator[_Course]:
    """The staged changes with a release, in order. Their DPUs are those of accepted events."""
    course, change = _Course(), 0
    for step in run.steps[FLEET_0]:
        row = _row(step)
        if row is not None and row.version != change:
            if course.released:
                yield course
            course, change = _Course(), row.version
        if isinstance(step.event, StageDpusNamed) and "staged_dpus" in step.rows:
            for zone, dpu in zip(step.event.zones, step.event.dpus, strict=True):
                course.named.setdefault(f"{zone}/{dpu}", step.event.stage)
        if row is not None and row.stage:
            course.released.setdefault(row.stage, step.record.offset + 1)
            if row.undone_by or row.stage == len(row.plan.stages):
                course.common = min(course.common, step.record.offset + 1)
    if course.released:
        yield course


def course_counts(records: Records) -> Counter[str]:
    """The number of released stages, and of changes that were rolled back. Without any, a run proves nothing."""
    folds = folds_by_version(folds_of(PARTITIONS))[FLEET]
    _, steps = refold(FLEET_0, records[FLEET_0], folds, log_id_of(records))
    rows = [row for row in map(_row, steps) if row is not None]
    released = {(row.version, row.stage) for row in rows if row.stage}
    undone = {row.version for row in rows if row.undone_by and row.stage}
    return Counter({"stages released": len(released), "staged changes undone": len(undone)})


def check_order(run: Evidence) -> Found:
    """I32: stages follow each other, none ends before its bake time, and a held or paused change does not go on."""
    last: StagedChange | None = None
    for step in run.steps[FLEET_0]:
        row = _row(step)
        if row is None:
            continue
        where, before, last = f"fleet@{step.record.offset}", last, row
        if before is None or before.version != row.version or row.stage == before.stage:
            continue
        if row.stage != before.stage + 1:
            yield f"{where}: stage {row.stage} follows stage {before.stage}"
        if before.phase != STAGING:
            yield f"{where}: stage {row.stage} is released although the change is {before.phase}"
        if before.stage and row.since_ms - before.since_ms < row.plan.bake_ms and row.since_ms != before.since_ms:
            yield f"{where}: stage {before.stage} ends {row.since_ms - before.since_ms} ms after its release"


def check_ended(run: Evidence) -> Found:
    """I32, at rest: a change that nothing holds up goes on."""
    row = run.fleet.staged
    if row is None or row.result or row.held or row.paused_by or run.end_s is None:
        return
    time_ms = run.steps[FLEET_0][-1].record.timestamp_ms
    if time_ms > row.since_ms + row.plan.bake_ms + PATIENCE_MS + IDLE_S * 1_000:
        yield f"the change of {row.policy} stays in stage {row.stage} since {row.since_ms}"


def _row(step: Step) -> StagedChange | None:
    """The row of the present change, if the record changed it."""
    return next((row for key, row in step.rows.get("staged", ()) if key == CURRENT), None)

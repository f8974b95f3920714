"""How far the DPUs of a staged change of a policy are, and which list each has.

A DPU gets a stage once a relay has reported it with one of the remembered versions of its zone: a DPU that never had a
table cannot lack a change of it. From then on it counts, also if no relay reports it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyroaring import BitMap

from projections.field_checks import quoted
from projections.fleet.staging.rows import StagedChange
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import table
from projections.installs.rows import InstallsState, Level
from projections.installs.views import laggards
from projections.views.stage_progress import StagedDpu, StageProgress
from projections.zones.state import ZonesState


class PolicyStageProgress(StageProgress):
    """The progress of a staged change of a policy. Add all zones, then read."""

    def __init__(self, fleet: FleetState, staged: StagedChange, *, epoch: int, now_ms: int) -> None:
        super().__init__(fleet, staged, staged.policy, fleet.named_dpus, now_ms=now_ms)
        self._change, self._epoch = staged, epoch

    def add_zone(self, zone: str, zones: ZonesState, installs: InstallsState) -> None:
        """Count the DPUs of a zone."""
        change, fleet = self._change, self._fleet
        names = zones.dpu_index.zone(zone).names if change.concerns(fleet.zone(zone).labels) else {}
        self.total += len(names)
        if not names:
            return
        row = installs.zones.rows.get(zone)
        if row is not None and row.epoch != self._epoch:  # reports of an earlier log
            row = None
        reported = reached_ordinals(zone, installs, 0) if row is not None else BitMap()
        self.unreported += len(names.keys() - set(reported))
        stages = [stage for stage in fleet.stages_of(zone) if change.version_of(stage)]
        reached = {
            stage: reached_ordinals(zone, installs, change.version_of(stage)) if row is not None else BitMap()
            for stage in stages
        }
        exceptions = row.exceptions if row is not None else ()
        refused = {each.dpu: each for each in exceptions if each.reported_ms >= change.since_ms}
        staged = fleet.staged_dpus.rows.get(zone)
        named = staged.stages if staged is not None else {}
        for ordinal in sorted(names):
            dpu = StagedDpu(zone, ordinal, names[ordinal], fleet.stage_of(zone, names[ordinal]))
            if dpu.name not in named:
                if ordinal not in reported:
                    continue
                self.add_unnamed(dpu)
            version = change.version_of(dpu.stage)
            if not version:
                continue
            said = refused.get(dpu.name)
            reason = "" if said is None else said.reason or f"its table went back to version {said.version}"
            self.count(dpu, is_reached=ordinal in reached[dpu.stage], reason=reason, missing=f"version {version}")


def reached_ordinals(zone: str, installs: InstallsState, version: int, level: Level = Level.APPLIED) -> BitMap:
    """The DPUs that have a version or a later one at a level, by ordinal."""
    found = BitMap()
    for number in installs.numbers.get(zone, ()):
        row = installs.version(zone, number) if number >= version else None
        for reached in row.levels[level:] if row is not None else ():
            for _, packed in reached:
                found |= BitMap.deserialize(packed)
    return found


class LiveList(NamedTuple):
    """A list of a zone: its version, and the DPUs that should have it."""

    version: int
    ordinals: BitMap


def live_lists(zone: str, names: Mapping[int, str], fleet: FleetState) -> list[LiveList]:
    """The lists of a zone with these DPUs: two while a change is staged in it, otherwise one."""
    by_stage: dict[int, list[int]] = {stage: [] for stage in fleet.stages_of(zone)}
    for ordinal, name in names.items():
        by_stage[fleet.stage_of(zone, name)].append(ordinal)
    return [LiveList(table(fleet, zone, stage).version, BitMap(found)) for stage, found in by_stage.items()]


def lagging(
    zone: str, names: Mapping[int, str], fleet: FleetState, installs: InstallsState, level: Level = Level.APPLIED
) -> list[int]:
    """The DPUs that have not reached a level with the newest table, by ordinal. With two lists, each DPU needs its
    own."""
    if len(fleet.stages_of(zone)) == 1:
        return laggards(installs, zone, level=level, ordinals=names)
    found = (
        each.ordinals - reached_ordinals(zone, installs, each.version, level) for each in live_lists(zone, names, fleet)
    )
    return [*BitMap.union(*found)]


def stage_sentence(zone: str, dpu: str, fleet: FleetState) -> str:
    """Which list a DPU has while a change is staged; empty if none is."""
    staged = fleet.staged
    if staged is None or staged.result or not staged.concerns(fleet.zone(zone).labels):
        return ""
    stage, stages = fleet.stage_of(zone, dpu), len(staged.plan.stages)
    about = f"the staged change of policy {quoted(staged.policy)}"
    if staged.undone_by:
        return f"{about} is rolled back by {staged.undone_by}"
    if staged.is_everywhere:
        return f"{quoted(dpu)} has {about}, whose last stage is released"
    if stage:
        return f"{quoted(dpu)} is in stage {stage} of {stages} of {about}, and has the list with it"
    return f"{quoted(dpu)} is in no released stage of {about} ({staged.stage} of {stages}), and has the list before it"

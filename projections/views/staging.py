"""How far the DPUs of a staged change are: which DPUs its next stage gets, and which ones wait or have failed.

A DPU gets a stage once a relay has reported it with one of the remembered versions of its zone: a DPU that never had a
table cannot lack a change of it. DPUs are taken in the order of their zones and ordinals, so a stage fills one failure
domain after the other. A stage that lacks DPUs waits for reports of further ones, a while if it is not the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyroaring import BitMap

from eventstore.ids import internal_envelope
from projections.field_checks import quoted
from projections.fleet.staging.rows import StagedChange
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import table
from projections.installs.rows import InstallsState, Level
from projections.installs.views import laggards
from projections.rules.policies import matches
from projections.sizes import read_size
from projections.staging.course import MAX_FAILED_DPUS, PATIENCE_MS, dpu_key
from projections.staging.plan import MAX_NAMED_DPUS, label_of
from projections.zones.state import ZonesState
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved

_REASON_MAX = 253


class StagedDpu(NamedTuple):
    """A DPU that counts: its zone, ordinal and name, and its released stage (0 for none)."""

    zone: str
    ordinal: int
    name: str
    stage: int


class StageProgress:
    """The progress of a change. Add all zones, then read."""

    def __init__(self, fleet: FleetState, staged: StagedChange, *, epoch: int, now_ms: int) -> None:
        self.total = 0
        self.waiting = 0
        self.installed = 0
        self.failed: dict[str, str] = {}
        self._fleet, self._staged = fleet, staged
        self._epoch, self._now_ms = epoch, now_ms
        self._unnamed: list[StagedDpu] = []
        self._unreported = 0

    def add_zone(self, zone: str, zones: ZonesState, installs: InstallsState) -> None:
        """Count the DPUs of a zone."""
        labels = self._fleet.zone(zone).labels
        row = installs.zones.rows.get(zone)
        names = zones.dpu_index.zone(zone).names if self._staged.concerns(labels) else {}
        self.total += len(names)
        if not names or row is None or row.epoch != self._epoch:
            self._unreported += len(names)
            return
        reported = reached_ordinals(zone, installs, 0)
        self._unreported += len(names.keys() - set(reported))
        reached = {
            stage: reached_ordinals(zone, installs, self._staged.version_of(stage)) for stage in self._stages(zone)
        }
        refused = {each.dpu: each for each in row.exceptions if each.reported_ms >= self._staged.since_ms}
        for ordinal in sorted(names.keys() & set(reported)):
            dpu = StagedDpu(zone, ordinal, names[ordinal], self._fleet.stage_of(zone, names[ordinal]))
            if not self._is_named(dpu):
                self._unnamed.append(dpu)
            if not self._staged.version_of(dpu.stage):
                continue
            said = refused.get(dpu.name)
            reason = "" if said is None else said.reason or f"its table went back to version {said.version}"
            self._count(dpu, is_reached=ordinal in reached[dpu.stage], reason=reason)

    def names(self) -> list[StagedDpu]:
        """The DPUs that the next stage lacks, in order."""
        staged = self._staged
        if not staged.is_open or staged.stage + 1 >= len(staged.plan.stages):
            return []
        ordered, wanted = sorted(self._unnamed), label_of(staged.plan.stages[staged.stage])
        if wanted is not None:
            ordered = [dpu for dpu in ordered if matches(wanted, self._fleet.zone(dpu.zone).labels)]
        return ordered[: max(0, self._limit() - self._fleet.named_dpus.total())]

    def _limit(self) -> int:
        """The maximum number of DPUs that have a stage once the next one is released."""
        size = read_size(self._staged.plan.stages[self._staged.stage])
        return min(MAX_NAMED_DPUS, size.of(self.total)) if size is not None else MAX_NAMED_DPUS

    def _lacking(self) -> int:
        """The number of DPUs that the next stage waits for."""
        staged, named = self._staged, self._fleet.named_dpus.total()
        if not staged.is_open or staged.stage + 1 >= len(staged.plan.stages) or not self._unreported:
            return 0
        lacking = min(self._unreported, max(0, self._limit() - named))
        is_patient = self._now_ms < staged.since_ms + self._patience_ms()
        return lacking if is_patient or not named else 0

    def naming(self, dpus: Iterable[StagedDpu], actor: str) -> StageDpusNamed:
        """The event that names DPUs of the next stage."""
        found, staged = [*dpus], self._staged
        assert len(found) <= MAX_ITEMS, "the caller splits the DPUs"
        envelope = internal_envelope(staged.policy, actor, self._now_ms)
        zones, names = [dpu.zone for dpu in found], [dpu.name for dpu in found]
        return StageDpusNamed(envelope, staged.version, staged.stage + 1, self.total, zones, names)

    def observation(self, actor: str) -> StageObserved:
        """The event that states this progress."""
        staged, failed = self._staged, dict(sorted(self.failed.items())[:MAX_FAILED_DPUS])
        is_next_named = staged.is_open and staged.stage + 1 < len(staged.plan.stages)
        named = self._fleet.named_dpus[staged.stage + 1] if is_next_named else 0
        envelope = internal_envelope(staged.policy, actor, self._now_ms)
        return StageObserved(
            envelope,
            staged.version,
            staged.stage,
            self.total,
            named,
            self.waiting + self._lacking(),
            [*failed],
            [*failed.values()],
        )

    def _stages(self, zone: str) -> Iterable[int]:
        return (stage for stage in self._fleet.stages_of(zone) if self._staged.version_of(stage))

    def _is_named(self, dpu: StagedDpu) -> bool:
        row = self._fleet.staged_dpus.rows.get(dpu.zone)
        return row is not None and dpu.name in row.stages

    def _count(self, dpu: StagedDpu, *, is_reached: bool, reason: str) -> None:
        staged, key = self._staged, dpu_key(dpu.zone, dpu.name)
        if key in staged.failed or key in staged.forgiven:
            return
        if reason:
            self.failed[key] = reason[:_REASON_MAX]
        elif is_reached:
            self.installed += 1
        elif self._fleet.is_frozen(dpu.zone) or self._now_ms < staged.since_ms + self._patience_ms():
            self.waiting += 1
        else:
            self.failed[key] = (
                f"no relay reported version {staged.version_of(dpu.stage)} within {self._patience_ms() // 1_000} s"
            )

    def _patience_ms(self) -> int:
        return max(self._staged.plan.bake_ms, PATIENCE_MS)


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

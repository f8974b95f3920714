"""How far the DPUs of a staged change are: which DPUs its next stage gets, and which ones wait or have failed.

DPUs are taken in the order of their zones and ordinals, so a stage fills one failure domain after the other. A stage
that lacks DPUs waits for reports of further ones, a while if it is not the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from eventstore.ids import internal_envelope
from projections.fleet.state import FleetState
from projections.rules.policies import matches
from projections.staging.course import MAX_FAILED_DPUS, PATIENCE_MS, Staged, dpu_key
from projections.staging.decide import MAX_REASON
from projections.staging.plan import label_of, limit_of
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved


class StagedDpu(NamedTuple):
    """A DPU that counts: its zone, ordinal and name, and its released stage (0 for none)."""

    zone: str
    ordinal: int
    name: str
    stage: int


class StageProgress:
    """The progress of a change: of which name, and how many DPUs of each stage are `named`. Add all DPUs, then read."""

    def __init__(self, fleet: FleetState, staged: Staged, name: str, named: Counter[int], *, now_ms: int) -> None:
        self.total = 0
        self.waiting = 0
        self.installed = 0
        self.unreported = 0
        self.failed: dict[str, str] = {}
        self._fleet, self._staged, self._name, self._named, self._now_ms = fleet, staged, name, named, now_ms
        self._unnamed: list[StagedDpu] = []

    def add_unnamed(self, dpu: StagedDpu) -> None:
        """Add a DPU that may get the next stage."""
        self._unnamed.append(dpu)

    def count(self, dpu: StagedDpu, *, is_reached: bool, reason: str, missing: str) -> None:
        """Count a DPU that should have the change: whether it has it, why it failed (empty if it did not), and what no
        relay reported of it yet."""
        staged, key = self._staged, dpu_key(dpu.zone, dpu.name)
        if key in staged.failed or key in staged.forgiven:
            return
        if reason:
            self.failed[key] = reason[:MAX_REASON]
        elif is_reached:
            self.installed += 1
        elif self._fleet.is_frozen(dpu.zone) or self._now_ms < staged.since_ms + self._patience_ms():
            self.waiting += 1
        else:
            self.failed[key] = f"no relay reported {missing} within {self._patience_ms() // 1_000} s"

    def names(self) -> list[StagedDpu]:
        """The DPUs that the next stage lacks, in order."""
        staged = self._staged
        if not staged.is_open or staged.stage + 1 >= len(staged.plan.stages):
            return []
        stage = staged.plan.stages[staged.stage]
        ordered, wanted = sorted(self._unnamed), label_of(stage)
        if wanted is not None:
            ordered = [dpu for dpu in ordered if matches(wanted, self._fleet.zone(dpu.zone).labels)]
        return ordered[: max(0, limit_of(stage, self.total) - self._named.total())]

    def naming(self, dpus: Iterable[StagedDpu], actor: str) -> StageDpusNamed:
        """The event that names DPUs of the next stage."""
        found, staged = [*dpus], self._staged
        assert len(found) <= MAX_ITEMS, "the caller splits the DPUs"
        envelope = internal_envelope(self._name, actor, self._now_ms)
        zones, names = [dpu.zone for dpu in found], [dpu.name for dpu in found]
        return StageDpusNamed(envelope, staged.version, staged.stage + 1, self.total, zones, names)

    def observation(self, actor: str) -> StageObserved:
        """The event that states this progress."""
        staged, failed = self._staged, dict(sorted(self.failed.items())[:MAX_FAILED_DPUS])
        is_next_named = staged.is_open and staged.stage + 1 < len(staged.plan.stages)
        named = self._named[staged.stage + 1] if is_next_named else 0
        envelope = internal_envelope(self._name, actor, self._now_ms)
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

    def _lacking(self) -> int:
        """The number of DPUs that the next stage waits for."""
        staged, named = self._staged, self._named.total()
        if not staged.is_open or staged.stage + 1 >= len(staged.plan.stages) or not self.unreported:
            return 0
        lacking = min(self.unreported, max(0, limit_of(staged.plan.stages[staged.stage], self.total) - named))
        is_patient = self._now_ms < staged.since_ms + self._patience_ms()
        return lacking if is_patient or not named else 0

    def _patience_ms(self) -> int:
        return max(self._staged.plan.bake_ms, PATIENCE_MS)

"""What happened in the platform demo, read from its log: each record is folded again, and what it changed is noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eventstore.avro.codec import decode
from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.log import RESOURCES, ZONES, Record
from projections.resources import kinds
from projections.resources.items import applied_items, deleted_items, observed_items
from projections.resources.observation import Observation, observation
from projections.resources.rollouts.rows import Rollout
from projections.resources.state import LOCAL, ResourcesState
from schemas.events import (
    Event,
    ResourcesApplied,
    ResourcesDeleted,
    ResourcesObserved,
    RolloutRequested,
    StepFailed,
    StepStarted,
    StepSucceeded,
)

READY, FAILED = "Ready", "Error"


class DpuSeen(NamedTuple):
    """A report on a DPU. It is empty once its zone has deleted the DPU."""

    time_ms: int
    name: str
    phase: str
    installed: str
    message: str


class RolloutSeen(NamedTuple):
    """A change of a rollout."""

    time_ms: int
    key: str
    row: Rollout | None


class StepDone(NamedTuple):
    """A step of a DPU that succeeded."""

    phase: str
    dpu: str
    began_ms: int
    took_ms: int


class Timeline:
    """Notes what records change. `take` is called after each record of a replay."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, str, str]] = []
        """The time, kind and name of each object that was stated."""
        self.deleted: list[tuple[int, str, str]] = []
        self.chained = 0
        """The largest number of DPUs whose agents had applied a chain, while all of its DPUs had."""
        self.searches: list[tuple[int, Observation]] = []
        self.dpus: list[DpuSeen] = []
        self.rollouts: list[RolloutSeen] = []
        self.last_ms = 0
        """The time of the last record about objects or DPUs."""
        self.requests_ms: list[int] = []
        """The times of requests about rollouts."""
        self.steps: list[StepDone] = []
        self.failures: list[tuple[int, StepFailed]] = []
        self.drains = 0
        """The number of times that a host was taken out of service."""
        self._maintained: frozenset[str] = frozenset()
        self._begun: dict[tuple[str, str], int] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._texts: dict[str, str] = {}

    def take(self, folded: FoldedPartition, record: Record, entry: LedgerEntry | None) -> None:
        if folded.partition.topic not in (RESOURCES, ZONES):
            return
        event = decode(record.value)
        self.last_ms = max(self.last_ms, record.timestamp_ms)
        if folded.partition.topic == RESOURCES:
            self._take_objects(event, record.timestamp_ms)
            self._take_rollouts(folded.state, record.timestamp_ms)
            self._take_maintenances(folded.state)
        else:
            self._take_steps(event, record.timestamp_ms)

    # --- questions about the demo -------------------------------------------------------------------------------------

    def first_applied_ms(self, kind: str, name: str, number: int = 0) -> int:
        """The time at which an object was stated for the first time, or for a later one."""
        return [time_ms for time_ms, its_kind, its_name in self.applied if (its_kind, its_name) == (kind, name)][number]

    def created(self, kind: str) -> dict[str, int]:
        """The names of all objects of a kind that were stated, with how often."""
        found: dict[str, int] = {}
        for _, its_kind, name in self.applied:
            if its_kind == kind:
                found[name] = found.get(name, 0) + 1
        return found

    def last_ready_ms(self, names: Iterable[str], since_ms: int, *, installed: str = "") -> int:
        """The time at which the last of these DPUs became ready after a time, with an image if one is given."""
        first: dict[str, int] = {}
        for seen in self.dpus:
            if seen.time_ms >= since_ms and seen.phase == READY and seen.installed.startswith(installed):
                first.setdefault(seen.name, seen.time_ms)
        return max((first[name] for name in names if name in first), default=since_ms)

    def touched(self, names: Iterable[str], since_ms: int, until_ms: int) -> list[str]:
        """The DPUs that left phase Ready between two times."""
        wanted = frozenset(names)
        found = (s.name for s in self.dpus if since_ms <= s.time_ms < until_ms and s.phase not in (READY, ""))
        return [name for name in dict.fromkeys(found) if name in wanted]

    def failed(self, since_ms: int, until_ms: int) -> list[DpuSeen]:
        """The DPUs that failed between two times."""
        return [seen for seen in self.dpus if since_ms <= seen.time_ms < until_ms and seen.phase == FAILED]

    def rollout_changes(self, since_ms: int) -> Iterator[RolloutSeen]:
        return (seen for seen in self.rollouts if seen.time_ms >= since_ms)

    def durations(self) -> Mapping[str, Sequence[int]]:
        """The durations of successful steps by phase, in milliseconds, sorted."""
        found: dict[str, list[int]] = {}
        for step in self.steps:
            found.setdefault(step.phase, []).append(step.took_ms)
        return {phase: sorted(took) for phase, took in found.items()}

    # --- records ------------------------------------------------------------------------------------------------------

    def _take_objects(self, event: Event, time_ms: int) -> None:
        match event:
            case ResourcesApplied():
                applied = applied_items(event, time_ms)
                if not isinstance(applied, str):
                    self.applied += [(time_ms, each.at.kind, each.at.name) for each in applied]
            case ResourcesDeleted():
                deleted = deleted_items(event)
                if not isinstance(deleted, str):
                    self.deleted += [(time_ms, each.at.kind, each.at.name) for each in deleted]
            case ResourcesObserved():
                observed = observed_items(event)
                for seen in observed if not isinstance(observed, str) else ():
                    self._take_observation(seen.at.kind, seen.at.name, seen.observation, time_ms)
            case RolloutRequested():
                self.requests_ms.append(time_ms)
            case _:
                pass

    def _take_observation(self, kind: str, name: str, text: str, time_ms: int) -> None:
        if (
            kind not in (kinds.DPU, kinds.DPU_DISCOVERY, kinds.DPU_SERVICE_CHAIN)
            or self._texts.get(f"{kind}/{name}") == text
        ):
            return
        self._texts[f"{kind}/{name}"] = text
        seen = observation(text) if text else Observation(is_ready=False)
        if kind == kinds.DPU_DISCOVERY:
            self.searches.append((time_ms, seen))
        elif kind == kinds.DPU_SERVICE_CHAIN:
            self.chained = max(self.chained, int(seen.fields.get("applied", 0)) if seen.is_ready else 0)
        else:
            installed = str(seen.fields.get("installed", ""))
            self.dpus.append(DpuSeen(time_ms, name, seen.phase, installed, seen.message))

    def _take_rollouts(self, state: ResourcesState, time_ms: int) -> None:
        rows = state.rollouts.rows
        for key in dict.fromkeys((*rows, *self._rollouts)):
            row = rows.get(key)
            if row is not self._rollouts.get(key):
                self.rollouts.append(RolloutSeen(time_ms, key, row))
        self._rollouts = dict(rows)

    def _take_maintenances(self, state: ResourcesState) -> None:
        """Count new maintenances: several DPUs of a host share one."""
        now = frozenset(state.by_kind.get(f"{LOCAL}/{kinds.DPU_NODE_MAINTENANCE}", ()))
        self.drains += len(now - self._maintained)
        self._maintained = now

    def _take_steps(self, event: Event, time_ms: int) -> None:
        match event:
            case StepStarted():
                self._begun[event.dpu, event.phase] = time_ms
            case StepSucceeded():
                began_ms = self._begun.pop((event.dpu, event.phase), None)
                if began_ms is not None:
                    self.steps.append(StepDone(event.phase, event.dpu, began_ms, time_ms - began_ms))
            case StepFailed():
                self.failures.append((time_ms, event))
            case _:
                pass

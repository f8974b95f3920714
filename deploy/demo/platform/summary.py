"""The result of the platform demo, for people and scripts. Every number is read from the log."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from deploy.demo.platform.manifests import DEPLOYMENT, FIRST_IMAGE, SECOND_IMAGE, SERVICES, SET
from deploy.demo.platform.timeline import Timeline
from projections.resources import kinds

_LONGEST_PHASES = 4


@dataclass(frozen=True, slots=True)
class Wave:
    """A wave of the update: the DPUs that were released in it, and the seconds until its end or the hold."""

    dpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PhaseDuration:
    """The durations of a step in seconds, over all DPUs."""

    phase: str
    steps: int
    median: float
    longest: float


@dataclass(frozen=True, slots=True)
class PlatformSummary:
    """The result. `digests_match` means that a new fold of the log has the same state as the replica."""

    hosts: int
    hosts_with_dpus: int
    dpus: int
    found_dpus: int
    search_seconds: float
    first_install_seconds: float
    chained: int
    """The DPUs whose agents applied the network document with the chain."""
    drains: int
    installs: int
    durations: tuple[PhaseDuration, ...]
    waves: tuple[Wave, ...]
    held: str
    held_after_seconds: float
    failed_dpu: str
    failure: str
    of_deployment: int
    """The DPUs that the update concerns."""
    untouched: int
    undo_seconds: float
    delete_seconds: float
    remaining: int
    log_records: int
    log_bytes: int
    digests_match: bool

    @property
    def is_good(self) -> bool:
        is_complete = self.chained == self.of_deployment and not self.remaining
        return bool(self.held) and is_complete and self.digests_match

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_text(self) -> str:
        rows = [*self._rows()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}   {value}".rstrip() for name, value in rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "hosts", f"{self.hosts:,}, of which {self.hosts_with_dpus:,} have {self.dpus:,} DPUs"
        yield "discovery", f"{self.found_dpus:,} DPUs found in {self.search_seconds:.1f} s"
        yield "first installation", f"{self.dpus:,} DPUs ready in {self.first_install_seconds:.1f} s"
        yield "services", f"{', '.join(SERVICES)} ready, in a chain, on the DPUs of DPUDeployment {DEPLOYMENT}"
        yield "chain", f"in the network document of {_count(self.chained)}, each applied by the DPU's agent"
        yield "update", f"{_count(self.of_deployment)} of DPUDeployment {DEPLOYMENT} to {SECOND_IMAGE}, in waves"
        for number, wave in enumerate(self.waves, 1):
            yield f"  wave {number}", f"{_count(wave.dpus)} in {wave.seconds:.1f} s"
        yield "  failed", f"{self.failed_dpu}: {self.failure}"
        yield "  held by itself", f"after {self.held_after_seconds:.1f} s: {self.held}"
        yield "", f"{_count(self.untouched)} of later waves not touched"
        yield "roll back", f"every DPU runs {FIRST_IMAGE} again after {self.undo_seconds:.1f} s"
        installs = f"{self.installs:,} installs in {self.drains:,} drains: a host is drained once for all of its DPUs"
        yield "all of these together", installs
        for each in self.durations:
            yield f"  {each.phase}", f"median {each.median:.1f} s, longest {each.longest:.1f} s, {each.steps:,} times"
        yield "deletion", f"everything is gone after {self.delete_seconds:.1f} s; {self.remaining:,} objects remain"
        yield "log", f"{self.log_records:,} records, {self.log_bytes / 1e6:,.1f} MB"
        yield "folded afresh, same state", "yes" if self.digests_match else "no"


@dataclass(frozen=True, slots=True)
class Folded:
    """A log that was folded again."""

    records: int
    bytes: int
    remaining: int
    digests_match: bool


def summarize(
    timeline: Timeline, names: Collection[str], of_deployment: Collection[str], folded: Folded
) -> PlatformSummary:
    """The summary of a run with these DPUs."""
    began_ms = timeline.first_applied_ms(kinds.DPU_SET, SET)
    update_ms = timeline.first_applied_ms(kinds.DPU_DEPLOYMENT, DEPLOYMENT, 1)
    held = next((seen for seen in timeline.rollout_changes(update_ms) if seen.row is not None and seen.row.held), None)
    held_ms = held.time_ms if held is not None else update_ms
    undo_ms = min(timeline.requests_ms, default=held_ms)
    deleted_ms = min(
        (time_ms for time_ms, kind, _ in timeline.deleted if kind == kinds.DPU_DEPLOYMENT), default=undo_ms
    )
    failed = timeline.failed(update_ms, undo_ms)
    hosts = timeline.created(kinds.DPU_NODE)
    search = timeline.searches
    touched = timeline.touched(of_deployment, update_ms, undo_ms)
    return PlatformSummary(
        hosts=len(hosts),
        hosts_with_dpus=len({name.rpartition("-sim")[0] for name in names}),
        dpus=len(names),
        found_dpus=int(search[-1][1].fields.get("foundDPUs", 0)) if search else 0,
        search_seconds=_seconds(search[0][0], search[-1][0]) if search else 0.0,
        first_install_seconds=_seconds(began_ms, timeline.last_ready_ms(names, began_ms)),
        chained=timeline.chained,
        drains=timeline.drains,
        installs=sum(step.phase == "OS Installing" for step in timeline.steps),
        durations=tuple(_durations(timeline)),
        waves=tuple(_waves(timeline, update_ms, held_ms)),
        held=held.row.held if held is not None and held.row is not None else "",
        held_after_seconds=_seconds(update_ms, held_ms),
        failed_dpu=failed[0].name if failed else "",
        failure=failed[0].message if failed else "",
        of_deployment=len(of_deployment),
        untouched=len(of_deployment) - len(touched),
        undo_seconds=_seconds(undo_ms, timeline.last_ready_ms(touched, undo_ms, installed=f"{FIRST_IMAGE}/")),
        delete_seconds=_seconds(deleted_ms, timeline.last_ms),
        remaining=folded.remaining,
        log_records=folded.records,
        log_bytes=folded.bytes,
        digests_match=folded.digests_match,
    )


def _durations(timeline: Timeline) -> Iterator[PhaseDuration]:
    """The steps that take longest."""
    found = timeline.durations()
    longest = sorted(found, key=lambda phase: -sum(found[phase]))[:_LONGEST_PHASES]
    for phase in longest:
        took = found[phase]
        yield PhaseDuration(phase, len(took), took[len(took) // 2] / 1_000, took[-1] / 1_000)


def _waves(timeline: Timeline, since_ms: int, until_ms: int) -> Iterator[Wave]:
    """The waves of the rollout of the deployment until it was held."""
    released: Counter[int] = Counter()
    begins: dict[int, int] = {}
    for seen in timeline.rollout_changes(since_ms):
        if seen.row is None or not seen.row.deployment or seen.time_ms > until_ms:
            continue
        begins.setdefault(seen.row.wave, seen.time_ms)
        released[seen.row.wave] = max(released[seen.row.wave], seen.row.wave_releases)
    waves = sorted(begins)
    ends = [*(begins[wave] for wave in waves), until_ms][1:]
    for wave, end_ms in zip(waves, ends, strict=True):
        if released[wave]:
            yield Wave(released[wave], _seconds(begins[wave], end_ms))


def _count(dpus: int) -> str:
    return f"{dpus:,} DPU" if dpus == 1 else f"{dpus:,} DPUs"


def _seconds(since_ms: int, until_ms: int) -> float:
    return max(0, until_ms - since_ms) / 1_000

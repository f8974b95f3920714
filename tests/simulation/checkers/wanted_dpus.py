"""Wanted DPUs and their zones: one zone at a time, one installation per wanted identity, nothing left behind."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from math import inf

from eventstore.log import RESOURCES, ZONES, Partition, partition_of
from projections.resources.derivation import Derivation
from projections.resources.handover import DpuForZone, handover
from projections.resources.handover_needs import observed
from projections.resources.state import ResourcesState, object_id
from projections.zones.rows import Dpu, WantedDpu
from projections.zones.state import ZonesState
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import HostRebooted

Found = Iterator[str]

_OF_OPERATORS = ("provision", "pause", "abort", "skip", "retry", "delete")


def check_owners(run: Evidence) -> Found:
    """I31: a DPU that an object wants is in one zone at a time."""
    spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        since: dict[str, tuple[float, str]] = {}
        for step in steps:
            at_s = run.appended_s(partition, step.record.offset)
            for name, row in step.rows.get("dpus", ()):
                if row is None and name in since:
                    spans[name].append((since[name][0], at_s, since.pop(name)[1]))
            for name, wanted in step.rows.get("wanted_dpus", ()):
                if wanted is not None:
                    since.setdefault(name, (at_s, wanted.zone))
        for name, (from_s, zone) in since.items():
            spans[name].append((from_s, inf, zone))
    for name, found in spans.items():
        found.sort()
        for (_, end_s, first), (begin_s, _, second) in itertools.pairwise(found):
            if begin_s < end_s:
                yield f"{name} was in zone {first} until {end_s:.3f} s, and in zone {second} from {begin_s:.3f} s"


def check_installs(run: Evidence) -> Found:
    """I31: a statement of what is wanted starts an installation only for an image that the DPU does not have."""
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        rows: dict[str, Dpu | None] = {}
        wanted: dict[str, WantedDpu | None] = {}
        for step in steps:
            changed = dict(step.rows.get("dpus", ()))
            if isinstance(step.event, e.DpusWanted):
                for name in step.event.dpus:
                    before, after = rows.get(name), changed.get(name)
                    if before is None or after is None or after.phase == before.phase:
                        continue
                    if before.phase == "Ready" and after.phase != "Deleting" and after.image == before.installed:
                        yield f"{partition}@{step.record.offset} installs {after.image} on {name}, which has it"
            rows |= changed
            wanted |= dict(step.rows.get("wanted_dpus", ()))
        for name, row in wanted.items():
            if row is not None and rows.get(name) is None:
                yield f"{partition}: {name} is wanted by {row.object}, but is not registered"


def check_ranges(run: Evidence) -> Found:
    """I7: what is wanted of DPUs, and reported of them, counts if and only if it begins where the last range ended."""
    marks: dict[tuple[Partition, int], int] = {}
    tables = {e.DpusWanted: "resources_marks", e.ResourcesObserved: "marks"}
    for partition, steps in run.steps.items():
        for step in steps:
            event = step.event
            if not isinstance(event, e.DpusWanted | e.ResourcesObserved) or event.cause_partition < 0:
                continue
            key, table = (partition, event.cause_partition), tables[type(event)]
            mark = marks.get(key, 0)
            fits = event.from_offset == mark and event.to_offset >= mark
            if step.rows and not fits:
                yield f"{partition}@{step.record.offset}: [{event.from_offset}, {event.to_offset}) at mark {mark}"
            if fits != (table in step.rows) and event.to_offset > mark:
                yield f"{partition}@{step.record.offset}: the mark {mark} does not follow [{event.from_offset}, ...)"
            if fits:
                marks[key] = event.to_offset


def check_reboots(run: Evidence) -> Found:
    """I31: a host is rebooted only while its workload has made way."""
    for reboot in run.history.of(HostRebooted):
        if not reboot.was_drained:
            yield f"host {reboot.host} was rebooted at {reboot.at_s:.3f} s, and had not been drained"


def check_handed_over(run: Evidence) -> Found:
    """I31, at rest: zones have what objects want, objects have what zones report, and nothing else is left."""
    wanted: set[str] = set()
    for partition, folded in run.folded.items():
        if partition.topic != RESOURCES:
            continue
        state: ResourcesState = folded.state
        wanted |= {key for key, placement in state.placements.rows.items() if placement.ending < 0}
        derivation = Derivation()
        derivation.update(state, state.objects.rows)
        for key in derivation.dpus.winners:
            told = handover(state, derivation, key)
            if isinstance(told, DpuForZone):
                yield from _fault_of_wanted(run, state, key, told)
        for key, placement in state.placements.rows.items():
            if key not in derivation.dpus.winners and not _is_stuck(_zone(run, placement.zone), key):
                yield f"{key} is in zone {placement.zone}, and no object wants it"
    for zones in run.zone_states:
        for name, row in zones.wanted.rows.items():
            if row.object not in wanted:
                yield f"zone {row.zone} has {name} for {row.object}, which no object wants"


def _fault_of_wanted(run: Evidence, state: ResourcesState, key: str, told: DpuForZone) -> Found:
    placement = state.placements.rows.get(key)
    if placement is None:
        yield f"{key} is wanted in zone {told.zone}, and has no zone"
        return
    zones = _zone(run, placement.zone)
    if placement.zone != told.zone:
        if not _is_stuck(zones, key):
            yield f"{key} is in zone {placement.zone}, and is wanted in {told.zone}"
        return
    row, wanted = zones.dpus.rows.get(told.name), zones.wanted.rows.get(told.name)
    if row is None or wanted is None or wanted.object != key:
        yield f"{key} is wanted in zone {told.zone}, and is not there"
        return
    if (wanted.node, wanted.bmc_address, wanted.serial) != (told.node, told.bmc_address, told.serial):
        yield f"{key} is known in its zone as {wanted}, and is wanted as {told}"
    seen = state.observed.rows.get(key)
    if seen is None or seen.observation != observed(row):
        yield f"{key} is shown as {seen and seen.observation}, and is {observed(row)}"


def _zone(run: Evidence, zone: str) -> ZonesState:
    found: ZonesState = run.folded[Partition(ZONES, partition_of(zone.encode(), run.partition_count))].state
    return found


def _is_stuck(zones: ZonesState, key: str) -> bool:
    """Whether a DPU waits for an operator: its step fails, or an operator paused it."""
    row = zones.dpus.rows.get(object_id(key).name)
    return row is not None and (row.phase in ("Deleting", "Error") and (row.paused or row.failures > 0))

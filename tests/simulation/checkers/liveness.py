"""Without faults the plane comes to rest, or raises an alarm."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property

from eventstore.log import FLEET_0, ZONES
from tests.simulation.checkers.evidence import Evidence, is_membership
from tests.simulation.history import Alarm, FaultInjected, FinalPosition, ProcessUptime

Found = Iterator[str]

SILENT_S = 30.0
"""A change that does not reach fleet for this long in fault-free time must have raised an alarm."""

AFTERMATH_S = 20.0
"""How long the effects of a fault last after its end, by deadlines, backoffs and restarts."""


def check_forwarded(run: Evidence) -> Found:
    """I16, at rest: no change is left to forward, in either direction."""
    for partition, found in run.folded.items():
        if partition.topic != ZONES:
            continue
        if found.state.outbox_offsets:
            yield f"{partition} has not forwarded its changes at {found.state.outbox_offsets[:3]}"
        queue = run.fleet.outbox_queues.get(partition.number, ())
        if undelivered := [entry.offset for entry in queue if entry.offset >= found.state.fleet_mark]:
            yield f"fleet has not delivered to {partition} the records caused by {undelivered[:3]}"


def check_membership(run: Evidence) -> Found:
    """I16, at rest: fleet has each node of the zones, with the same zone and attributes, and no other node."""
    stated: dict[str, tuple[object, ...]] = {}
    for zone in run.zone_states:
        for name, node in zone.nodes.rows.items():
            if name in stated:
                yield f"node {name} is in {stated[name][0]} and in {node.zone}"
            stated[name] = (node.zone, node.created_ms, node.uid, node.address4, node.address6, node.labels)
    known = {
        name: (m.zone, m.created_ms, m.uid, m.address4 or m.contested4, m.address6 or m.contested6, m.labels)
        for name, m in run.fleet.members.rows.items()
        if not m.held
    }
    for name in sorted(stated.keys() | known.keys()):
        if stated.get(name) != known.get(name):
            yield f"node {name}: zones say {stated.get(name)}, fleet says {known.get(name)}"


def check_limits(run: Evidence) -> Found:
    """I16, at rest: every zone has the limits that fleet states for it."""
    entry = {name: row for state in run.zone_states for name, row in state.zone_rows.rows.items()}
    for name, zone in sorted(run.fleet.zones.rows.items()):
        stated = zone.parallel_installs, zone.unavailable_nodes
        row = entry.get(name)
        has = (row.parallel_installs, row.unavailable_nodes) if row is not None else (0, 0)
        if has != stated:
            yield f"{name} has limits {has}, and fleet has {stated}"


def check_idle(run: Evidence) -> Found:
    """I16, at rest: no DPU has an open or running step."""
    for zone in run.zone_states:
        for dpu in sorted({*zone.dpu_index.open, *zone.dpu_index.running}):
            row = zone.dpus.rows[dpu]
            if not (row.paused and row.step_state == "open"):
                yield f"{dpu} is at {row.phase}, {row.step_state}, attempt {row.attempt}: {row.message}"


def check_replicas(run: Evidence) -> Found:
    """I16, at rest: every replica has folded the whole log."""
    for final in run.history.of(FinalPosition):
        steps = run.steps.get(final.partition)
        if final.halted:
            yield f"{final.process} has halted {final.partition}: {final.halted}"
        elif steps and final.position != steps[-1].position:
            yield f"{final.process} is at {final.position} of {final.partition}, the log at {steps[-1].position}"


def check_alarms(run: Evidence) -> Found:
    """I20: a zones partition whose changes need over 30 fault-free seconds to reach fleet has raised an alarm."""
    if run.end_s is None:
        return
    fault_free = _FaultFree(run)
    alarmed = {alarm.about for alarm in run.history.of(Alarm) if alarm.raised}
    for partition, steps in run.steps.items():
        if partition.topic != ZONES or str(partition) in alarmed:
            continue
        forwards = run.taken(partition)
        ends = [to_offset for to_offset, _ in forwards]
        for step in steps:
            if not is_membership(step):
                continue
            offset = step.record.offset
            index = bisect_left(ends, offset + 1)
            began_s = run.appended_s(partition, offset)
            ended_s = run.appended_s(FLEET_0, forwards[index][1]) if index < len(ends) else run.end_s
            if (waited_s := fault_free.length_s(began_s, ended_s)) > SILENT_S:
                yield f"{partition}@{offset} reached fleet after {waited_s:.0f} fault-free s, without an alarm"
                break


class _FaultFree:
    """The intervals without faults."""

    def __init__(self, run: Evidence) -> None:
        self._run = run

    def length_s(self, from_s: float, to_s: float) -> float:
        """The fault-free seconds of this interval."""
        left = to_s - from_s
        for began_s, ended_s in self._fault_intervals:
            left -= max(0.0, min(to_s, ended_s) - max(from_s, began_s))
        return left

    @cached_property
    def _fault_intervals(self) -> list[tuple[float, float]]:
        """The fault intervals, merged."""
        intervals = [(fault.from_s, fault.to_s + AFTERMATH_S) for fault in self._run.history.of(FaultInjected)]
        ends_s = self._run.end_s or 0.0
        intervals += [
            (uptime.to_s, uptime.to_s + AFTERMATH_S)
            for uptime in self._run.history.of(ProcessUptime)
            if uptime.to_s < ends_s
        ]
        intervals += [(from_s, to_s + AFTERMATH_S) for from_s, to_s in self._run.gaps_without("api")]
        merged: list[tuple[float, float]] = []
        for began_s, ended_s in sorted(intervals):
            if merged and began_s <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], ended_s)
            else:
                merged.append((began_s, ended_s))
        return merged

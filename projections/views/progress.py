"""Progress of the fleet: per zone the number of DPUs with its newest reported table, and the duration of the last
changes.

Dashboards poll this view often, and few rows change between two polls. So each result is cached with the row of the
installs fold that it was computed from. Rows and a zone's list of versions are replaced on change and never mutated, so
the same object means the same result.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import NamedTuple

from pyroaring import BitMap

from projections.fleet.state import FleetState
from projections.fleet.tables import zone_table as tables
from projections.installs.rows import LEVELS, UNKNOWN_MS, InstallsState, Level, VersionInstalls
from projections.views.staging import LiveList, live_lists, reached_ordinals
from projections.zones.state import ZonesState

SHOWN_CHANGES = 120
"""Maximum number of versions in the view of latencies, which shows the newest versions."""

EDGES_MS = (0, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, -1)
"""Boundaries of the latency buckets; the last bucket is open-ended."""


class ProgressView(NamedTuple):
    zone: str
    nodes: int
    dpus: int
    version: int
    pending_start_time_ms: int
    unreported_start_time_ms: int
    reported: int
    received: int
    applied: int
    in_hardware: int
    frozen: bool
    exceptions: int
    stuck: int
    phases: dict[str, int]


class ChangeView(NamedTuple):
    version: int
    append_time_ms: int
    dpus: int
    p50_latency_ms: int
    p99_latency_ms: int
    max_latency_ms: int


class BucketView(NamedTuple):
    min_latency_ms: int
    max_latency_ms: int
    dpus: int


class LatencyView(NamedTuple):
    changes: tuple[ChangeView, ...]
    buckets: tuple[BucketView, ...]


class _LevelCounts(NamedTuple):
    received: int
    applied: int
    in_hardware: int
    pending_since_ms: int


_NOWHERE = _LevelCounts(0, 0, 0, 0)


class _Counted(NamedTuple):
    numbers: list[int]
    ordinals: int
    reach: _LevelCounts


class ProgressViews:
    """Views of zones, with cached counts for their newest version."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def view(
        self, zone: str, state: ZonesState, fleet: FleetState, installs: InstallsState, epoch: int
    ) -> ProgressView:
        """The view of a zone. `epoch` is the epoch of the present tables: reports of another epoch come from before a
        restore."""
        now = tables.table(fleet, zone)
        dpus = state.dpu_index.zone(zone)
        row = installs.zones.rows.get(zone)
        told = row if row is not None and row.epoch == epoch else None
        numbers = installs.numbers.get(zone) if told is not None else None
        reported = numbers[-1] if numbers else 0
        reach = self._reach(zone, numbers, dpus.used, installs) if numbers else _NOWHERE
        if numbers and len(fleet.stages_of(zone)) > 1:
            reach = _reach_of_lists(zone, live_lists(zone, dpus.names, fleet), installs)
        is_unreported = dpus.names and reported < now.version
        return ProgressView(
            zone=zone,
            nodes=state.node_counts.get(zone, 0),
            dpus=len(dpus.names),
            version=now.version,
            pending_start_time_ms=reach.pending_since_ms,
            unreported_start_time_ms=tables.earliest_since(fleet, zone, reported) if is_unreported else 0,
            reported=reported,
            received=reach.received,
            applied=reach.applied,
            in_hardware=reach.in_hardware,
            frozen=fleet.is_frozen(zone),
            exceptions=len(told.exceptions) if told is not None else 0,
            stuck=len(dpus.stuck),
            phases=dict(dpus.phases),
        )

    def _reach(self, zone: str, numbers: list[int], ordinals: int, installs: InstallsState) -> _LevelCounts:
        known = self._counted.get(zone)
        if known is None or known.numbers is not numbers or known.ordinals != ordinals:
            known = self._counted[zone] = _Counted(numbers, ordinals, _reach(zone, numbers, ordinals, installs))
        return known.reach


class Latencies:
    """Latencies of the last versions: call `take` with each partition's state, then read the `view`.

    Rows are summed up by version, and only changed rows are counted again.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[tuple[str, int], VersionInstalls]] = {}
        self._delays: dict[int, Counter[int]] = {}
        self._appended: dict[int, int] = {}

    def take(self, partition: int, state: InstallsState) -> None:
        before, rows = self._rows.get(partition, {}), {}
        for zone, numbers in state.numbers.items():
            for number in numbers:
                row = state.version(zone, number)
                if row is None or row.appended_ms <= 0:
                    continue
                rows[zone, number] = row
                known = before.pop((zone, number), None)
                if known is not row:
                    self._count(number, row, known)
        for (_, number), gone in before.items():
            self._count(number, None, gone)
        self._rows[partition] = rows

    def view(self) -> LatencyView:
        shown = sorted(heapq.nlargest(SHOWN_CHANGES, self._delays))
        changes = (_change(number, self._appended[number], self._delays[number]) for number in shown)
        return LatencyView(tuple(changes), tuple(_buckets(self._delays[number] for number in shown)))

    def _count(self, number: int, row: VersionInstalls | None, known: VersionInstalls | None) -> None:
        """Count this row of a version in place of the former row."""
        found = self._delays.pop(number, Counter())
        if known is not None:
            found.subtract(_delays(known))
        if row is not None:
            found.update(_delays(row))
            self._appended[number] = min(row.appended_ms, self._appended.get(number, row.appended_ms))
        if left := +found:
            self._delays[number] = left
        else:
            self._appended.pop(number, None)


def _reach(zone: str, numbers: list[int], ordinals: int, installs: InstallsState) -> _LevelCounts:
    """DPUs at each level of the newest version. A DPU that has the version in hardware has also applied it, and a DPU
    that has applied the version has also received it."""
    row = installs.version(zone, numbers[-1])
    assert row is not None, f"{zone} has no row of its version {numbers[-1]}"
    there = BitMap(number for number in range(ordinals.bit_length()) if ordinals >> number & 1)
    reached = BitMap()
    counts = []
    for level in reversed(row.levels):
        for _, packed in level:
            reached |= BitMap.deserialize(packed)
        counts.append(len(reached & there))
    assert len(counts) == len(LEVELS)
    is_whole = counts[0] == len(there)
    return _LevelCounts(counts[2], counts[1], counts[0], 0 if is_whole else _waiting_ms(zone, there, installs))


def _reach_of_lists(zone: str, lists: Iterable[LiveList], installs: InstallsState) -> _LevelCounts:
    """DPUs at each level of the list that they should have, while a zone has two lists."""
    counts, pending = [0] * len(LEVELS), []
    for found in lists:
        reached = [len(found.ordinals & reached_ordinals(zone, installs, found.version, level)) for level in Level]
        counts = [sum(pair) for pair in zip(counts, reached, strict=True)]
        if reached[Level.IN_HARDWARE] < len(found.ordinals):
            row = installs.version(zone, found.version)
            pending.append(row.appended_ms if row is not None else 0)
    return _LevelCounts(
        counts[Level.RECEIVED], counts[Level.APPLIED], counts[Level.IN_HARDWARE], min(pending, default=0)
    )


def _waiting_ms(zone: str, there: BitMap, installs: InstallsState) -> int:
    """Append time of the earliest remembered version that some of these DPUs do not have in hardware.

    A DPU that has a version has all earlier versions, too. So the DPUs with a version are found in the row of that
    version and in the rows of all later versions.
    """
    missing, pending_since_ms = BitMap(there), 0
    for number in reversed(installs.numbers[zone]):
        row = installs.version(zone, number)
        assert row is not None, f"{zone} has no row of its version {number}"
        for _, packed in row.levels[Level.IN_HARDWARE]:
            missing -= BitMap.deserialize(packed)
        if not missing:
            break
        pending_since_ms = row.appended_ms or pending_since_ms
    return pending_since_ms


def _delays(row: VersionInstalls) -> Counter[int]:
    """Counts of DPUs by the time from the append to the hardware."""
    found: Counter[int] = Counter()
    for time_ms, packed in row.levels[Level.IN_HARDWARE]:
        if time_ms < UNKNOWN_MS:
            found[max(time_ms - row.appended_ms, 0)] += len(BitMap.deserialize(packed))
    return found


def _change(version: int, appended_ms: int, delays: Counter[int]) -> ChangeView:
    times = sorted(delays)
    below = list(accumulate(delays[time] for time in times))
    total = below[-1]

    def within(permille: int) -> int:
        return times[min(bisect_right(below, (total * permille - 1) // 1000), len(times) - 1)]

    return ChangeView(version, appended_ms, total, within(500), within(990), times[-1])


def _buckets(delays: Iterable[Counter[int]]) -> Iterable[BucketView]:
    starts = EDGES_MS[:-1]
    counts = [0] * len(starts)
    for found in delays:
        for delay, dpus in found.items():
            counts[bisect_right(starts, delay) - 1] += dpus
    return (BucketView(first, end, dpus) for (first, end), dpus in zip(pairwise(EDGES_MS), counts, strict=True))

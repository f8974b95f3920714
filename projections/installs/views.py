"""Views of install progress: per version the number of DPUs at each level, and the time at which most had reached it.

A DPU with a later version has every earlier one, and a DPU that has a version in hardware has applied and received it.
The views apply this rule, from the newest version down; the stored rows hold only what was reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from projections.installs.rows import LEVELS, MAX_VERSIONS, UNKNOWN_MS, DpuException, InstallsState, Level

PERMILLES = (500, 990, 999, 1000)


class Milestone(msgspec.Struct, frozen=True):
    """The time from the change until this share (permille) of the zone's DPUs reached `level`; -1 if unknown."""

    level: str
    permille: int
    after_ms: int


class VersionProgress(msgspec.Struct, frozen=True):
    """One version: DPUs at each level, and the milestones reached, by level and share."""

    version: int
    appended_ms: int
    received: int
    applied: int
    in_hardware: int
    milestones: tuple[Milestone, ...]


class ZoneProgress(msgspec.Struct, frozen=True):
    """A zone's versions, newest first, and its DPUs with exceptions, by name."""

    zone: str
    epoch: int
    dpu_count: int
    versions: tuple[VersionProgress, ...]
    exceptions: tuple[DpuException, ...]


def zone_progress(
    state: InstallsState, zone: str, versions: int = MAX_VERSIONS, *, ordinals: Collection[int] | None = None
) -> ZoneProgress | None:
    """Progress on a zone's newest `versions`; None without a report. The cost grows with `versions`.

    It covers the DPUs with these ordinals. Without ordinals, it covers every DPU that reported, and the number of DPUs
    is the last reported one.
    """
    row = state.zones.rows.get(zone)
    if row is None:
        return None
    dpu_count = row.dpu_count if ordinals is None else len(ordinals)
    reached = _Reached(ordinals)
    progress = []
    for number in state.numbers[zone][-1 : -versions - 1 : -1]:
        installs = state.version(zone, number)
        assert installs is not None, f"{zone} has no row of its version {number}"
        reached.add(installs.levels)
        counts = reached.counts()
        milestones = reached.milestones(installs.appended_ms, dpu_count)
        progress.append(VersionProgress(number, installs.appended_ms, *counts, milestones))
    return ZoneProgress(zone, row.epoch, dpu_count, tuple(progress), row.exceptions)


def laggards(
    state: InstallsState, zone: str, *, level: int = Level.APPLIED, ordinals: Iterable[int] | None = None
) -> list[int]:
    """The DPUs that have not reached `level` with the zone's newest version, by ordinal. Only DPUs in `ordinals` count;
    by default these are all ordinals below the last reported number of DPUs."""
    row = state.zones.rows.get(zone)
    numbers = state.numbers.get(zone)
    if row is None or not numbers:
        return []
    newest = state.version(zone, numbers[-1])
    assert newest is not None, f"{zone} has no row of its version {numbers[-1]}"
    there = BitMap()
    for reached in newest.levels[level:]:
        for _, packed in reached:
            there |= BitMap.deserialize(packed)
    return list(BitMap(range(row.dpu_count) if ordinals is None else ordinals) - there)


class _Reached:
    """The earliest time at which each DPU reached each level, over the versions added so far. Only DPUs with the
    `wanted` ordinals count; all DPUs, if `wanted` is None."""

    def __init__(self, wanted: Iterable[int] | None) -> None:
        self._wanted = None if wanted is None else BitMap(wanted)
        self._times: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64) for _ in LEVELS]

    def add(self, levels: Iterable[Iterable[tuple[int, bytes]]]) -> None:
        for level, reached in enumerate(levels):
            for time_ms, packed in reached:
                told = BitMap.deserialize(packed)
                ordinals = np.array(told if self._wanted is None else told & self._wanted, np.int64)
                for implied in range(level + 1) if len(ordinals) else ():
                    self._at_most(implied, ordinals, time_ms)

    def counts(self) -> tuple[int, int, int]:
        received, applied, in_hardware = (int(np.count_nonzero(times >= 0)) for times in self._times)
        return received, applied, in_hardware

    def milestones(self, appended_ms: int, dpu_count: int) -> tuple[Milestone, ...]:
        found = []
        for name, times in zip(LEVELS, self._times, strict=True):
            known = np.sort(times[times >= 0])
            for permille in PERMILLES:
                needed = -(-dpu_count * permille // 1000)
                if 0 < needed <= len(known):
                    time_ms = int(known[needed - 1])
                    is_known = time_ms < UNKNOWN_MS and appended_ms > 0
                    found.append(Milestone(name, permille, max(time_ms - appended_ms, 0) if is_known else -1))
        return tuple(found)

    def _at_most(self, level: int, ordinals: npt.NDArray[np.int64], time_ms: int) -> None:
        times = self._times[level]
        missing = int(ordinals[-1]) + 1 - len(times)
        if missing > 0:
            times = self._times[level] = np.concatenate([times, np.full(missing, -1, np.int64)])
        known = times[ordinals]
        times[ordinals] = np.where((known < 0) | (known > time_ms), time_ms, known)

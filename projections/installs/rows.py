"""Install progress of a partition's zones, in a form that accepts reports in any order and any number.

Reports come from several relays, and may be duplicated, late or overlapping. So every merge is commutative, associative
and idempotent. A DPU reached a level of a version at the earliest reported time. A zone's DPU count is the last
reported one. A zone has the newest exception of each DPU, and only its newest versions. For each version and level, a
row maps times to bitmaps with the ordinals of the DPUs that reached the level at that time. Reports have the same form.

Each time is rounded up by at most 1/64 of its distance from the version's append time, so a row has some hundred
bitmaps, however many reports arrive. Reports that disagree on the append time add bitmaps, up to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec
from pyroaring import BitMap

from eventstore.folding.state_table import StateTable


class Level(IntEnum):
    """The progress of a table version on a DPU."""

    RECEIVED = 0
    APPLIED = 1
    IN_HARDWARE = 2


LEVELS = tuple(level.name.lower() for level in Level)

MAX_VERSIONS = 20
"""Maximum number of versions stored per zone, the newest ones. A DPU with a version has all earlier ones, so laggards
are known without the older versions."""

MAX_EXCEPTIONS = 200
"""Maximum number of rollbacks and refusals stored per zone, the newest ones."""

UNKNOWN_MS = 1 << 62
"""Stands for an unknown time at which a level was reached. It is later than any known time, so a known time replaces it
in a merge."""

MAX_TIMES = 1_024
"""Maximum number of times of one version and level. Correct reports yield fewer; incorrect ones only cost precision."""

_EXACT_BITS = 7


class DpuException(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """A DPU that rolled back to `version`, or that refused or lost its table (`version` -1) for `reason`, and the time
    of the report."""

    reported_ms: int
    dpu: str
    version: int
    reason: str


class ZoneInstalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One zone: the epoch of its versions, its DPU count, and the DPUs with exceptions, newest first."""

    epoch: int
    reported_ms: int
    dpu_count: int
    exceptions: tuple[DpuException, ...] = ()


ReachedTimes = tuple[tuple[int, bytes], ...]
"""(time, ordinals) in order of time; no ordinal twice."""


class VersionInstalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One version of one zone: append time of its earliest change (0: unknown), and the DPUs at each level by time."""

    appended_ms: int
    received: ReachedTimes = ()
    applied: ReachedTimes = ()
    in_hardware: ReachedTimes = ()

    @property
    def levels(self) -> tuple[ReachedTimes, ReachedTimes, ReachedTimes]:
        return (self.received, self.applied, self.in_hardware)


class InstallsState:
    """`zones` is keyed by zone, `versions` by zone and version; `numbers` has each zone's versions, ascending."""

    def __init__(self) -> None:
        self.zones: StateTable[ZoneInstalls] = StateTable("zones", ZoneInstalls)
        self.versions: StateTable[VersionInstalls] = StateTable("versions", VersionInstalls)
        self.numbers: dict[str, list[int]] = {}

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        return (self.zones, self.versions)

    def rederive(self) -> None:
        self.numbers = {zone: [] for zone in self.zones.rows}
        for key in sorted(self.versions.rows):
            zone, number = key.rsplit("/", 1)
            self.numbers[zone].append(int(number))

    def version(self, zone: str, number: int) -> VersionInstalls | None:
        return self.versions.rows.get(version_key(zone, number))


def version_key(zone: str, number: int) -> str:
    """A key that sorts by version within a zone; a zone has no slash (projections/field_checks.py)."""
    return f"{zone}/{number:019d}"


def rounded(reached_ms: int, appended_ms: int) -> int:
    """The stored form of the time at which a DPU reached a version: rounded up by at most 1/64 of the time since the
    append of the version."""
    after = max(reached_ms - appended_ms, 0)
    step = 1 << max(after.bit_length() - _EXACT_BITS, 0)
    return appended_ms + -(-after // step) * step


def merged_times(reached: ReachedTimes, more: Mapping[int, BitMap]) -> ReachedTimes:
    """These entries merged, so that each ordinal is only at its earliest time."""
    times = {known_ms: BitMap.deserialize(packed) for known_ms, packed in reached}
    for time_ms, ordinals in more.items():
        times[time_ms] = times[time_ms] | ordinals if time_ms in times else ordinals
    seen = BitMap()
    result = []
    for known_ms in sorted(times):
        fresh = times[known_ms] - seen
        if fresh:
            seen |= fresh
            result.append((known_ms, fresh))
    while len(result) > MAX_TIMES:
        result = _halved(result)
    return tuple((known_ms, _packed(ordinals)) for known_ms, ordinals in result)


def _halved(times: list[tuple[int, BitMap]]) -> list[tuple[int, BitMap]]:
    """Merge every two neighbouring times into the later one."""
    pairs = zip(times[::2], times[1::2], strict=False)
    return [(later, one | other) for (_, one), (later, other) in pairs] + times[len(times) & ~1 :]


def newest_exceptions(known: Sequence[DpuException], more: Sequence[DpuException]) -> tuple[DpuException, ...]:
    """The newest exception per DPU, newest first."""
    last: dict[str, DpuException] = {}
    for exception in (*known, *more):
        if exception.dpu not in last or exception > last[exception.dpu]:
            last[exception.dpu] = exception
    return tuple(sorted(last.values(), reverse=True)[:MAX_EXCEPTIONS])


def _packed(ordinals: BitMap) -> bytes:
    """A canonical serialization per set, so that equal states are equal bytes."""
    canonical = BitMap(ordinals)
    canonical.run_optimize()
    return bytes(canonical.serialize())

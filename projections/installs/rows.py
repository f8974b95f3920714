"""What is known of the installs of a partition's zones, in a form that takes reports in any order and any number.

Reports are statements of several relays: copied, late, overlapping. So everything here is merged by an operation that
is commutative, associative and idempotent: a DPU reached a level of a version at the earliest time that anyone saw it;
a zone's DPU count is the one said last; of exceptions the newest per DPU stay, and of versions the newest. When DPUs
reached a level is kept as bitmaps of ordinals per time, which is what reports bring, a few per version and level.

Reached times are kept to 1/64 of their distance from the version's append time, so that however many reports there are,
a row has some hundred bitmaps. Reports that contradict each other on that append time make it more, up to a bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyroaring import BitMap

from eventstore.folding.state_table import StateTable

RECEIVED, APPLIED, IN_HARDWARE = range(3)
LEVELS = ("received", "applied", "in_hardware")

MAX_VERSIONS = 20
"""Versions remembered per zone: the newest. Holding one implies those before it, so who lags is known without them."""

MAX_EXCEPTIONS = 200
"""DPUs that went back or refused, remembered per zone: the newest."""

UNKNOWN_MS = 1 << 62
"""Reached, nobody knows when: later than any time, so that any time is earlier."""

MAX_TIMES = 1_024
"""Times of one version and level. Honest reports have fewer; others only cost precision."""

_EXACT_BITS = 7


class DpuException(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """A DPU that went back to `version`, or that refused its table (`version` -1) for `reason`, when it was said."""

    said_ms: int
    dpu: str
    version: int
    reason: str


class ZoneInstalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One zone: the epoch of its versions, how many DPUs it has, and those out of the ordinary, the newest first."""

    epoch: int
    said_ms: int
    dpu_count: int
    exceptions: tuple[DpuException, ...] = ()


ReachedTimes = tuple[tuple[int, bytes], ...]
"""(time, ordinals) in order of time; no ordinal twice."""


class VersionInstalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One version of one zone: when its earliest change was appended (0: unknown), and who reached which level when."""

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
    """Sorts by version within a zone; a zone has no slash (projections/field_checks.py)."""
    return f"{zone}/{number:019d}"


def rounded(reached_ms: int, appended_ms: int) -> int:
    """A reached time as it is kept: late by at most 1/64 of its distance from the append time, never before it."""
    after = max(reached_ms - appended_ms, 0)
    step = 1 << max(after.bit_length() - _EXACT_BITS, 0)
    return appended_ms + -(-after // step) * step


def merged_times(reached: ReachedTimes, more: Mapping[int, BitMap]) -> ReachedTimes:
    """With these ordinals at these times, each at the earliest of its times."""
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
    """Every two times as the later one."""
    pairs = zip(times[::2], times[1::2], strict=False)
    return [(later, one | other) for (_, one), (later, other) in pairs] + times[len(times) & ~1 :]


def newest_exceptions(known: Sequence[DpuException], more: Sequence[DpuException]) -> tuple[DpuException, ...]:
    """Per DPU what was said last, the newest of them first."""
    last: dict[str, DpuException] = {}
    for exception in (*known, *more):
        if exception.dpu not in last or exception > last[exception.dpu]:
            last[exception.dpu] = exception
    return tuple(sorted(last.values(), reverse=True)[:MAX_EXCEPTIONS])


def _packed(ordinals: BitMap) -> bytes:
    """One spelling per set, so that equal states are equal bytes."""
    canonical = BitMap(ordinals)
    canonical.run_optimize()
    return bytes(canonical.serialize())

"""The installs fold: install progress of each zone's DPUs per version of its rules.

Relays report on change: per version and level, the ordinals of the DPUs that reached it. The fold only merges reports
(see `rows`). Its state is for display and decides nothing else. Its topic has a retention of 30 days.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyroaring import BitMap

from eventstore.folding.fold import DONE, Decision, RecordMetadata, refusal
from eventstore.log import INSTALLS, Partition
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_name, check_text, check_zone
from projections.installs.rows import (
    MAX_VERSIONS,
    UNKNOWN_MS,
    DpuException,
    InstallsState,
    VersionInstalls,
    ZoneInstalls,
    merged_times,
    newest_exceptions,
    rounded,
    version_key,
)
from schemas.events import MAX_ITEMS, Event, InstallsReported

__all__ = ["InstallsFold", "InstallsState"]

MAX_ORDINAL = 1 << 20
"""Every ordinal is below this number. A bitmap of a large range takes few bytes, but its expansion takes many."""

MAX_REFUSAL_REASON = 253
_MAX_TIME_MS = 1 << 52


class LevelReport(NamedTuple):
    """One entry of a report."""

    version: int
    level: int
    ordinals: BitMap
    appended_ms: int
    reached_ms: int


class InstallsChange(NamedTuple):
    """New rows of one zone, and the versions to drop."""

    zone: str
    row: ZoneInstalls | None
    versions: dict[int, VersionInstalls]
    forgotten: tuple[int, ...]


class InstallsFold:
    """The installs fold, version 1."""

    topic = INSTALLS
    version = 1
    accepts = frozenset({InstallsReported.__name__})

    def initial_state(self, partition: Partition) -> InstallsState:
        return InstallsState()

    def decide(self, state: InstallsState, event: Event, at: RecordMetadata) -> Decision:
        if not isinstance(event, InstallsReported):
            return refusal(f"event: {type(event).__name__} is not an event of the installs topic")
        entries = _entries(event)
        if isinstance(entries, str):
            return refusal(entries)
        zone = state.zones.rows.get(event.zone)
        if zone is not None and event.epoch < zone.epoch:
            reason = f"epoch: {event.epoch} is before {zone.epoch}, the epoch of zone {event.zone!r}"
            return refusal(Fault(reason, Reason.REPORT_OUTDATED, zone=event.zone, epoch=zone.epoch))
        return Decision(_change(state, zone, event, entries), DONE)

    def evolve(self, state: InstallsState, change: InstallsChange, at: RecordMetadata) -> None:
        numbers = set(state.numbers.get(change.zone, ()))
        for number, row in change.versions.items():
            state.versions.put(version_key(change.zone, number), row)
        for number in change.forgotten:
            state.versions.remove(version_key(change.zone, number))
        state.numbers[change.zone] = sorted((numbers | change.versions.keys()) - set(change.forgotten))
        assert len(state.numbers[change.zone]) <= MAX_VERSIONS, f"{change.zone} has too many versions"
        if change.row is not None:
            state.zones.put(change.zone, change.row)


def _change(
    state: InstallsState, zone: ZoneInstalls | None, event: InstallsReported, entries: list[LevelReport]
) -> InstallsChange | None:
    is_new_epoch = zone is None or event.epoch > zone.epoch
    known = state.numbers.get(event.zone, [])
    kept = [] if is_new_epoch else known
    numbers = sorted({*kept, *(entry.version for entry in entries)})[-MAX_VERSIONS:]
    rows: dict[int, VersionInstalls] = {}
    for number in sorted({entry.version for entry in entries}.intersection(numbers)):
        old = None if is_new_epoch else state.version(event.zone, number)
        rows[number] = _with(old or VersionInstalls(0), [entry for entry in entries if entry.version == number])
    if not is_new_epoch:
        rows = {number: row for number, row in rows.items() if row != state.version(event.zone, number)}
    row = _zone_row(None if is_new_epoch else zone, event)
    forgotten = tuple(number for number in known if number not in numbers or (is_new_epoch and number not in rows))
    if row == zone and not rows and not forgotten:
        return None
    return InstallsChange(event.zone, row if row != zone else None, rows, forgotten)


def _with(row: VersionInstalls, entries: Sequence[LevelReport]) -> VersionInstalls:
    """The row, merged with these entries of its version. Each level is merged once, whatever the number of its entries,
    so the sender cannot choose the cost of a record."""
    levels = list(row.levels)
    for level in sorted({entry.level for entry in entries}):
        times: dict[int, BitMap] = {}
        for entry in entries:
            if entry.level == level:
                time_ms = _time_of(entry)
                times[time_ms] = times[time_ms] | entry.ordinals if time_ms in times else entry.ordinals
        levels[level] = merged_times(levels[level], times)
    appended = [time_ms for time_ms in (row.appended_ms, *(entry.appended_ms for entry in entries)) if time_ms > 0]
    return VersionInstalls(min(appended, default=0), *levels)


def _time_of(entry: LevelReport) -> int:
    is_known = 0 < entry.appended_ms <= entry.reached_ms
    return rounded(entry.reached_ms, entry.appended_ms) if is_known else UNKNOWN_MS


def _zone_row(zone: ZoneInstalls | None, event: InstallsReported) -> ZoneInstalls:
    reported_ms = event.envelope.issued_at_ms
    regressed = [DpuException(reported_ms, dpu, version, "") for dpu, version in event.regressed.items()]
    refusals = [DpuException(reported_ms, dpu, -1, reason) for dpu, reason in event.refused.items()]
    exceptions = newest_exceptions(zone.exceptions if zone is not None else (), [*regressed, *refusals])
    said, count = reported_ms, event.dpu_count
    if zone is not None:
        said, count = max((said, count), (zone.reported_ms, zone.dpu_count))
    return ZoneInstalls(event.epoch, said, count, exceptions)


def _entries(event: InstallsReported) -> list[LevelReport] | str:
    """The entries of a report, or its first fault."""
    fault = _fault(event)
    if fault is not None:
        return fault
    count = len(event.ordinals)
    columns = (event.versions, event.levels, event.appended_ms, event.reached_ms)
    spread = [list(column) * count if len(column) == 1 else column for column in columns]
    entries = []
    for number, (version, level, appended_ms, reached_ms) in enumerate(zip(*spread, strict=True)):
        ordinals = _bitmap(event.ordinals[number])
        if ordinals is None:
            return f"ordinals[{number}]: {len(event.ordinals[number])} bytes are not a roaring bitmap of DPU ordinals"
        if (
            version < 0
            or not 0 <= level <= 2
            or not 0 <= appended_ms < _MAX_TIME_MS
            or not 0 <= reached_ms < _MAX_TIME_MS
        ):
            return f"versions[{number}]: {version} at level {level} must have a level of 0 to 2 and valid times"
        if ordinals:
            entries.append(LevelReport(version, level, ordinals, appended_ms, reached_ms))
    return entries


def _fault(event: InstallsReported) -> str | None:
    count = len(event.ordinals)
    columns: tuple[tuple[str, Sequence[int]], ...] = (
        ("versions", event.versions),
        ("levels", event.levels),
        ("appended_ms", event.appended_ms),
        ("reached_ms", event.reached_ms),
    )
    for field, column in columns:
        if len(column) not in (1, count):
            return f"{field}: {len(column)} values must be 1, or one for each of the {count} ordinals"
    if max(count, len(event.regressed), len(event.refused)) > MAX_ITEMS:
        return f"ordinals: {count} items, and those of regressed and refused, must each be at most {MAX_ITEMS}"
    if not 0 <= event.dpu_count <= MAX_ORDINAL:
        return f"dpu_count: {event.dpu_count} must be from 0 to {MAX_ORDINAL}"
    if event.epoch < 0:
        return f"epoch: {event.epoch} must be 0 or more"
    fault = check_zone("zone", event.zone)
    for dpu in (*event.regressed, *event.refused):
        fault = fault or check_name("dpu", dpu)
    for reason in event.refused.values():
        fault = fault or check_text("refused", reason, MAX_REFUSAL_REASON)
    return fault


def _bitmap(packed: bytes) -> BitMap | None:
    """Parse a bitmap from the log, which may be any bytes; the library also checks its inner structure."""
    try:
        ordinals = BitMap.deserialize(packed)
    except (ValueError, IndexError):
        return None
    return ordinals if not ordinals or ordinals.max() < MAX_ORDINAL else None

"""The rollout of images: admission to installs. DPUs wait in a queue per zone and are admitted within its limits.

Two limits bound a zone's blast radius: the number of DPUs that are installed at a time, and the number of nodes that
are out of service for installs. A failed DPU frees its place among the parallel installs, while its node stays out of
service: so repeated failures stop a rollout without an operator. A DPU whose node is already out of service goes first,
and needs no capacity under the second limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from projections.attempt_limits import AttemptsByFailure
from projections.zones.dpus.index import ZoneDpus, host_of
from projections.zones.dpus.phases import ALTERING, INSTALLING, NODE_EFFECT, PENDING
from projections.zones.rows import Dpu, Zone
from projections.zones.state import ZonesState

DEFAULT_PARALLEL_INSTALLS = 50
DEFAULT_UNAVAILABLE_NODES = 50
"""Both defaults are those of the DOCA Platform Framework."""


class RolloutLimits(NamedTuple):
    """The limits of one zone."""

    parallel_installs: int
    unavailable_nodes: int


class DpuChange(NamedTuple):
    """The row of the record's DPU before and after. The name is empty for a record about no DPU."""

    name: str = ""
    old: Dpu | None = None
    new: Dpu | None = None


class InstallAdmission(NamedTuple):
    """DPUs that are admitted to an install, and the reason why the next one is not."""

    rows: dict[str, Dpu]
    full: str


def limits_of(row: Zone | None) -> RolloutLimits:
    """The limits of a zone, with defaults filled in."""
    row = row or Zone()
    return RolloutLimits(
        row.parallel_installs or DEFAULT_PARALLEL_INSTALLS, row.unavailable_nodes or DEFAULT_UNAVAILABLE_NODES
    )


def enter_phase(row: Dpu, phase: str, at: RecordMetadata) -> Dpu:
    """The row of a DPU at the start of a step, which waits for an attempt."""
    return replace(
        row,
        phase=phase,
        step_state="open",
        entered=row.attempt,
        disowned=row.attempt,
        since=at.offset,
        since_ms=at.time_ms,
        installed="" if phase in ALTERING else row.installed,
        failures=0,
        failed=AttemptsByFailure(),
        not_before_ms=0,
        deadline_ms=0,
        provisioner="",
        task="",
        percent=0,
        resume="",
        message="",
    )


def admit(
    state: ZonesState, zone: str, limits: RolloutLimits, changed: DpuChange, at: RecordMetadata
) -> InstallAdmission:
    """Admit DPUs within the limits, given the other changes of this record.

    Every record admits all DPUs that fit. So a record that frees no capacity can only admit its own DPU. This shortcut
    matters: with thousands in the queue, a scan at every step, or at every new entry, would be most of the fold's time.
    """
    index = state.dpu_index.zone(zone)
    if not _frees_capacity(changed):
        line: Iterable[str] = (changed.name,) if _is_queued(changed.new) else ()
    else:
        line = _queued(index, changed)
    room = limits.parallel_installs - index.installing - _installing(changed.new) + _installing(changed.old)
    hosts = _Unavailable(index, changed)
    rows: dict[str, Dpu] = {}
    full = ""
    if room <= 0:
        return InstallAdmission(rows, _too_many_installs(zone, limits))
    for name in line:
        row = changed.new if name == changed.name else state.dpus.rows[name]
        assert row is not None, f"{name} is in the queue and deleted"
        if row.paused:
            continue
        if len(rows) == room:
            full = _too_many_installs(zone, limits)
            break
        if not row.effect and not hosts.take(host_of(name, row), limits.unavailable_nodes):
            full = f"unavailable_nodes: {limits.unavailable_nodes} nodes of zone {zone!r} are out of service, the limit"
            continue
        # Set even for a DPU that skips the Node Effect: capacity taken here without `effect` would never be freed.
        rows[name] = enter_phase(replace(row, effect=True), row.resume or NODE_EFFECT, at)
    return InstallAdmission(rows, full)


def admit_all(
    state: ZonesState, zone: str, limits: RolloutLimits, changes: Sequence[DpuChange], at: RecordMetadata
) -> dict[str, Dpu]:
    """Admit DPUs within the limits, after the changes of a record about many DPUs of a zone."""
    index = state.dpu_index.zone(zone)
    room = limits.parallel_installs - index.installing
    room -= sum(_installing(each.new) - _installing(each.old) for each in changes)
    unavailable = Counter(index.unavailable)
    for each in changes:
        for row, by in ((each.old, -1), (each.new, 1)):
            if row is not None and row.effect:
                unavailable[host_of(each.name, row)] += by
    unavailable = +unavailable
    rows: dict[str, Dpu] = {}
    for name, row in _queued_of_all(state, index, changes):
        if len(rows) >= room:
            break
        if row.paused:
            continue
        host = host_of(name, row)
        if not row.effect and host not in unavailable and len(unavailable) >= limits.unavailable_nodes:
            continue
        unavailable[host] += not row.effect
        rows[name] = enter_phase(replace(row, effect=True), row.resume or NODE_EFFECT, at)
    return rows


def _queued_of_all(state: ZonesState, index: ZoneDpus, changes: Sequence[DpuChange]) -> Iterator[tuple[str, Dpu]]:
    """The queued DPUs after a record, in the order of admission. The queue is read only if the record frees capacity:
    before it, everything that fits was admitted."""
    changed = {each.name: each for each in changes}
    frees = any(_frees_capacity(each) for each in changes if each.old is not None)
    for line, effect in ((index.retry_queue, True), (index.queue, False)):
        for name in line if frees else [name for name in changed if name in line]:
            new = changed[name].new if name in changed else state.dpus.rows[name]
            if new is not None and new.phase == PENDING and (name not in changed or _keeps_place(changed[name])):
                yield name, new
        for name, each in changed.items():
            if each.new is not None and _is_queued(each.new) and not _keeps_place(each) and each.new.effect == effect:
                yield name, each.new


def queue_place(state: ZonesState, changed: DpuChange, admitted: InstallAdmission) -> int:
    """The place in the queue, from 1, of a DPU that is Pending after this record."""
    assert changed.new is not None
    index = state.dpu_index.zone(changed.new.zone)
    if not _keeps_place(changed):  # the DPU goes to the end of its queue
        lines = (index.retry_queue,) if changed.new.effect else (index.retry_queue, index.queue)
        gone = {changed.name, *admitted.rows}
        return 1 + sum(len(line) - sum(name in line for name in gone) for line in lines)
    ahead = 0
    for name in _queued(index, changed):
        if name == changed.name:
            break
        ahead += name not in admitted.rows
    return ahead + 1


class _Unavailable:
    """Nodes out of service after this record, including those of the DPUs that it admits."""

    def __init__(self, index: ZoneDpus, changed: DpuChange) -> None:
        self._known = index.unavailable
        self._count = len(index.unavailable)
        self._taken: set[str] = set()
        self._freed = ""
        before = host_of(changed.name, changed.old) if changed.old is not None and changed.old.effect else ""
        after = host_of(changed.name, changed.new) if changed.new is not None and changed.new.effect else ""
        if before != after:
            if before and index.unavailable[before] == 1:
                self._freed = before
                self._count -= 1
            if after:
                self._add(after)

    def take(self, host: str, limit: int) -> bool:
        """Take a node out of service, unless the limit is reached."""
        if host in self._taken or (host in self._known and host != self._freed):
            return True
        if self._count >= limit:
            return False
        self._add(host)
        return True

    def _add(self, host: str) -> None:
        if host not in self._taken and (host not in self._known or host == self._freed):
            self._count += 1
            self._taken.add(host)


def _frees_capacity(changed: DpuChange) -> bool:
    """Whether a record may free capacity: its DPU counts less towards a limit than before, or names another node. A
    record about no DPU changes the limits."""
    old, new = changed.old, changed.new
    if old is None or _installing(new) < _installing(old):
        return True
    return old.effect and (new is None or not new.effect or old.node != new.node)


def _is_queued(row: Dpu | None) -> bool:
    return row is not None and row.phase == PENDING


def _installing(row: Dpu | None) -> int:
    return int(row is not None and row.phase in INSTALLING)


def _queued(index: ZoneDpus, changed: DpuChange) -> Iterator[str]:
    """The names of the queued DPUs after this record, in the order of admission."""
    new, stays = changed.new, _keeps_place(changed)
    is_in_line = _is_queued(new)
    for line, effect in ((index.retry_queue, True), (index.queue, False)):
        yield from (name for name in line if stays or name != changed.name)
        if is_in_line and not stays and new is not None and new.effect == effect:
            yield changed.name


def _keeps_place(changed: DpuChange) -> bool:
    """Whether a DPU keeps its place in the queue."""
    old, new = changed.old, changed.new
    return old is not None and new is not None and old.phase == new.phase == PENDING and old.since == new.since


def _too_many_installs(zone: str, limits: RolloutLimits) -> str:
    return f"parallel_installs: {limits.parallel_installs} DPUs of zone {zone!r} are being installed, the limit"

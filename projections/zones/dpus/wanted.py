"""DPUs that objects of custom resources want, as a resources partition states them.

A record is accepted only if it begins where the last accepted one of that partition ended. Therefore the record of a
replica that lags behind, and a copy, change nothing. The row of a wanted DPU stays until its object wants it no more.
While it is there, the DPU exists: one that an operator deletes is registered anew once it is gone, and is installed
again.

An operator may provision a wanted DPU with another image, or abort its install. The DPU then stays as it is until its
object wants another image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, normalize, refusal, refused
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_name, check_text, check_zone, quoted
from projections.item_outcomes import merged
from projections.zones.dpus.lifecycle import Trigger, transition
from projections.zones.dpus.phases import DELETING, ERROR
from projections.zones.dpus.registration import Registered, Registration, limit_fault, registered
from projections.zones.dpus.renewals import readdressed
from projections.zones.dpus.rollout import DpuChange, admit_all, limits_of
from projections.zones.rows import Dpu, ResourcesMark, WantedDpu, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import MAX_ITEMS, DpusWanted

MAX_OBJECT_KEY = 1_000

T = TypeVar("T")


class _Item(NamedTuple):
    """One DPU of a record. `wanted` has an empty zone if its object wants it no more."""

    name: str
    wanted: WantedDpu


def want(state: ZonesState, event: DpusWanted, at: RecordMetadata) -> Decision:
    """Decide on the DPUs that the objects of a resources partition want."""
    items = _items(event)
    if isinstance(items, str):
        return refusal(items)
    mark = state.wanted_before(event.cause_partition)
    if event.from_offset != mark or event.to_offset < mark:
        reason = f"from_offset: {event.from_offset} to {event.to_offset} must begin at {mark}, where the last record of"
        reason = f"{reason} resources/{event.cause_partition} ended"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER, mark=mark))
    marks = {}
    if event.to_offset > mark:
        marks[str(event.cause_partition)] = ResourcesMark(event.to_offset)
    batch = _Batch(state, at)
    outcomes = [batch.take(item) for item in items]
    outcome = outcomes[0] if len(outcomes) == 1 else merged([item.name for item in items], outcomes)
    if not batch.wanted and not batch.changes and not marks:
        return normalize(Decision(None, outcome))
    released = [name for name, row in batch.wanted.items() if row is None and name in state.networks.rows]
    change = ZonesChange(
        dpus=batch.rows(),
        zones=batch.zones,
        wanted=batch.wanted,
        resources_marks=marks,
        networks=dict.fromkeys(released),
    )
    return normalize(Decision(change, outcome))


def followed(
    state: ZonesState, name: str, row: Dpu | None, at: RecordMetadata
) -> tuple[Dpu | None, Mapping[str, Zone | None]]:
    """The row of a DPU after any other record, as its object wants it, and the row of its zone if the DPU is registered
    anew."""
    wanted = state.wanted.rows.get(name)
    if wanted is None:
        return row, {}
    if row is not None:
        return _on_its_node(row, wanted), {}
    zone = state.zone_rows.rows.get(wanted.zone) or Zone()
    added = _registered(state, name, wanted, zone, at)
    return added.dpu, {wanted.zone: added.zone}


class _Batch:
    """The changes of one record, item by item."""

    def __init__(self, state: ZonesState, at: RecordMetadata) -> None:
        self.changes: dict[str, DpuChange] = {}
        self.wanted: dict[str, WantedDpu | None] = {}
        self.zones: dict[str, Zone] = {}
        self._state = state
        self._at = at
        self._added: dict[str, int] = {}

    def take(self, item: _Item) -> Outcome:
        """Decide on one DPU."""
        known = self._state.wanted.rows.get(item.name)
        if known is not None and known.object != item.wanted.object:
            if not item.wanted.zone:
                return UNCHANGED
            reason = f"dpus: {quoted(item.name)} is wanted by the object {known.object!r}"
            return refused(Fault(reason, Reason.DPU_WANTED, dpu=item.name, object=known.object))
        if not item.wanted.zone:
            return self._release(item.name) if known is not None else UNCHANGED
        if known is not None and not item.wanted.image:
            item = item._replace(wanted=replace(item.wanted, image=known.image))
        if item.wanted == known:
            return UNCHANGED
        if known is not None:
            return self._change(item, known)
        return self._add(item)

    def rows(self) -> dict[str, Dpu | None]:
        """The rows of the changed DPUs and of those that are admitted to an install, zone by zone.

        DPUs that enter the queue at one offset stand in it by name: a restarted replica knows no other order of theirs.
        """
        by_zone: dict[str, list[DpuChange]] = {}
        for _, each in sorted(self.changes.items()):
            row = each.new or each.old
            assert row is not None, "a change has a row"
            by_zone.setdefault(row.zone, []).append(each)
        rows: dict[str, Dpu | None] = {name: each.new for name, each in sorted(self.changes.items())}
        for zone, changes in by_zone.items():
            limits = limits_of(self._state.zone_rows.rows.get(zone))
            rows |= admit_all(self._state, zone, limits, changes, self._at)
        return rows

    def _release(self, name: str) -> Outcome:
        row = self._state.dpus.rows[name]
        self.wanted[name] = None
        if row.phase != DELETING:
            self._put(name, row, transition(name, row, Trigger("delete", self._at)))
        return DONE

    def _add(self, item: _Item) -> Outcome:
        name, wanted = item
        row = self._state.dpus.rows.get(name)
        if row is not None:
            if not is_being_deleted(row):
                reason = f"dpus: {quoted(name)} is registered in zone {row.zone!r} by an operator"
                return refused(Fault(reason, Reason.DPU_REGISTERED, dpu=name, zone=row.zone))
            if row.zone != wanted.zone:
                return refused(_moves(name, row.zone))
            self.wanted[name] = wanted  # it is registered anew once it is gone
            return DONE
        count = len(self._state.dpu_index.zone(wanted.zone).names) + self._added.get(wanted.zone, 0)
        if fault := limit_fault(wanted.zone, count):
            return refused(fault)
        zone = self.zones.get(wanted.zone) or self._state.zone_rows.rows.get(wanted.zone) or Zone()
        added = _registered(self._state, name, wanted, zone, self._at)
        self.zones[wanted.zone] = added.zone
        self._added[wanted.zone] = self._added.get(wanted.zone, 0) + 1
        self.wanted[name] = wanted
        self._put(name, None, added.dpu)
        return DONE

    def _change(self, item: _Item, known: WantedDpu) -> Outcome:
        name, wanted = item
        if wanted.zone != known.zone:
            return refused(_moves(name, known.zone))
        self.wanted[name] = wanted
        old = self._state.dpus.rows[name]
        if old.phase == DELETING:
            return DONE
        row = _on_its_node(readdressed(old, wanted.bmc_address), wanted)
        if wanted.serial not in ("", row.serial):
            swap = Trigger("swapped", self._at, serial=wanted.serial)
            row = _row(transition(name, row, swap)) if row.serial else replace(row, serial=wanted.serial)
        if wanted.image and wanted.image != known.image:
            row = _row(transition(name, row, Trigger("follow", self._at, image=wanted.image)))
        self._put(name, old, row)
        return DONE

    def _put(self, name: str, old: Dpu | None, new: Dpu | str | None) -> None:
        assert not isinstance(new, str), "these transitions apply in every phase"
        if new != old:
            self.changes[name] = DpuChange(name, old, new)


def is_being_deleted(row: Dpu) -> bool:
    """Whether a DPU is to be deleted, also if its deletion failed and waits for an operator."""
    return row.phase == DELETING or (row.phase == ERROR and row.resume == DELETING)


def _moves(name: str, zone: str) -> Fault:
    reason = f"zones: {quoted(name)} is in zone {zone!r}, and moves only after it is deleted there"
    return Fault(reason, Reason.DPU_IN_OTHER_ZONE, dpu=name, zone=zone)


def _registered(state: ZonesState, name: str, wanted: WantedDpu, zone: Zone, at: RecordMetadata) -> Registered:
    """A new DPU as its object wants it."""
    registration = Registration(wanted.zone, wanted.node, wanted.serial, wanted.bmc_address)
    added = registered(registration, zone, state.dpu_index.zone(wanted.zone), at)
    if not wanted.image:
        return added
    row = transition(name, added.dpu, Trigger("follow", at, image=wanted.image))
    return added._replace(dpu=_row(row))


def _row(result: Dpu | str | None) -> Dpu:
    assert isinstance(result, Dpu), f"a transition that applies in every phase: {result}"
    return result


def _on_its_node(row: Dpu, wanted: WantedDpu) -> Dpu:
    """The row with the wanted node, unless its present node is out of service for it."""
    return row if row.effect or row.node == wanted.node else replace(row, node=wanted.node)


def _items(event: DpusWanted) -> list[_Item] | str:
    """The DPUs of a record, or its first fault in one sentence."""
    count = len(event.dpus)
    if not 1 <= count <= MAX_ITEMS:
        return f"dpus: {count} items must be from 1 to {MAX_ITEMS}"
    columns = (event.objects, event.zones, event.nodes, event.serials, event.bmc_addresses, event.images)
    if any(len(column) not in (1, count) for column in columns):
        return f"dpus: the other columns must have one value for all {count} DPUs, or one for each"
    if event.cause_partition < 0:
        return f"cause_partition: {event.cause_partition} must be the number of a resources partition"
    objects, zones, *others = (_expanded(column, count) for column in columns)
    values = zip(event.dpus, objects, zones, *others, strict=True)
    items = [_Item(name, WantedDpu(*fields)) for name, *fields in values]
    seen: set[str] = set()
    for number, item in enumerate(items):
        if item.name in seen:
            return f"dpus[{number}]: {quoted(item.name)} is given twice"
        seen.add(item.name)
        if fault := _fault(number, item):
            return fault
    return items


def _fault(number: int, item: _Item) -> str | None:
    name, wanted = item
    return (
        check_name(f"dpus[{number}]", name)
        or check_text(f"objects[{number}]", wanted.object, MAX_OBJECT_KEY)
        or (check_zone(f"zones[{number}]", wanted.zone) if wanted.zone else None)
        or (check_name(f"nodes[{number}]", wanted.node) if wanted.node else None)
        or check_text(f"serials[{number}]", wanted.serial)
        or check_text(f"bmc_addresses[{number}]", wanted.bmc_address)
        or check_text(f"images[{number}]", wanted.image)
    )


def _expanded(column: Sequence[T], count: int) -> Sequence[T]:
    return column if len(column) == count else [*column] * count

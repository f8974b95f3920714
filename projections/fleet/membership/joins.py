"""MembershipChanged, decided and applied: the hot path of the fleet.

For each zones partition, fleet has a mark: the offset below which it has taken all changes of that partition. A record
counts only if its range begins at the mark, so a record that a forwarder appends twice, or late, changes nothing.
Nearly all records of a burst contain only new names with new addresses. Such a record denies no traffic that was
allowed. So, if the budget `allowed-by-join` is unlimited, its nodes are added in a few passes over whole columns. Any
other record is evaluated node by node (`impact`).

Fleet accepts every update of a partition about its own nodes. If two partitions have updates of the same node, the node
is in the zone of the newer update (`tombstones` defines the order), and fleet's outbox notifies the other zone. A
forward has only the last state of each node. If a newer incarnation joins and leaves a second partition within one
forward, fleet therefore receives only the leave. That leave also ends the older incarnation in the first partition, as
if fleet had folded the join before it. If a node's own agent joins it to another zone, the node stays in its zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from eventstore.folding.fold import DONE, Decision, RecordMetadata, refusal
from eventstore.log import partition_of
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone
from projections.fleet.membership.address_index import Address
from projections.fleet.membership.contested import RecordAddresses, agent_bits
from projections.fleet.membership.effects import record_set_changes
from projections.fleet.membership.members import NewNames
from projections.fleet.membership.rows import Member, MembershipColumns, ReachableState, read_columns
from projections.fleet.membership.slot_table import LabelColumn
from projections.fleet.membership.tombstones import Tombstone, is_newer
from projections.fleet.policies.fleet_zones import without_row
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import ALLOWED_BY_JOIN, DENIED_BY_CHANGE, DENIED_BY_LEAVE, BudgetKind, Hold
from projections.fleet.withdrawals.holds import held_outcome, member_holds
from projections.fleet.withdrawals.impact import Impact, MemberChange, evaluate
from projections.incarnations import is_older
from schemas.events import AGENT_JOINED, LEFT, MAX_STATE, PRESENT, SUPERSEDED, MembershipChanged

_ARRIVALS = frozenset({PRESENT, *range(SUPERSEDED + 1, MAX_STATE + 1)})
"""States of present nodes."""


class ForwardRange(NamedTuple):
    """The changes of a partition of topic zones that one record of fleet carries: up to `to_offset`. The earliest of
    these changes was appended at `earliest_ms`."""

    partition: int
    to_offset: int
    earliest_ms: int


class Superseded(NamedTuple):
    """An incarnation of a node in `zone`. Another zone has, or had, a newer incarnation of this node."""

    zone: str
    name: str
    created_ms: int
    uid: str


class MembersAdded(NamedTuple):
    """New nodes only, with addresses that no node holds."""

    source: ForwardRange
    items: MembershipColumns
    names: NewNames


class MembersChanged(NamedTuple):
    """An evaluated change of members, other than `MembersAdded`.

    `holds` are the holds that this record opens or extends, and `hold_by_change` has the hold of each held change.
    `tombstones` has the tombstones of the nodes that left, and `agents` the commands of node agents, by node and zone.
    """

    source: ForwardRange
    impact: Impact
    superseded: Sequence[Superseded]
    holds: tuple[Hold, ...]
    hold_by_change: Mapping[int, int]
    tombstones: Mapping[str, Tombstone]
    agents: Mapping[tuple[str, str], str]


def decide_membership(state: FleetState, event: MembershipChanged, at: RecordMetadata) -> Decision:
    partition = event.cause_partition
    mark = state.marks.get(partition, 0)
    if not 0 <= partition < state.partition_count:
        return refusal(f"cause_partition: {partition} must be one of the {state.partition_count} partitions")
    if event.from_offset != mark:
        reason = f"from_offset: {event.from_offset} must be the mark of partition {partition}, which is {mark}"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER, mark=mark))
    if event.to_offset <= event.from_offset:
        return refusal(f"to_offset: {event.to_offset} must be after from_offset, which is {event.from_offset}")
    items = read_columns(event)
    if isinstance(items, str):
        return refusal(items)
    for zone in without_row(items.zones, state.zones.rows):
        fault = check_zone("zones", zone)
        if fault is not None:
            return refusal(fault)
    source = ForwardRange(partition, event.to_offset, event.earliest_ms)
    if state.budgets.rows[ALLOWED_BY_JOIN].is_unlimited:
        names = _look_up_new(state, items, partition, at.append_ms)
        if names is not None:
            return Decision(MembersAdded(source, items, names), DONE)
    changes, superseded, tombstones = _member_changes(state, items, partition, at.append_ms)
    impact = evaluate(state, changes, at.time_ms)
    causes = items.cause_by_name() if impact.held else {}
    holds, hold_by_change = member_holds(state, impact, causes, event.envelope.actor, at)
    outcome = held_outcome(impact, holds[0], hold_by_change) if holds else DONE
    return Decision(
        MembersChanged(source, impact, superseded, holds, hold_by_change, tombstones, _agents(items)), outcome
    )


def _agents(items: MembershipColumns) -> dict[tuple[str, str], str]:
    """The command behind each update by a node's own agent, by node and zone."""
    if max(items.states, default=0) <= SUPERSEDED:
        return {}
    causes = items.cause_by_name()
    columns = zip(items.names, items.zones, items.states, strict=True)
    own = ((name, zone) for name, zone, found in columns if agent_bits(found) and name in causes)
    return {(name, zone): causes[name].command_id for name, zone in own}


def _look_up_new(state: FleetState, items: MembershipColumns, partition: int, now_ms: int) -> NewNames | None:
    """The names, if every item is a new node with addresses that no other node has."""
    if not _ARRIVALS.issuperset(items.states):
        return None
    names = state.members.rows.look_up_new(items.names)
    if names is None:
        return None
    if state.tombstones.end_any(items.names, partition, items.created_ms, items.changed_ms, now_ms=now_ms):
        return None
    fours, sixes = items.addresses4, items.addresses6.given()
    if fours.repeats or len(set(sixes)) != len(sixes) or state.slot_table.address_index.has_any(fours.given, sixes):
        return None
    return names


def _member_changes(
    state: FleetState, items: MembershipColumns, partition: int, now_ms: int
) -> tuple[list[MemberChange], list[Superseded], dict[str, Tombstone]]:
    changes: list[MemberChange] = []
    superseded: list[Superseded] = []
    tombstones: dict[str, Tombstone] = {}
    labels = [dict(sorted(found.items())) for found in items.label_sets]
    newcomers = RecordAddresses(state, items)
    for i, name in enumerate(items.names):
        before = state.members.rows.get(name)
        is_here = before is not None and not before.held
        own = before if before is not None and is_here and _is_own(state, before, items.zones[i], partition) else None
        if items.states[i] not in _ARRIVALS:
            tombstone = _tombstone(items, i, partition, own, now_ms)
            counts = items.states[i] != SUPERSEDED and items.last_present_ms[i] > 0
            if counts:
                tombstones[name] = tombstone
            if before is None or not is_here:
                continue
            if own is None:
                if not counts or not tombstone.ends_known(before.created_ms, before.last_present_ms, now_ms):
                    continue
                superseded.append(Superseded(before.zone, name, before.created_ms, before.uid))
            kind: BudgetKind = DENIED_BY_LEAVE if items.states[i] == LEFT else DENIED_BY_CHANGE
            changes.append(
                MemberChange(name, kind, before, None, _effective(state, name, before), (), needs_slot=False)
            )
            continue
        bits = agent_bits(items.states[i])
        after = _member(items, i, labels)
        if own is None:
            if state.tombstones.end(name, partition, after.created_ms, after.last_present_ms, now_ms=now_ms):
                superseded.append(Superseded(after.zone, name, after.created_ms, after.uid))
                continue
            if before is not None and is_here:
                newer = not bits & AGENT_JOINED and is_newer(after, before, now_ms)
                loser = before if newer else after
                superseded.append(Superseded(loser.zone, name, loser.created_ms, loser.uid))
                if not newer:
                    continue
        changes += _arrival(state, name, before, newcomers.admit(name, after, bits))
    return changes, superseded, tombstones


def _tombstone(items: MembershipColumns, i: int, partition: int, own: Member | None, now_ms: int) -> Tombstone:
    """The tombstone of a leave. It names the incarnation that left, or the one that fleet has stored for this
    partition, whichever is newer.

    If both are the same incarnation, the times in the leave are used: stored append times do not show the order if a
    clock was corrected in between.
    """
    created_ms, last_present_ms = items.created_ms[i], items.last_present_ms[i]
    if own is not None and is_older(created_ms, own.created_ms, now_ms):
        created_ms, last_present_ms = own.created_ms, own.last_present_ms
    return Tombstone(partition, created_ms, last_present_ms, items.changed_ms[i])


def _member(items: MembershipColumns, i: int, labels: Sequence[dict[str, str]]) -> Member:
    return Member(
        items.zones[i],
        items.created_ms[i],
        items.uids[i],
        items.addresses4.values[i],
        items.addresses6.values[i],  # type: ignore[arg-type]
        labels[items.label_index[i]],
        -1,
        held=False,
        delayed_by=-1,
        last_present_ms=items.changed_ms[i],
    )


def _is_own(state: FleetState, member: Member, zone: str, partition: int) -> bool:
    """Whether a member is in a zone of this partition. An item of the member's own partition always applies, whatever
    its incarnation.

    An item has the final state of a node, not its history. For example, one item stands for a move to another zone of
    the partition and a later leave, or for a leave and a later join of an older incarnation.
    """
    return member.zone == zone or partition_of(member.zone.encode(), state.partition_count) == partition


def _effective(state: FleetState, name: str, member: Member) -> tuple[ReachableState, ...]:
    """The node's addresses that are reachable now."""
    parts = state.retained_states(name)
    if member.slot < 0:
        return parts
    return (ReachableState(-1, member.slot, member.address4, member.address6, member.labels), *parts)


def _arrival(state: FleetState, name: str, before: Member | None, after: Member) -> Iterable[MemberChange]:
    if before is None or before.held:
        yield MemberChange(name, DENIED_BY_CHANGE, before, after, state.retained_states(name), (), needs_slot=True)
        return
    if (before.address4, before.address6, before.labels) != (after.address4, after.address6, after.labels):
        yield MemberChange(name, DENIED_BY_CHANGE, before, after, _effective(state, name, before), (), needs_slot=True)
        return
    same = Member(
        after.zone,
        after.created_ms,
        after.uid,
        before.address4,
        before.address6,
        before.labels,
        before.slot,
        held=False,
        delayed_by=before.delayed_by,
        last_present_ms=after.last_present_ms,
        contested4=after.contested4,
        contested6=after.contested6,
    )
    if same != before:
        yield MemberChange(name, DENIED_BY_CHANGE, before, same, (), state.retained_states(name), needs_slot=False)


def add_members(state: FleetState, change: MembersAdded, at: RecordMetadata) -> None:
    """Add new members, all at once."""
    items = change.items
    if not items.names:
        return
    numbers = {i: state.labels.intern(items.label_sets[i], state.plan) for i in sorted(set(items.label_index))}
    slots = state.slot_table.allocate_batch(
        items.names, items.addresses4, items.addresses6, _label_column(items, numbers)
    )
    about = (items.zones, items.created_ms, items.uids)
    state.members.add_columns(items.names, slots, *about, last_present_ms=items.changed_ms, new=change.names)
    state.ensure_zones(items.zones, at.offset + 1)
    _note_joined(state, change, numbers, at.offset + 1)


def _label_column(items: MembershipColumns, numbers: Mapping[int, int]) -> LabelColumn:
    """The label sets of new members. `numbers` maps the index of a label set in the record to its id in the fold."""
    index = np.array(items.label_index, np.int32)
    members = np.bincount(index).tolist()
    addresses = np.bincount(index[np.frombuffer(items.addresses4.values, np.uint32) > 0], minlength=len(members))
    if items.addresses6.packed:
        high, low = np.frombuffer(items.addresses6.packed, np.uint64).reshape(-1, 2).T
        addresses += np.bincount(index[(high | low) > 0], minlength=len(members))
    number_of = np.zeros(len(members), np.int32)
    uses: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for i, number in numbers.items():
        number_of[i] = number
        uses[number] += members[i]
        held[number] += int(addresses[i])
    return LabelColumn(number_of[index], uses, held)


def _note_joined(state: FleetState, change: MembersAdded, numbers: Mapping[int, int], version: int) -> None:
    fours, sixes, bits = change.items.addresses4, change.items.addresses6, state.labels.bits
    by_bits: dict[int, list[Address]] = {}
    distinct = {bits[number] for number in numbers.values()}
    if len(distinct) == 1:
        by_bits[min(distinct)] = [*fours.given, *sixes.given()]
    else:
        columns: tuple[Sequence[Address], ...] = (fours.values, sixes.values)
        for address, i in chain.from_iterable(zip(values, change.items.label_index, strict=True) for values in columns):
            if address:
                by_bits.setdefault(bits[numbers[i]], []).append(address)
    for found, addresses in by_bits.items():
        state.count_addresses(found, len(addresses))
    record_set_changes(state, by_bits, {}, version, change.source.earliest_ms)

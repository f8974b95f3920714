"""Members of the fleet, as rows, and the columns of a MembershipChanged.

A member's row has the state that the member's zone forwarded last. A state that is in the rule tables also has a slot
(`slot_table`). While a hold delays the newest state of a member, that state has no slot, and the previous states that
stay in the tables have slots of their own. A node that left while a hold retains one of its states keeps its row,
marked `held`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from eventstore.ids import InvalidCommandId, issued_at_ms
from projections.columns import fault_of_label_numbers, fault_of_widths
from projections.fleet.membership.address_index import Address, Column4, column4
from projections.fleet.membership.slot_table import Column6
from projections.fleet.withdrawals.budgets import hash_of
from schemas.events import MAX_FORWARD_ITEMS, MAX_STATE, MembershipChanged

_ZERO6 = bytes(16)


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node as its zone last described it.

    `slot` is -1 if this state is not effective. There are two reasons: the node has left while a hold retains an
    earlier state of it (`held`), or the state would exceed a budget (`delayed_by` is the id of the hold; -1 if there is
    none). `address6` is 16 bytes or empty. `contested4` and `contested6` are addresses that the node's agent set
    although another node holds them (0 and b"" for none). `last_present_ms` is the append time of the node's last join
    or change (see `projections/fleet/membership/tombstones`).
    """

    zone: str
    created_ms: int
    uid: str
    address4: int
    address6: bytes
    labels: dict[str, str]
    slot: int
    held: bool
    delayed_by: int
    last_present_ms: int
    contested4: int = 0
    contested6: bytes = b""


class ReachableState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A state of a node whose addresses are reachable, and the slot of this state. It is the present state (`hold` is
    -1), or a previous state that the hold retains."""

    hold: int
    slot: int
    address4: int
    address6: bytes
    labels: dict[str, str]


class RetainedStates(msgspec.Struct, frozen=True, array_like=True):
    """The previous states of one node, as retained by holds."""

    states: tuple[ReachableState, ...]


def held_items(name: str, member: Member | None, parts: Iterable[ReachableState]) -> dict[int, bytes]:
    """The holds of a node, each with a hash of the effect that an approval would have on the node."""
    items: dict[int, list[object]] = {}
    for part in parts:
        items.setdefault(part.hold, []).append((part.address4, part.address6, sorted(part.labels.items())))
    if member is not None and member.delayed_by >= 0:
        newest = ("becomes", member.address4, member.address6, sorted(member.labels.items()))
        items.setdefault(member.delayed_by, []).append(newest)
    return {hold: hash_of(name, item) for hold, item in items.items()}


class Cause(NamedTuple):
    """A command that changed nodes, and its actor."""

    command_id: str
    actor: str


class MembershipColumns(NamedTuple):
    """The items of a MembershipChanged, every column at full length."""

    zones: Sequence[str]
    names: list[str]
    states: Sequence[int]
    created_ms: Sequence[int]
    uids: Sequence[str]
    addresses4: Column4
    addresses6: Column6
    label_sets: list[dict[str, str]]
    label_index: Sequence[int]
    changed_ms: Sequence[int]
    last_present_ms: Sequence[int]
    causes: Sequence[tuple[Cause, int]]

    def cause_by_name(self) -> dict[str, Cause]:
        """The command behind each item, if the record names one. Its id is empty if the record names its actor only."""
        spread = chain.from_iterable(repeat(cause, count) for cause, count in self.causes)
        columns = zip(self.names, spread, self.uids, self.created_ms, strict=False)
        return {
            name: cause if cause.command_id else Cause(_command_of(uid, created_ms), cause.actor)
            for name, cause, uid, created_ms in columns
            if cause.command_id or cause.actor
        }


T = TypeVar("T")


def _command_of(uid: str, created_ms: int) -> str:
    """The id of the command that an item of a record without command ids came from; empty if it cannot be found.

    A join without uids uses the id of its command as uid. Such a uid is a command id that was issued at the creation
    time of the node.
    """
    try:
        return uid if issued_at_ms(uid) == created_ms else ""
    except InvalidCommandId:
        return ""


def read_columns(event: MembershipChanged) -> MembershipColumns | str:
    """The columns of a record, or one sentence that says why it is invalid."""
    count = len(event.names)
    fault = _fault(event, count)
    if fault is not None:
        return fault
    return MembershipColumns(
        _full(event.zones, count),
        event.names,
        _full(event.states, count),
        _full(event.created_ms or [0], count),
        _full(event.uids or [""], count),
        _column4(event.addresses4, count),
        _column6(event.addresses6, count),
        event.label_sets or [{}],
        _full(event.label_index or [0], count),
        _full(event.changed_ms or [event.earliest_ms], count),
        _full(event.last_present_ms or [0], count),
        list(zip(map(Cause, event.command_ids, event.actors), event.cause_items, strict=True)),
    )


def _fault(event: MembershipChanged, count: int) -> str | None:
    if count > MAX_FORWARD_ITEMS:
        return f"names: {count} items are more than the {MAX_FORWARD_ITEMS} allowed"
    if len(set(event.names)) != count:
        return f"names: {count} items name {len(set(event.names))} nodes; a record must name a node once"
    for field in ("zones", "states", "created_ms", "uids", "label_index", "changed_ms", "last_present_ms"):
        length = len(getattr(event, field))
        if length not in (1, count) and (length or field in ("zones", "states")):
            return f"{field}: {length} entries for {count} names must be one for all names or one per name"
    fault = fault_of_widths(event)
    if fault is not None:
        return fault
    if count and not 0 <= min(event.states) <= max(event.states) <= MAX_STATE:
        return f"states: {min(event.states)} to {max(event.states)} must be from 0 to {MAX_STATE}"
    return _label_fault(event) or _cause_fault(event, count)


def _cause_fault(event: MembershipChanged, count: int) -> str | None:
    lengths = {len(event.command_ids), len(event.actors), len(event.cause_items)}
    if len(lengths) > 1:
        return f"cause_items: {len(event.cause_items)} entries must be one for each of command_ids and actors"
    if event.cause_items and (min(event.cause_items) < 1 or sum(event.cause_items) != count):
        return f"cause_items: {sum(event.cause_items)} items in all must be the {count} of names, at least one each"
    return None


def _label_fault(event: MembershipChanged) -> str | None:
    sets = len(event.label_sets)
    if event.label_index:
        return fault_of_label_numbers(event.label_index, max(sets, 1))
    if sets > 1:
        return f"label_index: 0 entries for {sets} label sets must be one entry per name"
    return None


def _full(column: Sequence[T], count: int) -> Sequence[T]:
    return column if len(column) == count else list(repeat(column[0], count))


def _column4(packed: bytes, count: int) -> Column4:
    return column4(np.frombuffer(packed or bytes(4 * count), ">u4").astype(np.uint32).tobytes())


def _column6(packed: bytes, count: int) -> Column6:
    if not packed:
        return Column6(list(repeat(b"", count)), b"")
    values: list[Address] = [packed[i : i + 16] for i in range(0, 16 * count, 16)]
    if _ZERO6 in values:
        values = [b"" if value == _ZERO6 else value for value in values]
    return Column6(values, packed)

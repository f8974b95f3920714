"""The items of a record of claims or releases: reads its columns as one value per item, and decides the items in order.

A record about one node has one item. Each item is decided on the state after the items before it, so the record
has the effect of a record per item. A malformed item refuses the whole record: the API refuses the same record, by the
same functions, before it is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from eventstore.folding.fold import Decision
from projections.cliques.state import MAX_CAPACITY, CliquesState, ItemChanges, Since
from projections.columns import fault_of_length
from projections.field_checks import (
    MAX_AHEAD_MS,
    BadAddress,
    canonical_address,
    check_clique,
    check_name,
    check_uid,
    quoted,
)
from projections.item_outcomes import merged
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, Envelope, IndicesClaimed, IndicesReleased

T = TypeVar("T")


class Incarnation(NamedTuple):
    """An incarnation of a node."""

    created_ms: int
    uid: str


class Claim(NamedTuple):
    """One claim. `names_pod` is true if the caller gave the uid of its pod. If not, the id of the command is the uid of
    the incarnation."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    address: str
    pod: Incarnation
    names_pod: bool
    requested_index: int
    since: Since


class Release(NamedTuple):
    """One release. An empty uid means any incarnation."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    uid: str
    since: Since


Item = TypeVar("Item", Claim, Release)


def claims_of(event: IndicesClaimed, now_ms: int, offset: int) -> list[Claim] | str:
    """The claims of a record, or its first fault in one sentence."""
    envelope, domain, clique, nodes, count = event.envelope, event.domain, event.clique, event.nodes, len(event.nodes)
    fault = (
        _fault_of_nodes(event)
        or fault_of_length("addresses", len(event.addresses), count, "nodes")
        or fault_of_length("created_ms", len(event.created_ms), count, "nodes")
        or fault_of_length("requested_indices", len(event.requested_indices), count, "nodes")
    )
    if fault is not None:
        return fault
    addresses = _addresses(event)
    if isinstance(addresses, str):
        return addresses
    created_ms = [given or envelope.issued_at_ms for given in _expanded(event.created_ms, count, 0)]
    requested_indices = _expanded(event.requested_indices, count, -1)
    fault = (
        _fault_of_range("created_ms", created_ms, 0, now_ms + MAX_AHEAD_MS, "one minute ahead of the log")
        or _fault_of_range("requested_indices", requested_indices, -1, MAX_CAPACITY - 1, "-1 for none")
        or _fault_of_size(event, addresses)
    )
    if fault is not None:
        return fault
    uids = _expanded(event.uids, count, "")
    columns = zip(nodes, addresses, created_ms, uids, requested_indices, range(count), strict=True)
    return [
        Claim(
            envelope,
            domain,
            clique,
            node,
            address,
            Incarnation(created, uid or envelope.command_id),
            bool(uid),
            requested_index,
            Since(offset, item),
        )
        for node, address, created, uid, requested_index, item in columns
    ]


def releases_of(event: IndicesReleased, offset: int) -> list[Release] | str:
    """The releases of a record, or its first fault in one sentence."""
    fault = _fault_of_nodes(event) or _fault_of_size(event, ())
    if fault is not None:
        return fault
    items = enumerate(zip(event.nodes, _expanded(event.uids, len(event.nodes), ""), strict=True))
    return [
        Release(event.envelope, event.domain, event.clique, node, uid, Since(offset, item))
        for item, (node, uid) in items
    ]


def decide_in_order(
    state: CliquesState, items: Sequence[Item], decide: Callable[[CliquesState, Item], Decision]
) -> Decision:
    """The decision about a record, by `decide` for each item."""
    if len(items) == 1:
        change, outcome = decide(state, items[0])
        return Decision(None if change is None else ItemChanges((change,)), outcome)
    draft = state.draft()
    decisions = []
    for item in items:
        decisions.append(decide(draft, item))
        if decisions[-1].change is not None:
            draft.apply(decisions[-1].change)
    changes = ItemChanges(tuple(decision.change for decision in decisions))
    outcome = merged([item.node for item in items], [decision.outcome for decision in decisions])
    return Decision(changes if any(changes.changes) else None, outcome)


def _expanded(column: Sequence[T], count: int, absent: T) -> Sequence[T]:
    """One value per item of a valid column."""
    return column if len(column) == count else [*(column or [absent])] * count


def _fault_of_nodes(event: IndicesClaimed | IndicesReleased) -> str | None:
    nodes, uids = event.nodes, event.uids
    fault = check_clique("domain", event.domain) or check_clique("clique", event.clique)
    if fault is None and not 1 <= len(nodes) <= MAX_ITEMS:
        fault = f"nodes: {len(nodes)} items must be from 1 to {MAX_ITEMS}"
    return (
        fault
        or _fault_of_column("nodes", nodes, check_name)
        or _fault_of_repeated("nodes", nodes, "name a node")
        or fault_of_length("uids", len(uids), len(nodes), "nodes")
        or _fault_of_column("uids", uids, check_uid)
    )


def _fault_of_column(field: str, column: Sequence[str], check: Callable[[str, str], str | None]) -> str | None:
    faults = (check(f"{field}[{item}]", value) for item, value in enumerate(column))
    return next(filter(None, faults), None)


def _fault_of_repeated(field: str, column: Sequence[str], what: str) -> str | None:
    seen: set[str] = set()
    for item, value in enumerate(column):
        if value in seen:
            return f"{field}[{item}]: {quoted(value)} is given twice; a record must {what} once"
        if value:
            seen.add(value)
    return None


def _fault_of_range(field: str, column: Sequence[int], low: int, high: int, what: str) -> str | None:
    if low <= min(column) and max(column) <= high:
        return None
    item = next(item for item, value in enumerate(column) if not low <= value <= high)
    return f"{field}[{item}]: {column[item]} must be from {low} to {high}, {what}"


def _addresses(event: IndicesClaimed) -> Sequence[str] | str:
    """The address of each node in its canonical form, empty for none; or the first fault."""
    try:
        found = [
            canonical_address(f"addresses[{item}]", text) if text else "" for item, text in enumerate(event.addresses)
        ]
    except BadAddress as error:
        return str(error)
    addresses = _expanded(found, len(event.nodes), "")
    return _fault_of_repeated("addresses", addresses, "give an address") or addresses


def _fault_of_size(event: IndicesClaimed | IndicesReleased, addresses: Sequence[str]) -> str | None:
    """The fault of a record that is too large; None if it fits. Other programs may write records of any size. A record
    of one node always fits."""
    size = sum(map(len, (*event.nodes, *event.uids, *addresses)))
    if len(event.nodes) == 1 or size <= MAX_COMMAND_BYTES:
        return None
    return f"nodes: {size} bytes of nodes, uids and addresses are more than the {MAX_COMMAND_BYTES} allowed"

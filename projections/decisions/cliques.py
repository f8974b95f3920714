"""Decisions about indices, rendered from the rows that a record changed in a cliques partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventstore.folding.fold import Outcome, RecordMetadata
from projections.cliques.state import CliqueMember, CliquesChange, ItemChanges, clique_key, split_key
from projections.decisions.items import DecisionItems, result_detail, single_item
from schemas.events import (
    DaemonReadinessReported,
    Event,
    IndicesClaimed,
    IndicesReleased,
    SessionExpired,
    SessionOpened,
)


def items(
    event: Event, change: CliquesChange | ItemChanges | None, outcome: Outcome, at: RecordMetadata
) -> Iterator[DecisionItems]:
    if isinstance(event, IndicesClaimed | IndicesReleased):
        yield from _of_nodes(event, change, outcome, at)
    elif isinstance(change, CliquesChange):
        yield from _rows(change, event, "", {}, at)


def _of_nodes(
    event: IndicesClaimed | IndicesReleased, change: object, outcome: Outcome, at: RecordMetadata
) -> Iterator[DecisionItems]:
    """The items of each node of a record, in order."""
    nodes = event.nodes if outcome.code != "refused" else ()
    changes = change.changes if isinstance(change, ItemChanges) else [None] * len(nodes)
    results = {item.name: item.result for item in outcome.items} if len(nodes) > 1 else {}
    clique = clique_key(event.domain, event.clique)
    for node, own in zip(nodes, changes, strict=True):
        result = results.get(node, outcome.result)
        if own is not None:
            claimant = f"{clique}/{node}" if isinstance(event, IndicesClaimed) else ""
            yield from _rows(own, event, claimant, result, at)
        elif result:
            kind = "index_kept" if "index" in result else "index_waiting"
            yield single_item(kind, node, {"clique": clique} | result_detail(result))


def _rows(
    change: CliquesChange, event: Event, claimant: str, result: Mapping[str, int], at: RecordMetadata
) -> Iterator[DecisionItems]:
    """The items of the rows in a change. `claimant` is the key of the row whose node made the claim, and `result`
    is the result of this claim."""
    if change.capacity is not None:
        clique, capacity = change.capacity
        yield single_item("clique_capacity_set", clique, {"capacity": str(capacity)})
    for key, row in change.rows:
        if row is not None:
            yield from _member(key, row, event, result if key == claimant else None, at)


def _member(
    key: str, row: CliqueMember, event: Event, result: Mapping[str, int] | None, at: RecordMetadata
) -> Iterator[DecisionItems]:
    """The item of one row. `result` is the result of the node's claim; None if the record has no claim of this node."""
    clique, node = split_key(key)
    detail = {"clique": clique}
    if row.claim_state == "left":
        yield single_item("index_released", node, detail | _index(row))
    elif row.claim_state == "waits":
        yield single_item("index_waiting", node, detail | result_detail(result or {}))
    elif row.since.offset == at.offset:
        yield single_item("index_assigned", node, detail | _index(row) | _address(row))
    elif isinstance(event, DaemonReadinessReported):
        yield single_item("daemon_ready" if row.ready else "daemon_not_ready", node, detail)
    elif isinstance(event, SessionOpened):
        yield single_item("session_opened", node, detail | {"session": row.session, "edge": row.edge})
    elif isinstance(event, SessionExpired):
        yield single_item("session_ended", node, detail | {"session": row.session})
    elif result is not None:
        yield single_item("index_kept", node, detail | _index(row) | _address(row))
    else:
        yield single_item("address_lost", node, detail)


def _index(row: CliqueMember) -> dict[str, str]:
    return {"index": str(row.last)} if row.last >= 0 else {}


def _address(row: CliqueMember) -> dict[str, str]:
    return {"address": row.address} if row.address else {}

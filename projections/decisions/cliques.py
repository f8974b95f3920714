"""Decisions about indices, rendered from the rows that a record changed in a cliques partition."""

from __future__ import annotations

from collections.abc import Iterator

from eventstore.folding.fold import Outcome, RecordMetadata
from projections.cliques.state import CliqueMember, CliquesChange, split_key
from projections.decisions.items import DecisionItems, result_detail, single_item
from schemas.events import DaemonReadinessReported, Event, IndexClaimed, SessionExpired, SessionOpened


def items(event: Event, change: CliquesChange, outcome: Outcome, at: RecordMetadata) -> Iterator[DecisionItems]:
    if change.capacity is not None:
        clique, capacity = change.capacity
        yield single_item("clique_capacity_set", clique, {"capacity": str(capacity)})
    for key, row in change.rows:
        if row is not None:
            yield from _member(key, row, event, outcome, at)


def _member(key: str, row: CliqueMember, event: Event, outcome: Outcome, at: RecordMetadata) -> Iterator[DecisionItems]:
    clique, node = split_key(key)
    detail = {"clique": clique}
    is_claimant = isinstance(event, IndexClaimed) and clique == f"{event.domain}/{event.clique}" and event.node == node
    if row.claim_state == "left":
        yield single_item("index_released", node, detail | _index(row))
    elif row.claim_state == "waits":
        yield single_item("index_waiting", node, detail | (result_detail(outcome.result) if is_claimant else {}))
    elif row.since == at.offset:
        yield single_item("index_assigned", node, detail | _index(row) | _address(row))
    elif isinstance(event, DaemonReadinessReported):
        yield single_item("daemon_ready" if row.ready else "daemon_not_ready", node, detail)
    elif isinstance(event, SessionOpened):
        yield single_item("session_opened", node, detail | {"session": row.session, "edge": row.edge})
    elif isinstance(event, SessionExpired):
        yield single_item("session_ended", node, detail | {"session": row.session})
    elif is_claimant:
        yield single_item("index_kept", node, detail | _index(row) | _address(row))
    else:
        yield single_item("address_lost", node, detail)


def _index(row: CliqueMember) -> dict[str, str]:
    return {"index": str(row.last)} if row.last >= 0 else {}


def _address(row: CliqueMember) -> dict[str, str]:
    return {"address": row.address} if row.address else {}

"""Views of cliques: members by index, the queue in order, and a domain's readiness."""

from __future__ import annotations

import msgspec

from projections.cliques.state import CliquesState, clique_key


class MemberView(msgspec.Struct, frozen=True):
    index: int
    node: str
    address: str
    uid: str
    create_time_ms: int
    ready: bool
    session_alive: bool


class WaiterView(msgspec.Struct, frozen=True):
    queue_position: int
    node: str
    uid: str
    create_time_ms: int


class CliqueView(msgspec.Struct, frozen=True):
    domain: str
    clique: str
    capacity: int
    members: tuple[MemberView, ...]
    waiting: tuple[WaiterView, ...]


class CliqueSummary(msgspec.Struct, frozen=True):
    domain: str
    clique: str
    capacity: int
    members: int
    ready: int
    waiting: int


def show(state: CliquesState, domain: str, clique: str) -> CliqueView | None:
    """The view of one clique; None if it never had a claim or a capacity."""
    key = clique_key(domain, clique)
    found = state.cliques.get(key)
    if found is None:
        return None
    members = []
    for index, node in sorted(found.holders.items()):
        row = state.members.rows[f"{key}/{node}"]
        members.append(MemberView(index, node, row.address, row.uid, row.created_ms, row.ready, row.session_alive))
    waiting = []
    for place, node in enumerate(found.queue, start=1):
        row = state.members.rows[f"{key}/{node}"]
        waiting.append(WaiterView(place, node, row.uid, row.created_ms))
    return CliqueView(domain, clique, found.capacity, tuple(members), tuple(waiting))


def nodes_in(state: CliquesState, key: str) -> int:
    """The number of nodes in the view of a clique: nodes with an index, and waiting nodes."""
    found = state.cliques[key]
    return len(found.holders) + len(found.queue)


def summaries(state: CliquesState, domain: str = "") -> list[CliqueSummary]:
    """Every clique of a domain, or of the partition, by name."""
    keys = state.domains.get(domain, ()) if domain else state.cliques
    return [_summary(state, key) for key in sorted(keys)]


def is_domain_ready(state: CliquesState, domain: str, expected: int) -> bool:
    """Whether at least `expected` nodes hold an index in the domain's cliques, and all of them are ready."""
    found = summaries(state, domain)
    members = sum(summary.members for summary in found)
    return members >= expected and all(summary.ready == summary.members for summary in found)


def _summary(state: CliquesState, key: str) -> CliqueSummary:
    domain, clique = key.split("/", 1)
    found = state.cliques[key]
    return CliqueSummary(domain, clique, found.capacity, len(found.holders), found.ready, len(found.queue))

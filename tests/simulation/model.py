"""Models that are simple enough to verify by reading: cliques from rows, nodes from raw events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from projections.cliques.state import CliqueMember
from projections.fleet.state import FleetState
from schemas.events import Event, IndicesClaimed, IndicesReleased, NodesJoined, NodesLeft
from tests.simulation.fresh import Step


class Cliques:
    """Checks each change of clique rows against the rules of an index."""

    def __init__(self) -> None:
        self._rows: dict[str, CliqueMember] = {}
        self._capacity: dict[str, int] = {}
        self.faults: list[str] = []

    def apply(self, _: object, step: Step) -> None:
        """Apply one record of a cliques partition."""
        where = f"{step.partition}@{step.record.offset}"
        for key, row in step.rows.get("capacities", ()):
            if row is None:
                self._capacity.pop(key, None)
            else:
                self._capacity[key] = row.capacity
        before = dict(self._rows)
        for key, row in step.rows.get("members", ()):
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        if step.rows:
            self.faults += [f"{where}: {fault}" for fault in self._violations(before, step)]

    def _violations(self, before: Mapping[str, CliqueMember], step: Step) -> Iterator[str]:
        holding = {key: row for key, row in self._rows.items() if row.claim_state == "holds"}
        indices: dict[tuple[str, int], str] = {}
        clique_of_node: dict[tuple[str, str], str] = {}
        for key, row in self._rows.items():
            clique, _, node = _split(key)
            if row.claim_state != "left" and clique_of_node.setdefault((clique.split("/")[0], node), clique) != clique:
                yield f"{node} is in {clique} and in another clique of its domain"
        for clique in sorted({_split(key)[0] for key, row in self._rows.items() if row.claim_state == "waits"}):
            if sum(_split(key)[0] == clique for key in holding) < self._capacity.get(clique, 18):
                yield f"a node waits in {clique}, which has a free index"
        for key, row in holding.items():
            clique, _, node = _split(key)
            if indices.setdefault((clique, row.last), key) != key:
                yield f"index {row.last} of {clique} has two nodes"
            if not 0 <= row.last < self._capacity.get(clique, 18):
                yield f"index {row.last} of {clique} is beyond its capacity"
            before_row = before.get(key)
            if before_row and before_row.claim_state == "waits" and not isinstance(step.event, IndicesClaimed):
                yield from self._overtaken(key, before_row)
            if (
                before_row
                and before_row.claim_state == "holds"
                and before_row.uid == row.uid
                and before_row.last != row.last
            ):
                yield f"the index of {key} changed under a running incarnation"
        for key, row in step.rows.get("members", ()):
            if row is not None and row.claim_state == "holds" and not _may_skip(step.event, _split(key)[0]):
                yield from self._not_lowest(key, row, before, {index for (c, index) in indices if c == _split(key)[0]})

    def _overtaken(self, key: str, before_row: CliqueMember) -> Iterator[str]:
        """A node that got an index must have waited longest."""
        for other, row in self._rows.items():
            if row.claim_state == "waits" and row.since < before_row.since and _split(other)[0] == _split(key)[0]:
                yield f"{key} got an index before {other}, which has waited since {row.since}"

    def _not_lowest(
        self, key: str, row: CliqueMember, before: Mapping[str, CliqueMember], used: set[int]
    ) -> Iterator[str]:
        """A new index must be the last one of the node, or the lowest free one."""
        before_row = before.get(key)
        if before_row is None or (before_row.last != row.last and before_row.claim_state != "holds"):
            free = set(range(row.last)) - used
            if free:
                yield f"{key} got index {row.last} while {min(free)} was free"


def _may_skip(event: Event | None, clique: str) -> bool:
    """Whether a record may free an index of this clique after it has assigned a higher one. A claim with a requested
    index may, and so may several nodes that leave the clique.
    """
    if isinstance(event, IndicesClaimed):
        is_other = clique != f"{event.domain}/{event.clique}"
        return any(index >= 0 for index in event.requested_indices) or (is_other and len(event.nodes) > 1)
    return isinstance(event, IndicesReleased) and len(event.nodes) > 1


def _split(key: str) -> tuple[str, str, str]:
    domain, clique, node = key.split("/", 2)
    return f"{domain}/{clique}", clique, node


class Incarnation(NamedTuple):
    """An incarnation of a node that a zone accepted: creation time, uid, zone, whether it left, and the append time of
    its join.
    """

    created_ms: int
    uid: str
    zone: str
    left: bool
    appended_ms: int


def newest_incarnations(steps: Sequence[Step]) -> dict[str, list[Incarnation]]:
    """The latest incarnations of each node that zones accepted, from raw records and outcomes alone.

    A creation time ahead of the log comes from a fast clock. A join after the correction of that clock may be the newer
    one, so each of these incarnations is accepted.
    """
    found: dict[str, dict[tuple[str, str], Incarnation]] = {}
    for step in steps:
        event, answer = step.event, step.answer
        if answer is None or answer.offset != step.record.offset or answer.outcome.code == "refused":
            continue
        skipped = {item.name for item in answer.outcome.items}
        if isinstance(event, NodesJoined):
            for i, name in enumerate(event.names):
                if name not in skipped:
                    created, uid = _incarnation(event, i)
                    stated = Incarnation(created, uid, event.zone, False, step.record.timestamp_ms)
                    found.setdefault(name, {})[event.zone, uid] = stated
        elif isinstance(event, NodesLeft):
            for i, name in enumerate(event.names):
                if name not in skipped:
                    for key, stated in found.get(name, {}).items():
                        if stated.zone == event.zone and _applies_to(event, i, stated):
                            found[name][key] = stated._replace(left=True)
    latest = {name: max(s.created_ms for s in all_of.values()) for name, all_of in found.items()}
    return {
        name: [s for s in all_of.values() if s.created_ms == latest[name] or latest[name] > s.appended_ms]
        for name, all_of in found.items()
    }


def _applies_to(event: NodesLeft, i: int, stated: Incarnation) -> bool:
    """Whether a leave applies to this incarnation: it names no incarnation, this one, or a later one."""
    if not event.uids:
        return True
    created, uid = _incarnation(event, i)
    return created > stated.created_ms or (created, uid) == (stated.created_ms, stated.uid)


def _incarnation(event: NodesJoined | NodesLeft, i: int) -> tuple[int, str]:
    def pick(column: Sequence[object]) -> object:
        return column[i] if len(column) > 1 else column[0]

    created = pick(event.created_ms) if event.created_ms else event.envelope.issued_at_ms
    uid = pick(event.uids) if event.uids else event.envelope.command_id
    assert isinstance(created, int) and isinstance(uid, str)
    return created, uid


def check_nodes(stated: Mapping[str, Sequence[Incarnation]], fleet: FleetState) -> Iterator[str]:
    """No node is lost: a node whose newest incarnation did not leave is a member, in the zone of that incarnation."""
    for name, incarnations in sorted(stated.items()):
        if any(incarnation.left for incarnation in incarnations):
            continue
        member = fleet.members.rows.get(name)
        if member is None or member.held:
            yield f"node {name} is lost: {incarnations} joined and did not leave"
        elif (member.zone, member.created_ms) not in {(s.zone, s.created_ms) for s in incarnations}:
            yield f"node {name} is {member.zone}/{member.created_ms} in fleet, and not one of {incarnations}"

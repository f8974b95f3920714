"""Bugs in the edges of a source cluster: in what they state of Nodes, and in the statuses that they write."""

from __future__ import annotations

from typing import Any

import commands.kubernetes.node_plan
import drivers.kubernetes.status
from commands.kubernetes.node_edge import NodeEdge
from drivers.kubernetes.racks import RackObjects
from projections.kubernetes.status_body import Difference
from tests.seeded.bugs import Bug, SimulatedScenario, patched


def _zone_ignored(equals: Any) -> Any:
    return lambda row, facts: equals(row, facts._replace(zone=row.zone))


def _forgets_before_it_lists(list_began: Any) -> Any:
    def began(self: NodeEdge) -> None:
        list_began(self)
        for name, facts in self._present.items():
            self._deleted[name] = facts.created_ms, facts.uid
        self._dirty.update(self._present)
        self._present.clear()
        self._work.set()

    return began


def _never_deleted(deleted: Any) -> Any:
    return lambda self, item: None


def _position_counts_as_content(difference: Any) -> Any:
    def differs(body: Any, written: Any) -> Difference:
        found: Difference = difference(body, written)
        is_behind = body.content and (written.get("logPosition") or {}).get("fleet") != body.position.fleet
        return Difference.CONDITION if found is Difference.NONE and is_behind else found

    return differs


def _counts_of_the_first_pass(status: Any) -> Any:
    def found(self: RackObjects, name: str, item: Any) -> Any:
        if item.status.get("nodes"):
            return None
        return status(self, name, item)

    return found


CLUSTER = SimulatedScenario(4, faulty_s=20.0, converges_within_s=60.0, has_cluster=True)

BUGS = (
    Bug(
        "move-of-a-node-ignored",
        "an edge does not compare the zone of a Node with the folds",
        "I27",
        lambda: patched((commands.kubernetes.node_plan, "_equals", _zone_ignored)),
        CLUSTER,
    ),
    Bug(
        "list-obeyed-before-its-end",
        "an edge states the leave of every Node that a list has not shown yet",
        "I27",
        lambda: patched((NodeEdge, "list_began", _forgets_before_it_lists)),
        CLUSTER._replace(seed=6),
    ),
    Bug(
        "deletion-of-a-node-ignored",
        "an edge ignores the deletion of a Node until the next list",
        "I27",
        lambda: patched((NodeEdge, "deleted", _never_deleted)),
        CLUSTER,
    ),
    Bug(
        "status-written-for-its-position",
        "an edge writes a status whose position alone has changed",
        "I28",
        lambda: patched((drivers.kubernetes.status, "difference", _position_counts_as_content)),
        CLUSTER,
    ),
    Bug(
        "status-of-the-first-pass",
        "an edge computes the status of a zone only until it has nodes",
        "I28",
        lambda: patched((RackObjects, "status", _counts_of_the_first_pass)),
        CLUSTER,
    ),
)

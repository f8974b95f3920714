"""Bugs in the edges of a source cluster: in what they state of Nodes, and in the statuses that they write."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import commands.kubernetes.node_plan
import drivers.kubernetes.clique_targets
import drivers.kubernetes.status
import projections.kubernetes.clique_objects
from commands.kubernetes.node_edge import NodeEdge
from commands.kubernetes.users import UserNames
from drivers.kubernetes.racks import RackObjects
from projections.kubernetes.clique_objects import CliqueRows
from projections.kubernetes.daemon_pods import DaemonPods
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


def _keeps_the_shown_index(clique_rows: Any) -> Any:
    def rows(state: Any, of: Any, shown: Any, *rest: Any) -> Any:
        found: CliqueRows = clique_rows(state, of, shown, *rest)
        known = {row.node_name: row.index for row in (shown.daemons if shown is not None else None) or ()}
        lowest = [replace(row, index=known.get(row.node_name, place)) for place, row in enumerate(found.rows)]
        return found._replace(rows=lowest)

    return rows


def _without_pods(foreign_rows: Any) -> Any:
    return lambda *given, is_leftover_kept: foreign_rows(*given[:-1], DaemonPods(), is_leftover_kept=False)


def _same_author(author: Any) -> Any:
    return lambda self, user: "operator/edge" if author(self, user) is not None else None


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
    Bug(
        "index-of-the-place-in-the-list",
        "the row of a clique has the place of its node in the list as its index",
        "I29",
        lambda: patched((drivers.kubernetes.clique_targets, "clique_rows", _keeps_the_shown_index)),
        CLUSTER._replace(cliques="assign"),
    ),
    Bug(
        "rows-of-daemons-removed",
        "beside upstream's daemons, an edge removes each row without a claim",
        "I29",
        lambda: patched((projections.kubernetes.clique_objects, "_foreign_rows", _without_pods)),
        CLUSTER._replace(seed=5, cliques="beside"),
    ),
    Bug(
        "specs-under-one-name",
        "an edge appends the specs of all users under its own name",
        "I30",
        lambda: patched((UserNames, "author", _same_author)),
        CLUSTER,
    ),
)

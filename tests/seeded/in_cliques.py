"""Bugs in decisions about indices of cliques."""

from __future__ import annotations

from typing import Any

import projections.cliques.claims
import projections.cliques.fold
from projections.cliques.state import Clique, CliquesState
from tests.seeded.bugs import Bug, SteppedScenario, patched


def _second_lowest(lowest_free: Any) -> Any:
    def found(used: int) -> int:
        lowest: int = lowest_free(used)
        return lowest if used else lowest_free(1)

    return found


def _last_come_first_served(assign_waiting: Any) -> Any:
    def served(state: Any, clique_id: str, used: int, capacity: int, at: Any) -> Any:
        clique = state.cliques.get(clique_id)
        if clique is None:
            return assign_waiting(state, clique_id, used, capacity, at)
        queue, clique.queue = clique.queue, dict.fromkeys(reversed(clique.queue))
        try:
            return assign_waiting(state, clique_id, used, capacity, at)
        finally:
            clique.queue = queue

    return served


def _draft_is_not_updated(draft: Any) -> Any:
    def drafted(state: Any) -> Any:
        made = draft(state)
        made.apply = lambda change: None
        return made

    return drafted


def _last_index_beyond_capacity(is_free: Any) -> Any:
    return lambda self, index: index >= 0 and index not in self.holders


BUGS = (
    Bug(
        "index-not-dense",
        "the first claim of a clique gets index 1",
        "I4",
        lambda: patched((projections.cliques.claims, "lowest_free", _second_lowest)),
        SteppedScenario(1),
    ),
    Bug(
        "last-come-first-served",
        "a free index goes to the node that has waited for the shortest time",
        "I4",
        lambda: patched(
            (projections.cliques.claims, "assign_waiting", _last_come_first_served),
            (projections.cliques.fold, "assign_waiting", _last_come_first_served),
        ),
        SteppedScenario(1),
    ),
    Bug(
        "items-decided-apart",
        "each claim of a record is decided on the state before the record",
        "I20",
        lambda: patched((CliquesState, "draft", _draft_is_not_updated)),
        SteppedScenario(1),
    ),
    Bug(
        "index-beyond-the-capacity",
        "a node that returns gets its last index, although the clique has become smaller",
        "I4",
        lambda: patched((Clique, "is_free", _last_index_beyond_capacity)),
        SteppedScenario(2),
    ),
)

"""The indices of cliques, checked by a model of their rows that shares no code with the fold."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers.evidence import Evidence


def check_cliques(run: Evidence) -> Iterator[str]:
    """I4: an index belongs to one node, a node has one index, no free index is skipped, and no node's index changes."""
    for cliques in run.cliques:
        yield from cliques.faults

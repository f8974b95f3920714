"""Indices of cliques, by a model that knows their rows and nothing of how they came about."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers.evidence import Evidence


def check_cliques(run: Evidence) -> Iterator[str]:
    """I4: an index has one node and a node one index, none is left out, none changes under whoever has it."""
    for cliques in run.cliques:
        yield from cliques.faults

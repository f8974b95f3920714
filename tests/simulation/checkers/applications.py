"""Applications of Argo CD: at rest each wanted one is observed as healthy with its version, and no other is left."""

from __future__ import annotations

from collections.abc import Iterator

from eventstore.log import RESOURCES
from projections.resources.derivation import Derivation
from projections.resources.kinds import APPLICATION
from projections.resources.state import LOCAL, ResourcesState, object_id
from tests.simulation.checkers.evidence import Evidence

Found = Iterator[str]


def check_observed(run: Evidence) -> Found:
    """I16, at rest: what Argo CD did of each wanted Application is observed, and nothing of the others."""
    for partition, folded in run.folded.items():
        if partition.topic == RESOURCES:
            yield from _faults_of(folded.state)


def _faults_of(state: ResourcesState) -> Found:
    derivation = Derivation()
    derivation.update(state, state.objects.rows)
    claims = derivation.in_clusters.claims
    wanted = claims.of_kind(LOCAL, APPLICATION)
    for key in wanted:
        seen, version = state.seen.get(key), claims.winners[key].spec["source"]["targetRevision"]
        if seen is None or not seen.is_ready or seen.fields.get("revision") != version:
            yield f"{key} is observed as {seen and seen.text}, and is wanted in version {version}"
    for key in state.observed.rows:
        if object_id(key).kind == APPLICATION and object_id(key).source == LOCAL and key not in wanted:
            yield f"{key} is observed, and no DPUService wants it"

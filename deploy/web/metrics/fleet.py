"""Metrics of the fleet in the folds: members, holds, freezes, DPUs by phase."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from deploy.web.metrics import catalog
from deploy.web.metrics.survey import ROLLOUT_STATES, Survey
from eventstore.log import FLEET, RESOURCES, ZONES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.staging.course import OPEN_PHASES
from projections.zones.dpus.phases import PHASES


def collect(replica: Replica, survey: Survey | None) -> Iterator[Metric]:
    """The metrics of the partitions that this process folds."""
    topics = replica.supports()
    if FLEET in topics:
        yield from _fleet(FoldStates(replica))
    if ZONES in topics and survey is not None:
        yield catalog.NODES.family(survey.found.nodes)
        yield catalog.STUCK.family(survey.found.stuck)
        dpus = catalog.DPUS.family()
        for phase in PHASES:
            dpus.add_metric([phase], survey.found.phases[phase])
        yield dpus
    if RESOURCES in topics and survey is not None:
        rollouts, clusters = catalog.ROLLOUTS.family(), catalog.DPU_CLUSTERS.family()
        for state in ROLLOUT_STATES:
            rollouts.add_metric([state], survey.found.rollouts[state])
        for is_ready in (True, False):
            clusters.add_metric(["Ready" if is_ready else "NotReady"], survey.found.clusters[is_ready])
        yield from (rollouts, clusters)


def _fleet(states: FoldStates) -> Iterator[Metric]:
    fleet = states.fleet
    yield catalog.MEMBERS.family(len(fleet.members.rows))
    yield catalog.ZONES.family(len(fleet.zones.rows))
    yield catalog.POLICIES.family(len(fleet.policies.rows))
    yield catalog.HOLDS.family(len(fleet.holds.rows))
    yield catalog.FROZEN.family(len(fleet.freezes.rows))
    staged, changes = fleet.staged, catalog.STAGED.family()
    for phase in OPEN_PHASES:
        changes.add_metric([phase], staged is not None and staged.phase == phase)
    yield changes

"""Metrics of the fleet in the folds: members, holds, freezes, DPUs by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator

from prometheus_client.core import Metric

from deploy.web.metrics import catalog
from deploy.web.metrics.survey import ROLLOUT_STATES, Survey
from eventstore.log import FLEET, RESOURCES, ZONES
from eventstore.replicas.replica import Replica
from projections.fleet.staging.rows import StagedChange
from projections.fold_states import FoldStates
from projections.resources.network_stages.rows import StagedNetworks
from projections.staging.course import OPEN_PHASES
from projections.zones.dpus.phases import PHASES


def collect(replica: Replica, survey: Survey | None) -> Iterator[Metric]:
    """The metrics of the partitions that this process folds."""
    topics = replica.supports()
    if FLEET in topics or RESOURCES in topics:
        yield _staged_changes(replica, topics)
    if FLEET in topics:
        yield from _fleet(FoldStates(replica))
    if ZONES in topics and survey is not None:
        yield catalog.NODES.family(survey.found.nodes)
        yield catalog.STUCK.family(survey.found.stuck)
        yield catalog.DEVICE_CERTIFICATE_EXPIRY.family(survey.found.certificate_ends_ms / 1_000)
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


def _staged_changes(replica: Replica, topics: Container[str]) -> Metric:
    """The open staged changes of policies and networks in the folds of this process."""
    states = FoldStates(replica)
    rows: list[StagedChange | StagedNetworks | None] = []
    if FLEET in topics:
        rows += [states.fleet.staged]
    for partition in replica.partitions(RESOURCES) if RESOURCES in topics else ():
        rows += states.resources_at(partition).staged_networks.rows.values()
    phases = Counter(row.phase for row in rows if row is not None)
    changes = catalog.STAGED.family()
    for phase in OPEN_PHASES:
        changes.add_metric([phase], phases[phase])
    return changes

"""Metrics of the Kubernetes edge: its watches, its nodes and claims, and its writes to the API server."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from commands.kubernetes.object_edge import ObjectEdge
from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.web.metrics import catalog
from drivers.kubernetes.event_writer import EventWriter
from schemas.resources.compute_domain import UPSTREAM_KINDS


def collect(edge: KubernetesEdge) -> Iterator[Metric]:
    """All metrics of an edge."""
    current, lists = catalog.KUBERNETES_CURRENT.family(), catalog.KUBERNETES_LISTS.family()
    failures, stalls = catalog.KUBERNETES_FAILURES.family(), catalog.KUBERNETES_STALLS.family()
    for resource, watch in edge.watches.items():
        current.add_metric([edge.source, resource], float(watch.is_current))
        lists.add_metric([edge.source, resource], watch.counts.lists)
        failures.add_metric([edge.source, resource], watch.counts.failures)
        stalls.add_metric([edge.source, resource], watch.counts.stalls)
    yield from (current, lists, failures, stalls)
    for family, value in (
        (catalog.KUBERNETES_NODES, edge.nodes.count),
        (catalog.KUBERNETES_NODES_FAULTY, len(edge.nodes.faults)),
        (catalog.KUBERNETES_NODES_REFUSED, len(edge.nodes.refused)),
        (catalog.KUBERNETES_NODES_RETAINED, edge.nodes.retained),
    ):
        found = family.family()
        found.add_metric([edge.source], value)
        yield found
    if edge.event_writer is not None:
        yield from _events(edge, edge.event_writer)
    if edge.status is not None:
        counts, writes = edge.status.writer.counts, catalog.KUBERNETES_WRITES.family()
        for result, count in (
            ("written", counts.writes),
            ("conflict", counts.conflicts),
            ("unknown", counts.unknown),
            ("throttled", counts.throttled),
            ("behind", counts.behind),
            ("refused", counts.refused),
            ("given_up", counts.given_up),
        ):
            writes.add_metric([edge.source, result], count)
        yield writes
    if edge.objects is not None:
        yield from _objects(edge, edge.objects)
    if edge.clique_writer is not None and edge.pods is not None:
        written, retained = catalog.KUBERNETES_CLIQUE_WRITES.family(), catalog.KUBERNETES_CLAIMS_RETAINED.family()
        for kind in UPSTREAM_KINDS:
            written.add_metric([edge.source, kind.plural], edge.clique_writer.writes[kind.plural])
        retained.add_metric([edge.source], sum(edge.pods.retained.values()))
        yield from (written, retained)


def _events(edge: KubernetesEdge, writer: EventWriter) -> Iterator[Metric]:
    events, pending = catalog.KUBERNETES_EVENTS.family(), catalog.KUBERNETES_EVENTS_PENDING.family()
    for result, count in (vars(writer.counts) | vars(edge.events.counts)).items():
        events.add_metric([edge.source, result], count)
    pending.add_metric([edge.source], edge.events.pending)
    yield from (events, pending)


def _objects(edge: KubernetesEdge, objects: ObjectEdge) -> Iterator[Metric]:
    stated, not_accepted = catalog.KUBERNETES_STATED.family(), catalog.KUBERNETES_NOT_ACCEPTED.family()
    for kind in objects.caches:
        for result in ("accepted", "refused"):
            stated.add_metric([edge.source, kind.plural, result], objects.stated[kind.plural, result])
        not_accepted.add_metric([edge.source, kind.plural], objects.not_accepted(kind))
    yield from (stated, not_accepted)

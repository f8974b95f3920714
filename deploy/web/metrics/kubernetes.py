"""Metrics of the Kubernetes edges: their watches, nodes and claims, and their writes to the API servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from commands.kubernetes.object_edge import ObjectEdge
from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.web.metrics import catalog
from drivers.kubernetes.event_writer import EventWriter
from drivers.kubernetes.writer import Writer
from schemas.resources.compute_domain import UPSTREAM_KINDS


class _Sample(NamedTuple):
    spec: catalog.Gauge | catalog.Counter
    labels: tuple[str, ...]
    """The labels after the source."""
    value: float


def collect(edges: Iterable[KubernetesEdge]) -> Iterator[Metric]:
    """All metrics of the edges of a process: one family of each metric, with the samples of every edge."""
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for edge in edges:
        for spec, labels, value in _samples(edge):
            family = families.get(spec.name)
            if family is None:
                family = families[spec.name] = spec.family()
            family.add_metric([edge.source, *labels], value)
    yield from families.values()


def _samples(edge: KubernetesEdge) -> Iterator[_Sample]:
    if not edge.watches:  # its kubeconfig cannot be used
        yield _Sample(catalog.KUBERNETES_CURRENT, ("nodes",), 0.0)
    watches = edge.watches if edge.resources is None else {**edge.watches, **edge.resources.watches}
    for resource, watch in watches.items():
        yield _Sample(catalog.KUBERNETES_CURRENT, (resource,), float(watch.is_current))
        yield _Sample(catalog.KUBERNETES_LISTS, (resource,), watch.counts.lists)
        yield _Sample(catalog.KUBERNETES_FAILURES, (resource,), watch.counts.failures)
        yield _Sample(catalog.KUBERNETES_STALLS, (resource,), watch.counts.stalls)
    yield _Sample(catalog.KUBERNETES_NODES, (), edge.nodes.count)
    yield _Sample(catalog.KUBERNETES_NODES_FAULTY, (), len(edge.nodes.faults))
    yield _Sample(catalog.KUBERNETES_NODES_REFUSED, (), len(edge.nodes.refused))
    yield _Sample(catalog.KUBERNETES_NODES_RETAINED, (), edge.nodes.retained)
    for resource, count in edge.objects_ahead().items():
        yield _Sample(catalog.KUBERNETES_AHEAD, (resource,), count)
    if edge.event_writer is not None:
        yield from _events(edge, edge.event_writer)
    if edge.writer is not None:
        yield from _writes(edge.writer)
    if edge.objects is not None:
        yield from _objects(edge.objects)
    if edge.clique_writer is not None and edge.pods is not None:
        for kind in UPSTREAM_KINDS:
            written = edge.clique_writer.writes[kind.plural]
            yield _Sample(catalog.KUBERNETES_CLIQUE_WRITES, (kind.plural,), written)
        yield _Sample(catalog.KUBERNETES_CLAIMS_RETAINED, (), sum(edge.pods.retained.values()))


def _writes(writer: Writer) -> Iterator[_Sample]:
    counts = writer.counts
    for result, count in (
        ("written", counts.writes),
        ("conflict", counts.conflicts),
        ("unknown", counts.unknown),
        ("throttled", counts.throttled),
        ("behind", counts.behind),
        ("refused", counts.refused),
        ("given_up", counts.given_up),
    ):
        yield _Sample(catalog.KUBERNETES_WRITES, (result,), count)


def _events(edge: KubernetesEdge, writer: EventWriter) -> Iterator[_Sample]:
    for result, count in (vars(writer.counts) | vars(edge.events.counts)).items():
        yield _Sample(catalog.KUBERNETES_EVENTS, (result,), count)
    yield _Sample(catalog.KUBERNETES_EVENTS_PENDING, (), edge.events.pending)


def _objects(objects: ObjectEdge) -> Iterator[_Sample]:
    for kind in objects.caches:
        for result in ("accepted", "refused"):
            yield _Sample(catalog.KUBERNETES_STATED, (kind.plural, result), objects.stated[kind.plural, result])
        yield _Sample(catalog.KUBERNETES_NOT_ACCEPTED, (kind.plural,), objects.not_accepted(kind))

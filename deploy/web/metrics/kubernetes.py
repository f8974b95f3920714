"""Metrics of the Kubernetes edge: what it watches, and what it could not state."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.web.metrics import catalog


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

"""Metrics of a process's API: its calls and refusals."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from commands.rpc.metrics import BUCKET_BOUNDS_S, DurationHistogram
from commands.server import ApiServer
from deploy.web.metrics import catalog

_BOUNDS = (*map(floatToGoString, BUCKET_BOUNDS_S), "+Inf")


def collect(server: ApiServer) -> Iterator[Metric]:
    """All metrics of the API."""
    metrics = server.metrics
    calls, refusals, seconds = catalog.CALLS.family(), catalog.REFUSALS.family(), catalog.CALL_SECONDS.family()
    for (method, outcome), count in sorted(metrics.calls.items()):
        calls.add_metric([method, outcome], count)
    for method, durations in sorted(metrics.durations.items()):
        seconds.add_metric([method], buckets(durations), durations.sum_s)
    for reason, count in sorted(metrics.refusals.items()):
        refusals.add_metric([reason], count)
    yield from (calls, seconds, refusals)
    yield catalog.CALLS_UNDER_WAY.family(server.admission.under_way)
    yield catalog.UNKNOWN.family(server.command_handler.unknown)


def buckets(durations: DurationHistogram) -> list[tuple[str, float]]:
    """Cumulative counts per bound, as Prometheus requires."""
    return [(bound, count) for bound, count in zip(_BOUNDS, durations.cumulative_counts(), strict=True)]

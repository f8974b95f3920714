"""Metrics of a process's API: its calls, the outcomes of commands, and refusals.

The metrics of calls have the names, the labels and the spelling of statuses of go-grpc-prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from commands.rpc.metrics import BUCKET_BOUNDS_S, DurationHistogram, MethodMetrics
from commands.server import ApiServer
from deploy.web.metrics import catalog

_BOUNDS = (*map(floatToGoString, BUCKET_BOUNDS_S), "+Inf")
_SPELLED_OTHERWISE = {grpc.StatusCode.OK: "OK", grpc.StatusCode.CANCELLED: "Canceled"}
GO_CODES = {code: _SPELLED_OTHERWISE.get(code, code.name.title().replace("_", "")) for code in grpc.StatusCode}


def collect(server: ApiServer) -> Iterator[Metric]:
    """All metrics of the API."""
    yield from collect_calls(server.metrics.methods)
    commands, refusals = catalog.COMMANDS.family(), catalog.REFUSALS.family()
    for (method, outcome), count in sorted(server.metrics.commands.items()):
        commands.add_metric([method, outcome], count)
    for reason, count in sorted(server.metrics.refusals.items()):
        refusals.add_metric([reason], count)
    yield from (commands, refusals)
    yield catalog.UNKNOWN.family(server.command_handler.unknown)


def collect_calls(methods: list[MethodMetrics]) -> Iterator[Metric]:
    """The metrics of calls. A method that was never called has only a count of 0: its other series would double the
    size of a scrape."""
    started, handled, seconds = (
        catalog.RPCS_STARTED.family(),
        catalog.RPCS_HANDLED.family(),
        catalog.RPC_DURATION.family(),
    )
    received, sent = catalog.RPC_RECEIVED.family(), catalog.RPC_SENT.family()
    for counts in methods:
        labels = [counts.kind, counts.service, counts.method]
        started.add_metric(labels, counts.started)
        for code, count in counts.handled.items():
            handled.add_metric([*labels, GO_CODES[code]], count)
        if counts.started:
            seconds.add_metric(labels, buckets(counts.durations), counts.durations.sum_s)
            received.add_metric(labels, counts.received_messages)
            sent.add_metric(labels, counts.sent_messages)
    yield from (started, handled, seconds, received, sent)


def buckets(durations: DurationHistogram) -> list[tuple[str, float]]:
    """Cumulative counts per bound, as Prometheus requires."""
    return [(bound, count) for bound, count in zip(_BOUNDS, durations.cumulative_counts(), strict=True)]

"""Metrics of a relay: the latency of changes to devices, and the zones whose DPUs lack a change."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from deploy.web.metrics import catalog
from deploy.web.metrics.survey import SurveyResult
from drivers.relays.latency import LatencyHistogram
from drivers.relays.relay import Relay

BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_BOUNDS_MS = [bound * 1_000 for bound in BOUNDS_S]


def collect(relay: Relay, found: SurveyResult) -> Iterator[Metric]:
    """All metrics of a relay."""
    seconds = catalog.CHANGE_DURATION.family()
    for level, histogram in relay.latency.items():
        seconds.add_metric([level.name.lower()], _buckets(histogram), histogram.sum_ms / 1_000)
    yield seconds
    yield from _zones(found)
    yield catalog.CONNECTED.family(found.connected)
    yield catalog.CURRENT.family(found.current)
    yield catalog.DIFFERING.family(found.differing)
    yield catalog.LINKS.family(found.links)
    yield catalog.BACKLOG.family(found.backlog)
    yield catalog.BACKLOG_MAX.family(found.backlog_max)
    yield catalog.FRAMES.family(relay.frame_cache.encoded)
    closed = catalog.LINKS_CLOSED.family()
    for reason, count in relay.closed_for.items():
        closed.add_metric([reason], count)
    yield closed


def _zones(found: SurveyResult) -> Iterator[Metric]:
    """Metrics of zones whose DPUs lack a change: the time of the oldest such change per zone. At most ZONES_MAX zones
    are listed: zones that are not frozen come first, then zones with older changes."""
    missing, frozen = catalog.MISSING_CHANGE.family(), catalog.ZONE_FROZEN.family()
    behind = {zone: time_ms for zone, time_ms in found.missing_ms.items() if time_ms}
    frozen_zones = set(found.frozen)
    shown = heapq.nsmallest(catalog.ZONES_MAX, behind, key=lambda zone: (zone in frozen_zones, behind[zone]))
    for zone in sorted(shown):
        missing.add_metric([zone], behind[zone] / 1_000)
    for zone in sorted(found.frozen)[: catalog.ZONES_MAX]:
        frozen.add_metric([zone], 1)
    yield from (missing, frozen)
    yield catalog.ZONES_BEHIND.family(len(behind))
    yield catalog.ZONES_SERVED.family(len(found.missing_ms))


def _buckets(histogram: LatencyHistogram) -> list[tuple[str, float]]:
    counts: list[float] = [*histogram.within(_BOUNDS_MS), histogram.count]
    return list(zip((*map(floatToGoString, BOUNDS_S), "+Inf"), counts, strict=True))

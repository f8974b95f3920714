"""Prometheus metrics of a process, read from its parts when they are scraped: nothing is counted twice.

Units are in the names. Labels are partitions, levels and reasons, whose numbers are bounded; never nodes or DPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drivers.relay import Relay
from eventstore.log import FLEET, FLEET_0
from eventstore.replica import Replica


class PlaneCollector(Collector):
    """Collects from a replica, and from a relay where the process has one."""

    def __init__(self, replica: Replica, relay: Relay | None, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._relay = relay
        self._now_ms = now_ms

    def collect(self) -> Iterable[Metric]:
        yield from self._partitions()
        yield from self._fleet()
        if self._relay is not None:
            yield from self._deliveries(self._relay)

    def _partitions(self) -> Iterator[Metric]:
        position = GaugeMetricFamily("dpuplane_position_records", "Next offset to fold.", labels=["partition"])
        lag = GaugeMetricFamily("dpuplane_lag_records", "Records not folded yet.", labels=["partition"])
        age = GaugeMetricFamily("dpuplane_fold_age_seconds", "Since the last folded append.", labels=["partition"])
        halted = GaugeMetricFamily("dpuplane_halted", "1 if this replica stopped folding it.", labels=["partition"])
        quarantined = CounterMetricFamily(
            "dpuplane_quarantined_records", "Records that no rule admits.", labels=["partition"]
        )
        now_ms = self._now_ms()
        for status in self._replica.partitions_status():
            labels = [str(status.partition)]
            position.add_metric(labels, status.position)
            lag.add_metric(labels, status.lag)
            age.add_metric(labels, max(0, now_ms - status.time_ms) / 1_000 if status.time_ms else 0)
            halted.add_metric(labels, 1 if status.halted else 0)
            quarantined.add_metric(labels, status.quarantined)
        yield from (position, lag, age, halted, quarantined)

    def _fleet(self) -> Iterator[Metric]:
        if FLEET not in self._replica.supports():
            return
        state = self._replica.state(FLEET_0)
        yield GaugeMetricFamily(
            "dpuplane_members", "Nodes whose addresses are in rule tables.", len(state.members.rows)
        )
        yield GaugeMetricFamily("dpuplane_holds", "Withdrawals that wait for two principals.", len(state.holds.rows))

    def _deliveries(self, relay: Relay) -> Iterator[Metric]:
        closed = CounterMetricFamily("dpuplane_links_closed", "Agent links closed by this relay.", labels=["reason"])
        for reason, count in relay.closed_for.items():
            closed.add_metric([reason], count)
        yield closed
        sessions = sum(len(zone.sessions) for zone in relay.zones.values())
        yield GaugeMetricFamily("dpuplane_links", "Agent links open.", sessions)
        quantiles = GaugeMetricFamily(
            "dpuplane_join_to_level_milliseconds",
            "From a change's append to its DPUs, at this level, by quantile.",
            labels=["level", "quantile"],
        )
        for level, histogram in relay.latency.items():
            for share in (0.5, 0.99):
                quantiles.add_metric([level.name.lower(), f"{share:g}"], histogram.quantile(share))
        yield quantiles

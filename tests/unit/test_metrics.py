"""The content of a scrape: names with units, labels from a fixed list, and consistent series."""

from __future__ import annotations

import asyncio
import math
import re
from itertools import pairwise

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from commands.rpc.metrics import BUCKET_BOUNDS_S, DurationHistogram, RpcMetrics
from deploy.web.metrics import api, relay
from deploy.web.metrics.catalog import CATALOG, ZONES_MAX, Counter, Histogram, MetricSpec
from deploy.web.metrics.exposition import SAMPLES, Exposition
from deploy.web.metrics.survey import SurveyResult
from drivers.relays.latency import LatencyHistogram
from schemas.api import dpuplane_pb2 as pb

BOUNDED = {
    "source",
    "resource",
    "actor", "limiter", "engine", "grpc_code", "grpc_method", "grpc_service", "grpc_type", "kind", "level", "limit",
    "listener", "method", "of", "outcome", "partition", "phase", "python", "rank", "reason", "replica", "result",
    "role", "roles", "status", "topic", "version", "zone",
}  # fmt: skip
USUAL = "grpc_server_handling_seconds"
"""A histogram whose name other programs have established."""


@pytest.mark.parametrize("found", CATALOG, ids=lambda found: found.name)
def test_names_and_help_texts_of_metrics_follow_the_conventions(found: MetricSpec) -> None:
    assert re.fullmatch(r"(dpuplane|grpc_server)_[a-z_]+", found.name)
    assert isinstance(found, Counter) == found.name.endswith("_total")
    assert isinstance(found, Histogram) == found.name.endswith("_duration_seconds") or found.name == USUAL
    assert "_age_" not in found.name, "export a _timestamp_seconds instead of an age"
    assert found.help[-1] == "." and found.help[0].isupper() | found.help[0].isdigit()
    assert set(found.labels) <= BOUNDED


def test_names_are_unique() -> None:
    assert len({found.name for found in CATALOG}) == len(CATALOG)


@given(st.lists(st.integers(0, 3_000_000), max_size=50), st.lists(st.integers(1, 10**7), min_size=1, unique=True))
def test_cumulative_counts_agree_with_the_samples_within_a_bucket(samples: list[int], bounds: list[int]) -> None:
    histogram, bounds = LatencyHistogram(), sorted(bounds)
    for sample in samples:
        histogram.add(sample)
    counts = histogram.within(bounds)
    assert histogram.sum_ms == sum(samples)
    assert all(before <= after for before, after in pairwise(counts))
    for bound, count in zip(bounds, counts, strict=True):
        assert sum(s <= bound / 1.02 - 1 for s in samples) <= count <= sum(s <= bound * 1.02 + 1 for s in samples)


@given(st.lists(st.floats(0, 100)))
def test_durations_are_counted_cumulatively_by_bucket(seconds: list[float]) -> None:
    durations = DurationHistogram()
    for second in seconds:
        durations.observe(second)
    assert durations.cumulative_counts() == [sum(s <= bound for s in seconds) for bound in (*BUCKET_BOUNDS_S, math.inf)]


def test_refusals_are_counted_by_reason_code() -> None:
    metrics = RpcMetrics(lambda: 0.0)
    refused = pb.CommandResult(outcome=pb.OUTCOME_REFUSED, reason="labels: 'evil\nx'", reason_code="INVALID_FIELD")
    metrics.record_result("JoinNodes", refused)
    assert metrics.refusals == {"INVALID_FIELD": 1}
    assert metrics.commands == {("JoinNodes", "refused"): 1}


def test_calls_have_the_usual_metrics_of_a_grpc_server() -> None:
    now_s = iter((0.0, 0.003, 0.0, 0.3, 0.0, 0.0, 0.0))
    metrics = RpcMetrics(lambda: next(now_s))
    join = metrics.add_method(pb.DESCRIPTOR.services_by_name["Commands"].methods_by_name["JoinNodes"])
    metrics.add_method(pb.DESCRIPTOR.services_by_name["Commands"].methods_by_name["JoinNodesStream"])
    with join.call() as ended:
        ended.code = grpc.StatusCode.OK
    with pytest.raises(asyncio.CancelledError), join.call():
        raise asyncio.CancelledError
    with pytest.raises(KeyError), join.call():
        raise KeyError
    join.call()
    text = generate_latest(Given(*api.collect_calls(metrics.methods))).decode()
    labels = 'grpc_method="JoinNodes",grpc_service="dpuplane.v1.Commands",grpc_type="unary"'
    assert f"grpc_server_started_total{{{labels}}} 4.0" in text
    for code in ("OK", "Canceled", "Unknown"):
        assert f'grpc_server_handled_total{{grpc_code="{code}",{labels}}} 1.0' in text
    assert f"grpc_server_handling_seconds_count{{{labels}}} 3.0" in text
    assert f"grpc_server_handling_seconds_sum{{{labels}}} 0.303" in text
    assert 'grpc_server_started_total{grpc_method="JoinNodesStream",grpc_service="dpuplane.v1.Commands",' in text
    assert 'grpc_type="client_stream"} 0.0' in text
    assert 'grpc_server_msg_received_total{grpc_method="JoinNodesStream"' not in text, (
        "a method without calls has no message count"
    )


def test_statuses_are_spelled_as_in_the_go_library() -> None:
    assert {api.GO_CODES[code] for code in grpc.StatusCode} == {
        "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
        "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
        "Internal", "Unavailable", "DataLoss", "Unauthenticated",
    }  # fmt: skip


class Given:
    """A collector of these metric families."""

    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return list(self.families)


async def test_a_scrape_in_slices_equals_a_scrape_in_one_piece() -> None:
    many = GaugeMetricFamily("many", 'A "help" \\ in\ntwo lines.', labels=["zone"])
    for number in range(3 * SAMPLES + 7):
        many.add_metric([f'z"{number}\n'], number)
    registry = CollectorRegistry()
    registry.register(Given(many, GaugeMetricFamily("one", "One.", 1.5)))
    text = await Exposition([registry]).text()
    assert text.startswith(generate_latest(registry))
    assert b"process_cpu_seconds_total" in text


def test_zones_beyond_the_limit_count_in_totals_and_the_most_delayed_are_shown() -> None:
    missing_ms = {f"z{number}": 1_000 * number for number in range(ZONES_MAX + 500)}  # z0 has no missing change
    found = SurveyResult(missing_ms=missing_ms, frozen=["z1", "z2"])
    by_name = {family.name: family for family in relay._zones(found)}
    samples = by_name["dpuplane_oldest_missing_change_timestamp_seconds"].samples
    assert {sample.labels["zone"]: sample.value for sample in samples} == {
        f"z{number}": number for number in range(3, ZONES_MAX + 3)
    }
    assert by_name["dpuplane_served_zones"].samples[0].value == ZONES_MAX + 500
    assert by_name["dpuplane_zones_behind"].samples[0].value == ZONES_MAX + 499

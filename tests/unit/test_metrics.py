"""The content of a scrape: names with units, bounded labels, series that add up."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from commands.rpc.metrics import BUCKET_BOUNDS_S, OTHER, REASONS_MAX, DurationHistogram, RpcMetrics
from deploy.web.metrics import relay
from deploy.web.metrics.catalog import CATALOG, ZONES_MAX, Counter, MetricSpec
from deploy.web.metrics.exposition import SAMPLES, Exposition
from deploy.web.metrics.survey import SurveyResult
from drivers.relays.latency import LatencyHistogram
from schemas.api import dpuplane_pb2 as pb

BOUNDED = {
    "actor", "limiter", "engine", "kind", "level", "limit", "listener", "method", "of", "outcome", "partition", "phase",
    "rank", "reason", "replica", "result", "role", "roles", "topic", "version", "zone",
}  # fmt: skip


@pytest.mark.parametrize("found", CATALOG, ids=lambda found: found.name)
def test_a_name_says_what_is_counted_and_a_help_is_a_sentence(found: MetricSpec) -> None:
    assert re.fullmatch(r"dpuplane_[a-z_]+", found.name)
    assert isinstance(found, Counter) == found.name.endswith("_total")
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
def test_durations_are_counted_once_and_by_their_bound(seconds: list[float]) -> None:
    durations = DurationHistogram()
    for second in seconds:
        durations.observe(second)
    assert durations.cumulative_counts() == [sum(s <= bound for s in seconds) for bound in (*BUCKET_BOUNDS_S, math.inf)]


def test_refusals_are_told_apart_by_field_and_no_caller_can_make_many() -> None:
    metrics = RpcMetrics()
    refused = pb.CommandResult(outcome=pb.OUTCOME_REFUSED, reason="labels: 'evil\nx' must be short")
    metrics.record_result("Commands.JoinNodes", refused, 0.01)
    metrics.record_error(
        "Commands.FreezeWrites", "permission_denied", "Commands.Freeze: viewer/vic must have the role operator", 0.01
    )
    assert metrics.refusals == {"labels": 1, OTHER: 1}
    for number in range(10 * REASONS_MAX):
        metrics.record_refusal("".join(chr(ord("a") + int(digit)) for digit in str(number)) + ": no")
    assert len(metrics.refusals) == REASONS_MAX
    assert metrics.refusals.total() == 2 + 10 * REASONS_MAX
    assert metrics.calls == {("Commands.JoinNodes", "refused"): 1, ("Commands.FreezeWrites", "permission_denied"): 1}


class Given:
    """A collector of these families."""

    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return list(self.families)


async def test_a_scrape_in_slices_says_what_one_in_one_piece_says() -> None:
    many = GaugeMetricFamily("many", 'A "help" \\ in\ntwo lines.', labels=["zone"])
    for number in range(3 * SAMPLES + 7):
        many.add_metric([f'z"{number}\n'], number)
    registry = CollectorRegistry()
    registry.register(Given(many, GaugeMetricFamily("one", "One.", 1.5)))
    text = await Exposition([registry]).text()
    assert text.startswith(generate_latest(registry))
    assert b"process_cpu_seconds_total" in text


def test_zones_beyond_the_cap_are_in_the_totals_and_the_oldest_are_shown() -> None:
    ages = {f"z{number}": float(number) for number in range(ZONES_MAX + 500)}
    by_name = {family.name: family for family in relay._zones(SurveyResult(ages_s=ages, frozen=list(ages)[-1:]))}
    shown = {sample.labels["zone"] for sample in by_name["dpuplane_table_age_seconds"].samples}
    assert shown == {f"z{number}" for number in range(500, ZONES_MAX + 500)}
    assert by_name["dpuplane_served_zones"].samples[0].value == ZONES_MAX + 500
    assert by_name["dpuplane_zones_behind"].samples[0].value == ZONES_MAX + 499
    assert by_name["dpuplane_table_age_max_seconds"].samples[0].value == ZONES_MAX + 498, "the oldest is frozen"

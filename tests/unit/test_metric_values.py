"""Metrics follow the state of a process: each changes with its own source only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.core import Metric

from deploy.web.metrics import collector, log
from deploy.web.metrics.catalog import (
    APPEND_FAILURES,
    CONNECTIONS,
    CONNECTIONS_MAX,
    DENIALS,
    FOLD_VERSION,
    FOLD_VERSION_SUPPORTED,
    FOLDED_TIME,
    HALTED,
    LAG_RECORDS,
    LOG_SEEN,
    QUARANTINED,
    READY,
    REFUSED_ADMISSIONS,
    REFUSED_CONNECTIONS,
    SAVED,
    SIDE_EFFECTS,
    STALLED,
    UNSAVED,
    MetricSpec,
)
from deploy.web.metrics.collector import Parts, PlaneCollector
from deploy.web.metrics.survey import Survey
from drivers.stall_detector import StallDetector
from drivers.wire.protocol import TableStatus
from eventstore.log import FLEET, FLEET_0, ZONES, Partition
from eventstore.replicas.replica import Replica
from eventstore.replicas.status import PartitionStatus
from tests.support.memory_plane import plane
from tests.support.relays import FIRST, AgentPeer, has, relay_cluster
from tests.support.rule_source import ALLOW, Tables

pytestmark = pytest.mark.virtual_clock

NOW_MS = 1_700_000_000_000


def values_of(metrics: Iterable[Metric], described: MetricSpec) -> dict[tuple[str, ...], float]:
    """The samples of one metric, by the values of its labels."""
    return {
        tuple(sample.labels[label] for label in described.labels): sample.value
        for family in metrics
        if family.name == described.name.removesuffix("_total")
        for sample in family.samples
        if sample.name == described.name
    }


def status(partition: Partition, **fields: Any) -> PartitionStatus:
    found = PartitionStatus(partition, 10, 10, "", "", (), 1, "", 0, NOW_MS, 0)
    return found._replace(**fields)


# -- the log


def test_lag_halts_and_quarantine_are_counted_per_partition() -> None:
    zones = Partition(ZONES, 3)
    metrics = [
        *log._partitions(
            [status(FLEET_0), status(zones, lag=7, time_ms=NOW_MS - 4_000, halted="a bug", quarantined=2)],
        )
    ]
    assert values_of(metrics, LAG_RECORDS) == {("fleet/0",): 0, ("zones/3",): 7}
    assert values_of(metrics, FOLDED_TIME) == {("fleet/0",): NOW_MS / 1_000, ("zones/3",): NOW_MS / 1_000 - 4}
    assert values_of(metrics, HALTED) == {("fleet/0",): 0, ("zones/3",): 1}
    assert values_of(metrics, QUARANTINED) == {("fleet/0",): 0, ("zones/3",): 2}


def test_the_fold_version_of_a_topic_is_the_lowest_of_its_partitions() -> None:
    replica = cast("Replica", SimpleNamespace(supports=lambda: {FLEET: [1, 2, 3], ZONES: [1, 2]}))
    partitions = [
        status(FLEET_0, fold_version=3),
        *(status(Partition(ZONES, number), fold_version=version) for number, version in enumerate((2, 1, 2))),
    ]
    metrics = [*log._versions(replica, partitions)]
    assert values_of(metrics, FOLD_VERSION) == {("fleet",): 3, ("zones",): 1}
    assert values_of(metrics, FOLD_VERSION_SUPPORTED) == {("fleet",): 3, ("zones",): 2}


async def test_unsaved_records_and_stalled_partitions_are_counted() -> None:
    async with plane() as made:
        replica = await made.add("r1")
        await asyncio.sleep(5)
        stall_detector = cast(
            "StallDetector", SimpleNamespace(reasons={Partition(ZONES, 1): "ahead", Partition(ZONES, 2): "behind"})
        )
        before = [*log.collect(replica, stall_detector, made.now_ms())]
        assert (values_of(before, UNSAVED), values_of(before, STALLED)) == ({(): 0}, {(): 2})
        assert 0 <= made.now_ms() / 1_000 - values_of(before, SAVED)[()] < 5
        assert 0 <= made.now_ms() / 1_000 - values_of(before, LOG_SEEN)[()] < 5
        await made.join("z1", "a")
        assert values_of(log.collect(replica, None, made.now_ms()), UNSAVED) == {(): 1}
        await asyncio.sleep(5)
        assert values_of(log.collect(replica, None, made.now_ms()), UNSAVED) == {(): 0}


# -- the process


async def test_the_ready_metric_follows_readiness() -> None:
    async with plane() as made:
        replica, reasons = await made.add("r1"), ["the log is not folded yet"]
        parts = Parts(
            replica=replica,
            roles=["api"],
            version="1",
            engine="embedded",
            now_ms=made.now_ms,
            unready=lambda: reasons[0],
            security=None,
        )
        assert values_of(PlaneCollector(parts).collect(), READY) == {(): 0}
        reasons[0] = ""
        assert values_of(PlaneCollector(parts).collect(), READY) == {(): 1}


def test_refusals_of_admission_are_counted_by_limiter_and_denials_by_kind() -> None:
    parts = SimpleNamespace(
        server=SimpleNamespace(admission=SimpleNamespace(refused=1)),
        relay=SimpleNamespace(admission=SimpleNamespace(refused=2)),
        security=SimpleNamespace(denials=SimpleNamespace(denied=3, unauthenticated=4)),
        refused_feeds=lambda: 5,
    )
    metrics = [*collector._admissions(cast("Parts", parts))]
    assert values_of(metrics, REFUSED_ADMISSIONS) == {("api",): 1, ("agents",): 2, ("page",): 5}
    assert values_of(metrics, DENIALS) == {("denied",): 3, ("unauthenticated",): 4}


def test_connections_are_counted_by_listener_and_refused_ones_by_limit() -> None:
    listener = SimpleNamespace(connections=7, limits=SimpleNamespace(most=9), refused=Counter(address=3, files=1))
    parts = SimpleNamespace(listeners={"http": listener})
    metrics = [*collector._connections(cast("Parts", parts))]
    assert values_of(metrics, CONNECTIONS) == {("http",): 7}
    assert values_of(metrics, CONNECTIONS_MAX) == {("http",): 9}
    assert values_of(metrics, REFUSED_CONNECTIONS) == {
        ("http", "listener"): 0,
        ("http", "address"): 3,
        ("http", "handshake"): 0,
        ("http", "files"): 1,
    }


def test_appends_are_counted_by_actor() -> None:
    def stating(failures: int) -> Any:
        statements = SimpleNamespace(failures=failures, turns=Counter({0: 10 * failures, 2: failures}))
        return SimpleNamespace(internal_events=statements)

    actors = {"forwarder": stating(1), "timers": stating(2), "provisioner": stating(3)}
    decisions = cast("Any", SimpleNamespace(failures=4, written=0, lag=0))
    metrics = [*collector._actors(actors, decisions)]
    failures = {("forwarder",): 1, ("timers",): 2, ("provisioner",): 3, ("decisions",): 4}
    assert values_of(metrics, APPEND_FAILURES) == failures
    turns = {labels: count for labels, count in values_of(metrics, SIDE_EFFECTS).items() if count}
    assert turns == {
        (name, rank): count * times
        for (name,), count in failures.items()
        if name != "decisions"
        for rank, times in (("0", 10), ("2", 1))
    }


# -- the relay


async def test_a_dpu_with_a_table_of_another_epoch_is_not_up_to_date() -> None:
    tables = Tables(["new", "old"], epoch=2)
    tables.put(5, {ALLOW: FIRST})
    async with plane() as made, relay_cluster(tables) as served:
        survey = Survey(await made.add("r1"), served.relay)
        new, old = AgentPeer(await served.dial("r0")), AgentPeer(await served.dial("r0"))
        old.hello("old", held=TableStatus(1, 1, 9, 9, 9, bytes(16)))
        new.hello("new")
        new.say(has(await new.frame()))
        await asyncio.sleep(1)
        await survey.walk()
        assert (survey.found.connected, survey.found.current, survey.found.links) == (2, 1, 2)

"""The faults of the faulty log: what readers see is a fixed function of the offset, and what was drawn happens."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import AppendRefused, AppendUnknown
from eventstore.log import MAX_RECORD_BYTES, ZONES, Partition, Record
from tests.contract.engine import read_all
from tests.support.embedded import Clock
from tests.support.faulty_log import FaultCounts, FaultyLog, LogFaults, View
from tests.support.virtual_loop import run_virtual

ZONES_0 = Partition(ZONES, 0)
FAULTS = LogFaults()
CALM = LogFaults(duplicate=0, lost_answer=0, late=0, never=0)

views = st.builds(lambda seed, gap: View(seed, replace(FAULTS, gap=gap)), st.integers(0, 1_000), st.integers(0, 5))
partitions = st.builds(Partition, st.just(ZONES), st.integers(0, 20))


@given(views, partitions, st.integers(0, 10_000))
def test_offsets_rise_and_come_back(view: View, partition: Partition, inner: int) -> None:
    outer = view.outer(partition, inner)
    assert view.outer(partition, 0) == 0
    assert outer < view.outer(partition, inner + 1)
    assert view.inner(partition, outer) == inner
    assert view.inner(partition, outer + 1) == inner + 1


@given(views, partitions, st.integers(0, 10_000))
def test_a_position_in_a_gap_leads_to_the_record_behind_it(view: View, partition: Partition, outer: int) -> None:
    inner = view.inner(partition, outer)
    assert view.outer(partition, inner) >= outer
    assert inner == 0 or view.outer(partition, inner - 1) < outer


@given(views, partitions, st.integers(0, 1_000), st.integers(10_000, 10**13))
def test_timestamps_are_never_later_than_the_append(view: View, partition: Partition, offset: int, ms: int) -> None:
    seen = view.timestamp_ms(partition, Record(offset, ms, b"", b""))
    assert ms - FAULTS.backward_max_ms <= seen <= ms


def test_offsets_skip_and_timestamps_repeat_and_go_back() -> None:
    view = View(1, FAULTS)
    seen = [view.timestamp_ms(ZONES_0, Record(i, 1_000_000 + 10 * i, b"", b"")) for i in range(1_000)]
    assert any(a > b for a, b in pairwise(seen))
    assert any(a == b for a, b in pairwise(seen))
    assert view.end(ZONES_0, 1_000) > 1_200


async def _run(path: Path, seed: int, appends: int) -> tuple[FaultCounts, list[bytes], list[bytes], list[Record]]:
    acknowledged, unknown = [], []
    async with EmbeddedLog.open(TOPICS, path, partition_count=2, now_ms=Clock()) as inner:
        log = FaultyLog(inner, random.Random(seed), FAULTS, seed=seed)
        for i in range(appends):
            value = b"%d" % i
            try:
                await log.append(ZONES_0, b"zone", value)
                acknowledged.append(value)
            except AppendUnknown:
                unknown.append(value)
        await log.settle()
        records = await read_all(log, ZONES_0)
    return log.counts, acknowledged, unknown, records


def test_every_fault_happens_and_is_counted(tmp_path: Path) -> None:
    counts, acknowledged, unknown, records = run_virtual(_run(tmp_path / "log", 3, 1_000))
    values = [record.value for record in records]
    assert counts.acknowledged == len(acknowledged)
    assert counts.lost_answers + counts.landed_late + counts.never_landed == len(unknown)
    assert counts.duplicates == len(values) - len(set(values)) > 10
    assert counts.never_landed == len(set(unknown) - set(values)) > 5
    assert min(counts.lost_answers, counts.landed_late, counts.restamped) > 5
    assert set(acknowledged) <= set(values)
    assert [int(v) for v in values] != sorted(int(v) for v in values)


def test_one_seed_is_one_history(tmp_path: Path) -> None:
    one, two, other = (run_virtual(_run(tmp_path / name, seed, 200)) for name, seed in (("a", 3), ("b", 3), ("c", 4)))
    assert one == two
    assert one != other


async def test_a_refusal_stays_a_refusal_whatever_is_drawn(tmp_path: Path) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=Clock()) as inner:
        log = FaultyLog(inner, random.Random(1), replace(CALM, never=1.0), seed=1)
        with pytest.raises(AppendRefused):
            await log.append(ZONES_0, b"", bytes(MAX_RECORD_BYTES + 1))
        with pytest.raises(AppendUnknown):
            await log.append(ZONES_0, b"", b"v")


async def test_it_heals_when_its_faults_are_taken_away(tmp_path: Path) -> None:
    async with EmbeddedLog.open(TOPICS, tmp_path / "log", partition_count=2, now_ms=Clock()) as inner:
        log = FaultyLog(inner, random.Random(1), replace(CALM, late=1.0, delay_max_s=60, under_way_max=3), seed=1)
        for i in range(5):
            with pytest.raises(AppendUnknown):
                await log.append(ZONES_0, b"", b"late-%d" % i)
        assert log.counts.never_landed == 2
        log.faults = CALM
        await log.append(ZONES_0, b"", b"v")
        assert b"v" in [record.value for record in await read_all(log, ZONES_0)]
        await log.close()
        assert log.counts.never_landed + log.counts.landed_late == 5

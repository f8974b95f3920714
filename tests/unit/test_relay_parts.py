"""Parts of a relay: latency histograms, admission, reports, the frame cache, and records of simulated devices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from deploy.composition.topics import TOPICS
from drivers.backends.simulated import NO_DEVICE_FAULTS
from drivers.backends.simulated_devices import SimulatedDevices
from drivers.backends.simulated_records import devices_of, groups, mask
from drivers.relays import admission as admission_module
from drivers.relays.admission import ADVICE_S_MAX, LinkAdmission
from drivers.relays.frame_cache import ENTRY_BYTES, FrameCache
from drivers.relays.latency import LatencyHistogram
from drivers.relays.reports import EXCEPTIONS_S, NAMES_MAX, ReportBuffer
from drivers.relays.served_zone import SNAPSHOT_EVERY_S, SNAPSHOTS_AT_ONCE, DpuRateLimiter
from drivers.wire import relay_messages
from drivers.wire.protocol import printable_line
from drivers.wire.relay_messages import Frame
from eventstore.avro.codec import encode
from eventstore.log import INSTALLS
from projections.installs.rows import MAX_VERSIONS, Level
from projections.rules.device_table import EMPTY_TABLE, steps_between
from projections.rules.rule import Delta
from tests.support.rule_source import ALLOW, Tables, packed


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_a_quantile_is_accurate_to_two_percent(samples: list[int], share: float) -> None:
    histogram = LatencyHistogram()
    for sample in samples:
        histogram.add(sample)
    true = sorted(samples)[max(0, int(np.ceil(share * len(samples))) - 1)]
    assert abs(histogram.quantile(share) - true) <= 0.02 * true + 1
    assert (histogram.count, histogram.max_ms) == (len(samples), max(samples))


def test_an_empty_histogram_and_a_negative_latency_yield_zero() -> None:
    histogram = LatencyHistogram()
    assert histogram.quantile(0.99) == 0.0
    histogram.add(-50, 10)
    assert (histogram.quantile(0.99), histogram.max_ms, histogram.count) == (0.0, 0, 10)


def test_admission_keeps_its_rate_and_spreads_the_retry_times() -> None:
    now = 0.0
    admission = LinkAdmission(50.0, 100, now=lambda: now, rng=random.Random(1))
    answers = [admission.admit(f"dpu-agent/{i}", is_one_dpu=True) for i in range(1_000)]
    assert answers.count(0.0) == 100
    advice = [wait for wait in answers if wait]
    assert max(advice) > 15
    assert max(advice) <= 1.25 * ADVICE_S_MAX
    per_second = np.bincount(np.array(advice, dtype=int))
    assert max(per_second[1:15]) < 100
    now = 10.0
    assert [admission.admit(f"dpu-agent/new{i}", is_one_dpu=True) for i in range(200)].count(0.0) == 100


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_that_retries_at_its_time_is_admitted(seed: int) -> None:
    """Retry times begin after the tokens of the full bucket. Agents that return early by jitter use this slack."""
    now = 0.0
    admission = LinkAdmission(50.0, 100, now=lambda: now, rng=random.Random(seed))
    for herd_at in (0.0, 1_000.0):
        now = herd_at
        names = [f"dpu-agent/{i}" for i in range(1_000)]
        waits = [(admission.admit(name, is_one_dpu=True), name) for name in names]
        back = sorted((herd_at + wait, name) for wait, name in waits if wait)
        assert len(back) == 900
        for coming_s, name in back:
            now = coming_s
            assert admission.admit(name, is_one_dpu=True) == 0.0


def test_retry_times_of_any_number_of_agents_are_within_the_limit() -> None:
    admission = LinkAdmission(50.0, 100, now=lambda: 0.0, rng=random.Random(1))
    longest = max(admission.admit(f"dpu-agent/{i}", is_one_dpu=True) for i in range(5_000))
    assert ADVICE_S_MAX < longest <= 1.25 * ADVICE_S_MAX


@pytest.mark.parametrize("is_one_dpu", [True, False], ids=["certificates", "addresses"])
def test_agents_that_retry_without_pause_do_not_lock_out_another(is_one_dpu: bool) -> None:
    """Without the retry time per identity, ten such agents took every free token and locked out another for 45 s."""
    now = 0.0
    admission = LinkAdmission(20.0, 40, now=lambda: now, rng=random.Random(1))
    for _ in range(3_000):
        now += 0.01
        for number in range(10):
            admission.admit(f"loud{number}", is_one_dpu=is_one_dpu)
    assert admission.refused > 20_000
    began, wait_s = now, admission.admit("quiet", is_one_dpu=True)
    while wait_s:
        due = now + wait_s
        while now < due:
            now += 0.01
            for number in range(10):
                admission.admit(f"loud{number}", is_one_dpu=is_one_dpu)
        wait_s = admission.admit("quiet", is_one_dpu=True)
    assert now - began < (1 if is_one_dpu else 40)


def test_one_address_gets_half_of_the_rate_and_its_agents_are_spread() -> None:
    now = 0.0
    admission = LinkAdmission(50.0, 100, now=lambda: now, rng=random.Random(1))
    answers = [admission.admit("10.0.0.1", is_one_dpu=False) for _ in range(300)]
    assert answers.count(0.0) == 50
    assert 9 < max(answers) < 1.25 * 10.1
    assert [admission.admit("10.0.0.2", is_one_dpu=False) for _ in range(50)].count(0.0) == 50
    back = sorted(wait for wait in answers if wait)
    let_in = 0
    for coming_s in back:
        now = coming_s
        let_in += not admission.admit("10.0.0.1", is_one_dpu=False)
    assert let_in > 200


def test_the_number_of_identities_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "IDENTITIES_MAX", 3)
    admission = LinkAdmission(1_000.0, 1_000, now=lambda: 0.0, rng=random.Random(1))
    for number in range(10):
        admission.admit(f"dpu-agent/{number}", is_one_dpu=True)
    assert list(admission._identities) == ["dpu-agent/7", "dpu-agent/8", "dpu-agent/9"]


def test_a_dpu_gets_three_snapshots_at_once_and_then_one_per_minute() -> None:
    limiter = DpuRateLimiter(SNAPSHOTS_AT_ONCE, SNAPSHOT_EVERY_S)
    assert [limiter.wait_s([3], 0.0)[0] for _ in range(4)] == [0.0, 0.0, 0.0, 60.0]
    assert limiter.wait_s([3, 70], 30.0).tolist() == [30.0, 0.0]
    assert limiter.wait_s([3], 60.0)[0] == 0.0
    assert limiter.wait_s([3], 61.0)[0] > 50


def test_reports_are_united_and_a_lost_one_is_repeated() -> None:
    pending = ReportBuffer()
    pending.reach(5, Level.APPLIED, BitMap([1, 2]), 100, 150)
    pending.reach(5, Level.APPLIED, BitMap([3]), 100, 160)
    taken = pending.take(0.0)
    assert not pending.reached
    pending.reach(5, Level.APPLIED, BitMap([4]), 100, 155)
    pending.put_back(taken)
    event = pending.take(1.0).event("z", "r", 1, 10, 200)
    assert (event.versions, event.levels, event.reached_ms, event.appended_ms) == ([5], [1], [160], [100])
    assert set(BitMap.deserialize(event.ordinals[0])) == {1, 2, 3, 4}
    assert (event.envelope.actor, event.envelope.command_id, event.dpu_count) == ("relay/r", "", 10)


def test_a_lost_report_does_not_overwrite_a_newer_state_of_a_dpu() -> None:
    pending = ReportBuffer()
    pending.regressed, pending.refused = {"d": 7, "e": 7}, {"d": "FULL: then", "e": "FULL: then"}
    taken = pending.take(0.0)
    pending.regressed, pending.refused = {"d": 5}, {"d": "DEVICE: now"}
    pending.put_back(taken)
    assert pending.regressed == {"d": 5, "e": 7}
    assert pending.refused == {"d": "DEVICE: now", "e": "FULL: then"}


def test_the_report_buffer_does_not_change_its_arguments() -> None:
    pending, mine, again = ReportBuffer(), BitMap([1]), ReportBuffer()
    pending.reach(5, Level.APPLIED, mine, 100, 150)
    pending.reach(5, Level.APPLIED, BitMap([2]), 100, 160)
    taken = pending.take(0.0)
    again.put_back(taken)
    again.reach(5, Level.APPLIED, BitMap([3]), 100, 170)
    assert (mine, taken.reached[5, Level.APPLIED].ordinals) == (BitMap([1]), BitMap([1, 2]))
    assert again.reached[5, Level.APPLIED].ordinals == BitMap([1, 2, 3])


def test_a_report_names_a_limited_number_of_dpus_per_interval() -> None:
    pending = ReportBuffer()
    pending.refused = {f"d{number}": "FULL: it does not fit" for number in range(250)}
    assert pending.is_due(0.0)
    sizes = []
    for turn in range(3):
        now = turn * EXCEPTIONS_S
        sizes.append(len(pending.take(now).refused))
        assert not pending.is_due(now + 0.9 * EXCEPTIONS_S)
    assert sizes == [NAMES_MAX, NAMES_MAX, 50]
    assert not pending.is_due(1e9)


def test_a_buffer_filled_during_an_outage_fits_into_one_record() -> None:
    pending, rng = ReportBuffer(), random.Random(1)
    for version in range(100):
        for level in Level:
            pending.reach(version, level, BitMap(rng.sample(range(4_000), 2_000)), 100, 150)
    names = [f"{number:0>253}" for number in range(NAMES_MAX)]
    pending.regressed = dict.fromkeys(names, 5)
    pending.refused = dict.fromkeys(names, f"DIGEST: {printable_line(chr(0x1F600) * 500)}")
    event = pending.take(0.0).event("z" * 253, "r", 1, 4_000, 200)
    TOPICS.check_append(TOPICS.partition_for(INSTALLS, event.zone, 6), event.zone.encode(), encode(event), 6)
    assert len(event.versions) < 300
    assert set(range(100 - MAX_VERSIONS, 100)) <= set(event.versions)
    assert event.versions == sorted(event.versions)


def test_the_smaller_of_delta_and_snapshot_is_sent_and_encoded_once() -> None:
    tables = Tables()
    many = packed(*(f"10.{i // 250}.{i % 250}.0/24" for i in range(3_000)))
    tables.put(5, {ALLOW: many})
    tables.put(6, {ALLOW: packed("11.0.0.0/8")})
    frames = FrameCache(tables)
    current = tables.current("a", 0)
    shrunk = frames.frame("a", current, 5)
    assert shrunk.is_snapshot
    assert shrunk is frames.frame("b", current, 5)
    assert (frames.encoded, frames.frame("b", current, 0).data) == (1, shrunk.data)
    unknown = frames.frame("a", current, 4)
    assert unknown.is_snapshot
    tables.put(7, {ALLOW: packed("11.0.0.0/8", "12.0.0.0/8")})
    assert not frames.frame("a", tables.current("a", 0), 6).is_snapshot


def test_the_frame_cache_is_bounded_when_devices_claim_many_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.relays.frame_cache.CACHE_BYTES_MAX", 100_000)
    tables = Tables()
    for version in range(1, 2_000):
        tables.put(version, {ALLOW: packed("11.0.0.0/8")})
    frames = FrameCache(tables)
    for version in range(1, 2_000):
        assert not frames.frame("a", tables.current("a", 0), version).is_snapshot
    assert len(frames._frames) < 200
    assert frames._bytes == sum(len(frame.data) + ENTRY_BYTES for frame in frames._frames.values())
    encoded = frames.encoded
    assert not frames.frame("a", tables.current("a", 0), 1_999).is_snapshot
    assert frames.encoded == encoded, "the newest frames stay in the cache"


def test_two_hundred_thousand_simulated_devices_share_one_table() -> None:
    fleet = SimulatedDevices(NO_DEVICE_FAULTS, random.Random(1))
    zones = [fleet.add_zone(1_000) for _ in range(200)]
    rules = {ALLOW: packed("10.0.0.0/8")}
    table = Tables().put(5, rules)
    data = relay_messages.encode_frame(1, Delta(0, 5, table.digest, steps_between(EMPTY_TABLE, table)))
    for zone in zones:
        frame = fleet.tables.decode(data)
        assert isinstance(frame, Frame)
        (ack,) = fleet.handle_frame(zone, frame, 0.0)
        assert [part.dpus.bit_count() for part in ack.statuses] == [1_000]
    assert fleet.records.nbytes < 100 * 200_000
    assert (fleet.tables.applied, len(fleet.tables)) == (1, 2)
    assert (fleet.records.actual == fleet.records.actual[0]).all()


@given(st.sets(st.integers(0, 99)))
def test_devices_and_link_local_numbers_convert_both_ways(numbers: set[int]) -> None:
    places = range(500, 600)
    devices = np.array(sorted(number + 500 for number in numbers), np.intp)
    dpus = mask(places, devices)
    assert {number for number in range(100) if dpus >> number & 1} == numbers
    if numbers:
        assert devices_of(places, dpus).tolist() == devices.tolist()
    assert len(devices_of(places, 0)) == 100


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_every_device_is_in_one_group_of_equal_values(rows: list[tuple[int, int]]) -> None:
    first, second = np.array([9, *(a for a, _ in rows)]), np.array([9, *(b for _, b in rows)])
    devices = np.arange(1, len(rows) + 1)
    found = groups(devices, first, second)
    assert sorted(device for group in found for device in group.tolist()) == devices.tolist()
    assert len(found) == len(set(rows))
    for group in found:
        assert len({rows[device - 1] for device in group}) == 1

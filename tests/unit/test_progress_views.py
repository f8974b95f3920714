"""Progress of installs for a watcher of the whole fleet, compared with a new count of the same rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from eventstore.folding.fold import RecordMetadata
from eventstore.log import INSTALLS, ZONES, Partition
from projections.fleet.state import FleetState
from projections.installs.fold import InstallsFold
from projections.installs.rows import InstallsState, VersionInstalls, ZoneInstalls, merged_times, version_key
from projections.views import zones as zone_views
from projections.views.progress import EDGES_MS, Latencies, ProgressViews
from projections.zones.dpus.phases import ERROR, PENDING
from projections.zones.fold import ZonesFold
from projections.zones.rows import Dpu, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import Envelope, InstallsReported

APPENDED = 1_700_000_000_000
AT = RecordMetadata(Partition(ZONES, 0), 1, APPENDED, APPENDED)


def dpu(ordinal: int, phase: str = PENDING, **more: object) -> Dpu:
    return Dpu("z", ordinal, "", "", "", phase, 1, 1, 1, 1, **more)  # type: ignore[arg-type]


def zone_of(*dpus: Dpu) -> ZonesState:
    state = ZonesFold().initial_state(Partition(ZONES, 0))
    state.apply(ZonesChange(zones={"z": Zone()}, dpus={f"d{each.ordinal}": each for each in dpus}), AT)
    return state


def reported(*versions: tuple[int, dict[int, set[int]], dict[int, set[int]]]) -> InstallsState:
    """Installs of versions: the DPUs that had received each, and had it in hardware, by ms after its append."""
    state = InstallsState()
    state.zones.put("z", ZoneInstalls(1, APPENDED, 10))
    for number, received, in_hardware in versions:
        levels = [
            merged_times((), {APPENDED + number + after: BitMap(ordinals) for after, ordinals in level.items()})
            for level in (received, {}, in_hardware)
        ]
        state.versions.put(version_key("z", number), VersionInstalls(APPENDED + number, *levels))
    state.rederive()
    return state


def test_hardware_implies_applied_and_received_and_deleted_dpus_do_not_count() -> None:
    state = zone_of(dpu(0), dpu(1), dpu(2))
    found = ProgressViews().view("z", state, FleetState(1), reported((7, {5: {0, 1}}, {9: {1, 8}})), 1)
    assert (found.dpus, found.reported) == (3, 7)
    assert (found.received, found.applied, found.in_hardware) == (2, 1, 1)
    assert found.pending_start_time_ms == APPENDED + 7
    later = reported((7, {}, {9: {0, 1}}), (9, {}, {1: {0, 2}}))
    assert ProgressViews().view("z", state, FleetState(1), later, 1).pending_start_time_ms == APPENDED + 9
    restored = ProgressViews().view("z", state, FleetState(1), later, 2)
    assert (restored.reported, restored.applied, restored.in_hardware) == (0, 0, 0), (
        "reports of another epoch do not count"
    )
    everywhere = ProgressViews().view("z", state, FleetState(1), reported((7, {}, {9: {0, 1, 2}})), 1)
    assert everywhere.pending_start_time_ms == 0


def test_a_zone_counts_its_present_dpus_only() -> None:
    """A deleted DPU once hid one that lags, and a new DPU counted only after its first report."""
    installs = reported((7, {}, {9: {0, 2, 9}}))
    shown = zone_views.installs("z", zone_of(dpu(0), dpu(1), dpu(9)), FleetState(1), installs, 1)
    (found,) = shown.installs
    assert (found.dpus, found.received, found.applied, found.in_hardware) == (3, 2, 2, 2)
    assert {milestone.permille for milestone in found.milestones} == {500} and shown.lagging == ("d1",)
    (found,) = zone_views.installs("z", zone_of(dpu(0), dpu(2)), FleetState(1), installs, 1).installs
    assert (found.dpus, found.in_hardware) == (2, 2)
    assert {milestone.permille for milestone in found.milestones} == {500, 990, 999, 1000}


def test_counts_are_updated_when_rows_or_dpus_change() -> None:
    progress, state, fleet = ProgressViews(), zone_of(dpu(0), dpu(1)), FleetState(1)
    before = reported((7, {}, {9: {0, 1}}))
    assert progress.view("z", state, fleet, before, 1).in_hardware == 2
    state.apply(ZonesChange(dpus={"d1": None}), AT)
    assert progress.view("z", state, fleet, before, 1).in_hardware == 1
    assert progress.view("z", state, fleet, reported((8, {}, {3: set()})), 1).in_hardware == 0


def test_a_zone_that_completes_an_older_version_waits_for_the_newer() -> None:
    """The row of the newer version is unchanged, but the time since when the zone waits changes."""
    fold, progress, state, fleet = InstallsFold(), ProgressViews(), zone_of(dpu(0), dpu(1)), FleetState(1)
    installs = fold.initial_state(Partition(INSTALLS, 0))
    seen = []
    for version, ordinal in ((7, 0), (9, 0), (7, 1)):
        columns = [version], [2], [bytes(BitMap([ordinal]).serialize())], [APPENDED + version], [0]
        report = InstallsReported(Envelope("", "z", "relay", APPENDED), "z", "relay", 1, 2, *columns, {}, {})
        fold.evolve(installs, fold.decide(installs, report, AT).change, AT)
        seen.append(progress.view("z", state, fleet, installs, 1).pending_start_time_ms - APPENDED)
    assert seen == [7, 7, 9]


def test_phases_and_stuck_dpus_follow_every_change_and_a_restart() -> None:
    state = zone_of(dpu(0), dpu(1, ERROR), dpu(2, paused=True))
    state.apply(ZonesChange(dpus={"d2": dpu(2, ERROR, failures=2), "d0": None}), AT)
    index = state.dpu_index.zone("z")
    assert (index.phases, set(index.stuck)) == ({ERROR: 2}, {"d1", "d2"})
    state.rederive()
    again = state.dpu_index.zone("z")
    assert (again.phases, set(again.stuck)) == ({ERROR: 2}, {"d1", "d2"})
    state.apply(ZonesChange(dpus={"d1": dpu(1), "d2": dpu(2)}), AT)
    assert (again.phases, set(again.stuck)) == ({PENDING: 2}, set())


delays = st.dictionaries(st.integers(0, 60_000), st.integers(1, 40), min_size=1, max_size=6)


@given(st.dictionaries(st.integers(1, 50), delays, min_size=1, max_size=5))
def test_latencies_equal_those_of_the_sorted_samples(given_: dict[int, dict[int, int]]) -> None:
    rows: list[tuple[int, dict[int, set[int]], dict[int, set[int]]]] = []
    for version, counts in given_.items():
        first, spread = 0, {}
        for after, count in counts.items():
            spread[after] = set(range(first, first + count))
            first += count
        rows.append((version, {}, spread))
    latencies = Latencies()
    latencies.take(0, reported(*((version + 1, {}, {7: {1}}) for version in given_)))  # replaced rows must not count
    latencies.take(0, reported(*rows))
    found = latencies.view()
    assert [change.version for change in found.changes] == sorted(given_)
    for change in found.changes:
        samples = sorted(after for after, count in given_[change.version].items() for _ in range(count))
        assert change.dpus == len(samples)
        assert change.p50_latency_ms == samples[-(-len(samples) * 500 // 1000) - 1]
        assert change.p99_latency_ms == samples[-(-len(samples) * 990 // 1000) - 1]
        assert change.max_latency_ms == samples[-1]
    everything = [after for counts in given_.values() for after, count in counts.items() for _ in range(count)]
    for bucket in found.buckets:
        end = bucket.max_latency_ms if bucket.max_latency_ms >= 0 else 1 << 60
        assert bucket.dpus == sum(bucket.min_latency_ms <= after < end for after in everything)
    assert len(found.buckets) == len(EDGES_MS) - 1

"""The installs fold: reports in any order and any number of copies give one state, and counts equal an oracle's."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.log import INSTALLS, Partition
from projections.installs.fold import InstallsFold
from projections.installs.rows import (
    MAX_EXCEPTIONS,
    MAX_TIMES,
    MAX_VERSIONS,
    UNKNOWN_MS,
    DpuException,
    InstallsState,
    VersionInstalls,
    newest_exceptions,
    rounded,
)
from projections.installs.views import Milestone, ZoneProgress, laggards, zone_progress
from schemas.events import Envelope, InstallsReported

PARTITION = Partition(INSTALLS, 3)
APPENDED = 1_700_000_000_000
FOLD = InstallsFold()


def report(
    entries: Sequence[tuple[int, int, Sequence[int], int]] = (),
    *,
    epoch: int = 1,
    dpu_count: int = 10,
    issued_ms: int = APPENDED,
    relay: str = "r1",
    regressed: dict[str, int] | None = None,
    refused: dict[str, str] | None = None,
) -> InstallsReported:
    """A report. Entries are (version, level, ordinals, ms after the version's append time or -1 for unknown)."""
    return InstallsReported(
        Envelope("", "rack-1", f"relay/{relay}", issued_ms),
        "rack-1",
        relay,
        epoch,
        dpu_count,
        [version for version, _, _, _ in entries],
        [level for _, level, _, _ in entries],
        [bytes(BitMap(ordinals).serialize()) for _, _, ordinals, _ in entries],
        [APPENDED + 10 * version if after_ms >= 0 else 0 for version, _, _, after_ms in entries],
        [APPENDED + 10 * version + after_ms if after_ms >= 0 else 0 for version, _, _, after_ms in entries],
        regressed or {},
        refused or {},
    )


def folded(reports: Sequence[InstallsReported], state: InstallsState | None = None) -> InstallsState:
    state = state or FOLD.initial_state(PARTITION)
    for offset, event in enumerate(reports):
        apply(state, event, offset)
    return state


def apply(state: InstallsState, event: InstallsReported, offset: int = 0) -> Outcome:
    at = RecordMetadata(PARTITION, offset, APPENDED + offset, APPENDED + offset)
    decision = FOLD.decide(state, event, at)
    if decision.change is not None:
        FOLD.evolve(state, decision.change, at)
    return decision.outcome


def rows_of(state: InstallsState) -> bytes:
    return msgspec.msgpack.encode([sorted(table.rows.items()) for table in state.tables])


def progress_of(state: InstallsState) -> ZoneProgress:
    found = zone_progress(state, "rack-1")
    assert found is not None
    return found


def test_reports_of_two_relays_are_united() -> None:
    state = folded([report([(5, 0, range(6), 10)]), report([(5, 0, range(5, 10), 30)], relay="r2")])
    (version,) = progress_of(state).versions
    assert (version.received, version.applied, version.in_hardware) == (10, 0, 0)
    assert version.milestones == tuple(
        Milestone("received", permille, after_ms)
        for permille, after_ms in ((500, 10), (990, 30), (999, 30), (1000, 30))
    )
    assert laggards(state, "rack-1", level=0) == []
    assert laggards(state, "rack-1") == list(range(10))


def test_a_later_version_implies_an_earlier_and_hardware_implies_applied() -> None:
    state = folded([report([(5, 1, range(8), 40)]), report([(7, 2, [8, 9], 100)])])
    newest, earlier = progress_of(state).versions
    assert (newest.version, newest.received, newest.applied, newest.in_hardware) == (7, 2, 2, 2)
    assert (earlier.version, earlier.received, earlier.applied, earlier.in_hardware) == (5, 10, 10, 2)
    assert Milestone("applied", 500, 40) in earlier.milestones
    assert Milestone("applied", 1000, 120) in earlier.milestones
    assert laggards(state, "rack-1") == list(range(8))
    assert laggards(state, "rack-1", ordinals=[1, 9, 77]) == [1, 77]


def test_a_dpu_counts_at_its_earliest_reported_time() -> None:
    state = folded([report([(5, 1, range(10), 90)]), report([(5, 1, range(10), 20)], relay="r2")])
    assert Milestone("applied", 1000, 20) in progress_of(state).versions[0].milestones


def test_a_dpu_with_an_unknown_time_is_counted_without_a_latency() -> None:
    state = folded([report([(5, 1, range(5), 20), (5, 1, range(5, 10), -1)])])
    found = progress_of(state).versions[0]
    assert (found.applied, found.appended_ms) == (10, APPENDED + 50)
    assert [m.after_ms for m in found.milestones if m.level == "applied"] == [20, -1, -1, -1]


def test_a_new_epoch_resets_the_counts_and_an_older_one_is_refused() -> None:
    state = folded([report([(5, 1, range(10), 20)], epoch=1), report([(5, 1, [1], 20)], epoch=2)])
    assert [(v.version, v.applied) for v in progress_of(state).versions] == [(5, 1)]
    before = rows_of(state)
    assert apply(state, report([(9, 1, [2], 20)], epoch=1)).reason == "epoch: 1 is before 2, the epoch of zone 'rack-1'"
    assert rows_of(state) == before


def test_only_the_newest_versions_are_kept() -> None:
    state = folded([report([(version, 1, [0], 5)]) for version in range(50)])
    assert [v.version for v in progress_of(state).versions] == list(range(49, 49 - MAX_VERSIONS, -1))
    assert len(state.versions.rows) == MAX_VERSIONS
    before = rows_of(state)
    folded([report([(3, 1, [0], 5)])], state)
    assert rows_of(state) == before
    assert [v.version for v in zone_progress(state, "rack-1", versions=2).versions] == [49, 48]  # type: ignore[union-attr]


def test_exceptions_are_by_name_newest_first_and_bounded() -> None:
    state = folded(
        [
            report(refused={"d1": "table full"}, issued_ms=APPENDED + 1),
            report(regressed={"d2": 4}, issued_ms=APPENDED + 2),
            report(regressed={"d1": 3}, issued_ms=APPENDED + 3),
        ]
    )
    assert progress_of(state).exceptions == (
        DpuException(APPENDED + 3, "d1", 3, ""),
        DpuException(APPENDED + 2, "d2", 4, ""),
    )
    many = [DpuException(number, f"d{number}", 1, "") for number in range(MAX_EXCEPTIONS + 50)]
    assert newest_exceptions(many[:100], many[100:]) == tuple(many[: -MAX_EXCEPTIONS - 1 : -1])


def test_the_dpu_count_is_that_of_the_latest_report() -> None:
    state = folded([report(dpu_count=12, issued_ms=APPENDED + 9), report(dpu_count=10, issued_ms=APPENDED)])
    assert progress_of(state).dpu_count == 12
    assert progress_of(state).versions == ()
    assert laggards(state, "rack-1") == []


def test_a_report_without_news_changes_no_row() -> None:
    state = folded([report([(5, 1, range(3), 20)])])
    for table in state.tables:
        table.drain()
    apply(state, report([(5, 1, range(2), 20)]))
    assert not any(table.changes() for table in state.tables)


def test_an_unknown_zone_has_no_progress() -> None:
    assert zone_progress(FOLD.initial_state(PARTITION), "nowhere") is None
    assert laggards(FOLD.initial_state(PARTITION), "nowhere") == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"zone": "a/b"}, "zone: "),
        ({"versions": [1, 2]}, "versions: 2 values must be 1, or one for each of the 1 ordinals"),
        ({"levels": []}, "levels: 0 values must be "),
        ({"levels": [3]}, "versions[0]: 5 at level 3 must have "),
        ({"versions": [-1]}, "versions[0]: -1 at level 1 must have "),
        ({"reached_ms": [-5]}, "versions[0]: "),
        ({"ordinals": [b""]}, "ordinals[0]: 0 bytes are not a roaring bitmap"),
        ({"ordinals": [b"nonsense"]}, "ordinals[0]: 8 bytes are not a roaring bitmap"),
        ({"ordinals": [bytes(BitMap([1 << 31]).serialize())]}, "ordinals[0]: "),
        ({"dpu_count": -1}, "dpu_count: -1 must be from 0 to "),
        ({"epoch": -1}, "epoch: -1 must be 0 or more"),
        ({"regressed": {"": 1}}, "dpu: '' must be "),
        ({"refused": {"d1": "two\nlines"}}, "refused: "),
    ],
)
def test_malformed_reports_are_refused_whole(changes: dict[str, object], fault: str) -> None:
    state = FOLD.initial_state(PARTITION)
    event = msgspec.structs.replace(report([(5, 1, [1], 10)]), **changes)
    outcome = apply(state, event)
    assert outcome.code == "refused"
    assert outcome.reason.startswith(fault)
    assert rows_of(state) == rows_of(FOLD.initial_state(PARTITION))


def test_a_column_of_one_value_applies_to_every_entry() -> None:
    event = report([(5, 1, [1], 10), (5, 1, [2], 10)])
    short = msgspec.structs.replace(
        event, versions=[5], levels=[1], appended_ms=event.appended_ms[:1], reached_ms=event.reached_ms[:1]
    )
    assert rows_of(folded([short])) == rows_of(folded([event]))


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_rounding_adds_at_most_a_64th_and_never_subtracts(appended_ms: int, after_ms: int) -> None:
    kept = rounded(appended_ms + after_ms, appended_ms)
    assert appended_ms + after_ms <= kept <= appended_ms + after_ms + after_ms // 64
    assert rounded(kept, appended_ms) == kept


ENTRY = st.tuples(
    st.integers(0, MAX_VERSIONS + 5),
    st.integers(0, 2),
    st.sets(st.integers(0, 11), min_size=1, max_size=8).map(sorted),
    st.integers(-1, 400),
)
REPORT = st.builds(
    report,
    st.lists(ENTRY, max_size=4),
    epoch=st.sampled_from([1, 1, 1, 2]),
    dpu_count=st.integers(0, 12),
    issued_ms=st.integers(APPENDED, APPENDED + 9),
    regressed=st.dictionaries(st.sampled_from(["d1", "d2"]), st.integers(0, 9), max_size=1),
    refused=st.dictionaries(st.sampled_from(["d1", "d3"]), st.sampled_from(["full", "lies"]), max_size=1),
)


@given(st.lists(REPORT, max_size=12), st.randoms(use_true_random=False))
def test_duplicates_and_order_do_not_matter(reports: list[InstallsReported], rng: random.Random) -> None:
    again = [*reports, *rng.choices(reports, k=len(reports))] if reports else []
    rng.shuffle(again)
    one, other = folded(reports), folded(again)
    assert rows_of(one) == rows_of(other)
    assert one.numbers == other.numbers


@given(st.lists(REPORT, max_size=10))
def test_a_restart_in_the_middle_changes_nothing(reports: list[InstallsReported]) -> None:
    whole = folded(reports)
    half = folded(reports[: len(reports) // 2])
    copy = InstallsState()
    for table, source in zip(copy.tables, half.tables, strict=True):
        table.load(
            (key, msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=table.row_type))
            for key, row in source.rows.items()
        )
    copy.rederive()
    folded(reports[len(reports) // 2 :], copy)
    assert rows_of(copy) == rows_of(whole)
    assert copy.numbers == whole.numbers


@given(st.lists(ENTRY.filter(lambda entry: entry[3] >= 0), min_size=1, max_size=30))
def test_progress_equals_the_counts_of_an_oracle(entries: list[tuple[int, int, list[int], int]]) -> None:
    state = folded([report([entry], dpu_count=12) for entry in entries])
    for found in progress_of(state).versions:
        appended_ms = APPENDED + 10 * found.version
        for level, count in enumerate((found.received, found.applied, found.in_hardware)):
            times: dict[int, int] = {}
            for version, reached_level, ordinals, after_ms in entries:
                if version < found.version or reached_level < level:
                    continue
                then = APPENDED + 10 * version
                for ordinal in ordinals:
                    times[ordinal] = min(times.get(ordinal, UNKNOWN_MS), rounded(then + after_ms, then))
            assert count == len(times)
            name = ("received", "applied", "in_hardware")[level]
            shown = {m.permille: m.after_ms for m in found.milestones if m.level == name}
            in_order = sorted(times.values())
            expected = {500: 6, 990: 12, 999: 12, 1000: 12}
            assert shown == {p: in_order[n - 1] - appended_ms for p, n in expected.items() if n <= len(in_order)}


def test_a_row_keeps_its_type_through_saving() -> None:
    row = folded([report([(5, 2, [1], 10)])]).version("rack-1", 5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=VersionInstalls) == row


def test_contradicting_reports_reduce_precision_and_use_no_more_memory() -> None:
    """Each entry claims another append time, so rounding alone does not limit the number of distinct times."""
    state = FOLD.initial_state(PARTITION)
    for number in range(5):
        claimed = [APPENDED + 10 * i + number for i in range(1_000)]
        ordinals = [bytes(BitMap([1_000 * number + i]).serialize()) for i in range(1_000)]
        said = Envelope("", "rack-1", "relay/r", APPENDED)
        event = InstallsReported(
            said, "rack-1", "r", 1, 5_000, [7], [1], ordinals, claimed, [ms + 3 for ms in claimed], {}, {}
        )
        assert apply(state, event, number).code == "done"
    row = state.version("rack-1", 7)
    assert row is not None
    assert MAX_TIMES // 2 < len(row.applied) <= MAX_TIMES
    progress = zone_progress(state, "rack-1")
    assert progress is not None
    assert progress.versions[0].applied == 5_000

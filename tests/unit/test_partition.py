"""A folded partition around its fold: the head of the log, quarantine, fold versions, command ids, halting, hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.errors import LogMismatch
from eventstore.folding.fold import CLOCK_CORRECTION_MS, DONE, Outcome, fold_time
from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.folding.runs import MARK_RECORDS
from eventstore.log import FLEET_0, INSTALLS, Partition, Record
from schemas.events import Event, StepSucceeded
from tests.support.samples import ENVELOPE, sample
from tests.support.toy_fold import Total, ToyFold, ToyLaterFold, ToyLaterState
from tests.support.toy_records import LOG_ID, POISON, T0, Issuer, created, fact, records


def empty(versions: Sequence[int] = (1,)) -> FoldedPartition:
    return FoldedPartition(FLEET_0, {version: ToyFold(version=version) for version in versions}, LOG_ID)


def folded(items: Iterable[Event | bytes], versions: Sequence[int] = (1,)) -> FoldedPartition:
    partition = empty(versions)
    for record in records([created(), *items]):
        partition.fold(record)
    return partition


def fold_next(partition: FoldedPartition, item: Event | bytes, time_ms: int = T0) -> LedgerEntry | None:
    [record] = records([item], start=partition.position, time_ms=time_ms)
    return partition.fold(record)


# -- the head


def test_a_partition_begins_with_the_log_created_record_of_its_log() -> None:
    partition = folded([])
    assert (partition.position, partition.halted, partition.quarantined) == (1, "", 0)


@pytest.mark.parametrize("first", [created("another log"), fact("a"), POISON, b""])
def test_a_partition_with_any_other_first_record_is_a_mismatch(first: Event | bytes) -> None:
    with pytest.raises(LogMismatch, match=r"fleet/0"):
        empty().fold(records([first])[0])


def test_later_copies_of_the_head_change_nothing() -> None:
    partition = folded([fact("a"), created(), created("of a second starter")])
    assert (partition.position, partition.quarantined, partition.state.total.effects) == (4, 0, 1)


def test_a_display_topic_has_no_head() -> None:
    partition = FoldedPartition(Partition(INSTALLS, 0), {1: ToyFold(INSTALLS)}, LOG_ID, is_deciding=False)
    partition.position = 500
    for record in records([fact("a")], start=510):
        partition.fold(record)
    assert (partition.position, partition.state.count) == (511, 1)


# -- quarantine


@pytest.mark.parametrize("value", [POISON, b"", b"\xff" * 50, b"\0\0\0\xff\xff"])
def test_poison_is_skipped_counted_and_shown(value: bytes) -> None:
    partition = folded([fact("a"), value, fact("b")])
    assert (partition.position, partition.quarantined, partition.state.count) == (4, 1, 2)
    assert partition.quarantine[0].offset == 2


def test_an_event_that_the_fold_version_does_not_accept_is_quarantined() -> None:
    partition = folded([StepSucceeded(ENVELOPE, "zone", "dpu", "phase", 1, {})])
    assert partition.quarantined == 1
    assert not partition.ledger.entries


def test_quarantined_records_are_all_counted_and_a_few_are_kept() -> None:
    partition = folded([POISON] * 100)
    assert (partition.quarantined, len(partition.quarantine)) == (100, 16)


# -- commands


def test_a_command_takes_effect_once_however_often_it_lands() -> None:
    issue = Issuer()
    command = issue.set("a")
    partition = folded([command, issue.set("b"), command, command])
    assert partition.state.total.effects == 2
    assert fold_next(partition, command) == partition.ledger.entries[command.envelope.command_id]


def test_a_refused_command_stays_refused_when_its_reason_is_gone() -> None:
    issue = Issuer()
    early = issue.delete("a")
    partition = folded([early, issue.set("a"), early])
    assert partition.state.count == 1
    assert partition.ledger.entries[early.envelope.command_id].outcome.reason == "policy: a is not there"


def test_an_id_used_for_another_command_is_refused() -> None:
    issue = Issuer()
    command = issue.set("a")
    partition = folded([command])
    other = type(command)(command.envelope, "b", *[getattr(command, f) for f in command.__struct_fields__[2:]])
    entry = fold_next(partition, other)
    assert entry is not None
    assert "another command, at offset 1" in entry.outcome.reason
    assert partition.state.count == 1


def test_a_late_copy_is_refused() -> None:
    partition = folded([])
    entry = fold_next(partition, Issuer().set("a"), time_ms=T0 + 130_000)
    assert entry is not None
    assert "expired" in entry.outcome.reason
    assert partition.state.count == 0


def test_internal_events_have_no_id_and_no_ledger_entry() -> None:
    partition = folded([fact("a"), fact("a")])
    assert partition.state.total.effects == 2
    assert not partition.ledger.entries


def test_fold_time_never_goes_back() -> None:
    partition = empty()
    times = [T0, T0 + 5_000, T0 + 1_000, T0 + 9_000]
    for offset, time_ms in enumerate(times):
        fold_next(partition, created() if offset == 0 else fact(f"p{offset}"), time_ms)
    assert [row.set_ms - T0 for row in partition.state.policies.rows.values()] == [5_000, 5_000, 9_000]


# -- fold versions


def test_a_raise_of_the_fold_version_takes_effect_at_the_next_record() -> None:
    issue = Issuer()
    before, after = issue.set("before", -1), issue.set("after", -1)
    partition = folded([before, issue.raise_version(2), after], versions=(1, 2))
    assert partition.version == 2
    assert sorted(partition.state.policies.rows) == ["before"]
    assert "negative" in partition.ledger.entries[after.envelope.command_id].outcome.reason


def test_an_unsupported_fold_version_halts_before_its_record() -> None:
    partition = folded([fact("a"), Issuer().raise_version(3), fact("b")], versions=(1, 2))
    assert partition.position == 2
    assert "version 3" in partition.halted
    assert "[1, 2]" in partition.halted
    assert partition.state.count == 1
    assert not partition.ledger.entries


def test_an_expired_raise_or_one_to_a_lower_version_has_no_effect() -> None:
    issue = Issuer()
    stale, down = issue.raise_version(9, now_ms=T0 - 200_000), issue.raise_version(1)
    partition = folded([stale, down, fact("a")], versions=(1, 2))
    assert (partition.halted, partition.version, partition.position) == ("", 1, 4)
    outcome = partition.ledger.entries[down.envelope.command_id].outcome
    assert outcome == Outcome("unchanged", "version: fleet/0 already has fold version 1")


def test_a_binary_without_fold_version_1_halts_at_the_start() -> None:
    partition = empty(versions=(2, 3))
    assert "version 1" in partition.halted
    assert fold_next(partition, created()) is None
    assert partition.position == 0


def test_a_raise_over_several_versions_adopts_the_state_step_by_step() -> None:
    issue = Issuer()
    partition = FoldedPartition(FLEET_0, {1: ToyFold(), 2: ToyFold(version=2), 3: ToyLaterFold()}, LOG_ID)
    for record in records([created(), issue.set("goes", -1), issue.set("stays", 7), issue.raise_version(3)]):
        partition.fold(record)
    assert isinstance(partition.state, ToyLaterState)
    assert (partition.version, sorted(partition.state.policies.rows)) == (3, ["stays"])
    assert partition.state.total == Total(0, 6)


@pytest.mark.parametrize("version", [3, 1 << 62])
def test_a_missing_version_in_between_halts(version: int) -> None:
    partition = FoldedPartition(FLEET_0, {1: ToyFold(), 3: ToyLaterFold()}, LOG_ID)
    for record in records([created(), Issuer().raise_version(version)]):
        partition.fold(record)
    assert (partition.position, partition.version) == (1, 1)
    assert "supports [1, 3]" in partition.halted


# -- halting


@pytest.mark.parametrize("name", ["raise in decide", "raise in evolve"])
def test_a_fold_that_raises_halts_before_the_record(name: str) -> None:
    partition = folded([fact("a"), fact(name), fact("b")])
    assert partition.position == 2
    assert "offset 2: RuntimeError: a bug in" in partition.halted


def test_the_reason_of_a_halt_is_cut() -> None:
    partition = folded([])
    partition.halt("offset 1: KeyError: " + "x" * (1 << 20))
    assert partition.halted.startswith("offset 1: KeyError: xxx")
    assert len(partition.halted) == 500


# -- hashes


def test_the_running_hash_depends_on_every_part_of_every_record() -> None:
    base = records([created(), fact("a"), fact("b")])
    last = base[2]
    variants = [
        base[:2],
        [*base[:2], last._replace(key=b"other")],
        [*base[:2], last._replace(timestamp_ms=T0 + 1)],
        [*base[:2], last._replace(offset=3)],
        [*base[:2], last._replace(headers=(("k", b"v"),))],
        [*base[:2], last._replace(value=last.value + b"\0")],
        [base[0], base[2]._replace(offset=1), base[1]._replace(offset=2)],
        base,
    ]
    assert len({running(variant) for variant in variants}) == len(variants)


def running(items: Sequence[Record]) -> bytes:
    partition = empty()
    for record in items:
        partition.fold(record)
    return partition.running


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40))
def test_marks_are_at_the_same_positions_on_every_replica(gaps: list[int]) -> None:
    """Two replicas that fold the same sparse offsets agree on marks, even if one lost its marks on the way."""
    one, other = empty(), empty()
    offset = 0
    for number, gap in enumerate([0, *gaps]):
        offset += gap
        record = Record(offset, T0, b"", records([created() if number == 0 else fact("a")])[0].value)
        one.fold(record)
        other.fold(record)
        if number == len(gaps) // 2:
            other.marks.clear()
    common = dict(one.marks).keys() & dict(other.marks).keys()
    assert all(dict(one.marks)[position] == dict(other.marks)[position] for position in common)
    assert len(one.marks) >= min(16, offset // (2 * MARK_RECORDS))


def test_a_dry_run_decides_and_changes_nothing() -> None:
    partition = folded([fact("a")])
    before = (partition.position, partition.running, partition.state.total)
    assert partition.dry_run(Issuer().delete("a"), T0).outcome == DONE
    assert partition.dry_run(Issuer().delete("b"), T0).outcome.code == "refused"
    assert (partition.position, partition.running, partition.state.total) == before


def test_events_of_other_topics_are_quarantined_without_an_exception() -> None:
    partition = folded([sample("NodesJoined"), sample("InstallsReported"), sample("LogCreated")])
    assert (partition.quarantined, partition.halted) == (2, "")


def test_fold_time_follows_a_clock_correction_and_no_small_difference() -> None:
    assert [fold_time(T0, T0 + step) - T0 for step in (5, 0, -1, -CLOCK_CORRECTION_MS)] == [5, 0, 0, 0]
    assert fold_time(T0, T0 - CLOCK_CORRECTION_MS - 1) == T0 - CLOCK_CORRECTION_MS - 1


@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=1, max_size=50))
def test_fold_time_is_never_far_from_append_time(appended: list[int]) -> None:
    """Fold time is the append time, or up to one minute ahead of it, so deadlines in fold time do not stall."""
    time_ms = appended[0]
    for append_ms in appended:
        before_ms, time_ms = time_ms, fold_time(time_ms, append_ms)
        assert 0 <= time_ms - append_ms <= CLOCK_CORRECTION_MS
        assert time_ms >= before_ms or time_ms == append_ms

"""A run of joins folded at once equals single folds: state, ledger, digests, running hash and outcomes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.avro.codec import encode
from eventstore.avro.columns import EventColumns
from eventstore.folding.fold import RecordMetadata
from eventstore.folding.hashes import record_hash
from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.folding.runs import MARK_RECORDS, RUN_RECORDS, RUN_RECORDS_MIN
from eventstore.folding.state_table import StateTable
from eventstore.ids import envelope, internal_envelope, uuid7
from eventstore.log import ZONES, Partition, Record
from eventstore.state_store.saver import save
from eventstore.state_store.store import DigestStore
from projections.forwarding.zones_to_fleet import forward
from projections.zones.fold import ZonesFold
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import Event, NodesJoined
from tests.support.toy_records import LOG_ID, POISON, T0, created
from tests.support.zones import derived_of

ZONES_0 = Partition(ZONES, 0)
MINUTE_MS = 60_000


def join(number: int, now_ms: int = T0, **fields: Any) -> NodesJoined:
    rng = random.Random(number)
    said = envelope("zone/z", "agent", uuid7(now_ms - rng.randrange(100), rng))
    address = (10 << 24 | number + 1).to_bytes(4, "big")
    labels: tuple[list[dict[str, str]], list[int]] = ([{"gpu": f"h{number % 3}00"}], [0]) if number % 4 else ([], [])
    event = NodesJoined(said, f"z{number % 3}", [f"node-{number}"], [], [], address, b"", *labels)
    return msgspec.structs.replace(event, **fields)


def log_of(events: Sequence[Event | bytes], times_ms: Sequence[int] = (), step: int = 1) -> list[Record]:
    """Records of these events at offsets `step` apart. The last given time also applies to all later records."""
    values = [encode(created()), *(event if isinstance(event, bytes) else encode(event) for event in events)]
    times = [T0, *times_ms, *[times_ms[-1] if times_ms else T0] * len(values)]
    return [Record(number * step, times[number], b"k" * (number % 3), value) for number, value in enumerate(values)]


def one_by_one(records: Sequence[Record]) -> tuple[FoldedPartition, list[LedgerEntry]]:
    folded = FoldedPartition(ZONES_0, {1: ZonesFold()}, LOG_ID)
    return folded, [entry for record in records if (entry := folded.fold(record)) is not None]


def together(records: Sequence[Record], splits: Sequence[int]) -> tuple[FoldedPartition, list[LedgerEntry], int]:
    """The partition folded in batches that end at these splits, the outcomes, and the number of steps."""
    folded = FoldedPartition(ZONES_0, {1: ZonesFold()}, LOG_ID)
    answers: list[LedgerEntry] = []
    start = steps = 0
    for end in [*sorted(split for split in splits if split < len(records)), len(records)]:
        while start < end:
            start, entries = folded.fold_next(records, start, end)
            answers += entries
            steps += 1
    return folded, answers, steps


def all_of(folded: FoldedPartition) -> dict[str, object]:
    """The whole content of a partition in its stored order, except for rows, whose order has no meaning."""
    ledger, state = folded.ledger, folded.state
    unsaved = ledger.unsaved()
    plain = ("position", "time_ms", "version", "running", "first", "quarantined", "halted")
    found: dict[str, object] = {name: getattr(folded, name) for name in plain}
    found |= {"last": folded.last(), "marks": [*folded.marks], "quarantine": [*folded.quarantine]}
    found |= {table.name: sorted(table.rows.items()) for table in state.tables}
    found |= {"entries": [*ledger.entries.items()], "ids": ledger.state()}
    found |= {"added": [*unsaved.added.items()], "chunks": unsaved.chunks, "forgotten": unsaved.forgotten}
    found |= {"derived": derived_of(state), "outbox": [(at, [*names]) for at, names in state.outbox.items()]}
    found |= {"forward": forward(state, 0, 0), "changed": [changes_of(table) for table in state.tables]}
    for table in state.tables:
        table.touch([*table.rows])
    asyncio.run(save(folded, DigestStore()))
    found["digest"] = folded.digest
    return found


def changes_of(table: StateTable[Any]) -> list[tuple[list[str], Sequence[object]]]:
    return [(keys, table.get_many(keys)) for keys in table.drain()]


def assert_equal_results(records: Sequence[Record], splits: Sequence[int] = ()) -> int:
    """Check that batches and single records give equal results. Returns the number of steps in batches."""
    alone, answers = one_by_one(records)
    folded, found, steps = together(records, splits)
    assert found == answers
    assert all_of(folded) == all_of(alone)
    return steps


LONG = "n" + "x" * 80
ODD: Sequence[dict[str, Any]] = (
    {"names": ["node-1"]},
    {"names": ["node-1"], "created_ms": [T0 - 5_000], "uids": ["older"]},
    {"names": [LONG]},
    {"names": ["no name"]},
    {"names": ["näme"]},
    {"names": []},
    {"names": ["a", "b"], "addresses4": b""},
    {"zone": ""},
    {"zone": "zone-of-" + "z" * 70},
    {"created_ms": [T0 - 1], "uids": ["u"]},
    {"created_ms": [T0 + 10 * MINUTE_MS], "uids": ["u"]},
    {"created_ms": [-1], "uids": ["u"]},
    {"created_ms": [1]},
    {"uids": ["u"]},
    {"addresses4": b""},
    {"addresses4": b"\x7f\0\0\1"},
    {"addresses4": b"\x0a\0\0\2"},
    {"addresses4": b"\0\0\0\0"},
    {"addresses4": b"\x0a\0\0"},
    {"addresses6": bytes(16)},
    {"addresses6": b"\xfd" + bytes(14) + b"\1"},
    {"addresses6": b"\xff" + bytes(15)},
    {"label_sets": [{}], "label_index": [0]},
    {"label_sets": [{"a": "b"}, {"c": "d"}], "label_index": [1]},
    {"label_sets": [{"a": "b"}], "label_index": [1]},
    {"label_sets": [{"a": "b"}], "label_index": []},
    {"label_sets": [{"no key": "b"}], "label_index": [0]},
    {"label_sets": [{"a": "ö"}], "label_index": [0]},
    {"envelope": internal_envelope("z", "p", T0)},
    {"envelope": envelope("z", "p", uuid7(T0 - 10 * MINUTE_MS, random.Random(1)))},
    {"envelope": envelope("z", "p", uuid7(T0 + 10 * MINUTE_MS, random.Random(1)))},
    {"envelope": envelope("z", "p", uuid7(T0 + 50_000, random.Random(1)))},
    {"envelope": msgspec.structs.replace(envelope("z", "p", uuid7(T0, random.Random(1))), issued_at_ms=T0 - 1)},
    {"envelope": msgspec.structs.replace(envelope("z", "p", uuid7(T0, random.Random(1))), command_id="f" * 36)},
    {"envelope": envelope("zöne", "p", uuid7(T0, random.Random(1)))},
    {"envelope": join(1).envelope},
    {"envelope": envelope("zone/z", "another", uuid7(T0 - 50, random.Random(7)))},
    {"envelope": envelope("zone/z", "a" * 400, uuid7(T0 - 50, random.Random(8)))},
    {"envelope": envelope("zone/z", "", uuid7(T0 - 50, random.Random(9)))},
)


def joins(count: int) -> list[Event | bytes]:
    return [join(number) for number in range(count)]


def test_plain_joins_are_folded_in_as_few_steps_as_marks_permit() -> None:
    records = log_of(joins(3 * RUN_RECORDS))
    marks = len(records) // MARK_RECORDS
    assert assert_equal_results(records) <= 1 + 3 + 1 + marks


def test_a_few_joins_are_folded_in_one_step() -> None:
    assert assert_equal_results(log_of(joins(RUN_RECORDS_MIN))) == 1 + 1


def test_the_plain_beginning_of_a_run_is_folded_at_once() -> None:
    events = joins(3 * RUN_RECORDS)
    for place in range(len(events) - 1, 0, -100):
        events.insert(place, join(1_000 + place, names=["node-1"]))
    assert assert_equal_results(log_of(events)) < 30


def test_a_log_without_plain_runs_is_seldom_tried_as_runs() -> None:
    tries: list[int] = []

    class CountingFold(ZonesFold):
        def decide_run(self, state: ZonesState, run: EventColumns, *at: Any) -> tuple[ZonesChange, int] | None:
            tries.append(len(run.ids))
            return super().decide_run(state, run, *at)

    records = log_of([join(number, names=["node-1"]) for number in range(10_000)])
    folded, start = FoldedPartition(ZONES_0, {1: CountingFold()}, LOG_ID), 0
    while start < len(records):
        start, _ = folded.fold_next(records, start, len(records))
    assert sum(tries) < len(records) / 4


@pytest.mark.parametrize("fields", ODD, ids=str)
def test_a_join_that_is_not_plain_has_the_result_of_a_single_fold(fields: dict[str, Any]) -> None:
    events = joins(3 * RUN_RECORDS_MIN)
    events.insert(len(events) // 2, join(1_000, **fields))
    assert_equal_results(log_of(events))


@pytest.mark.parametrize(
    "fields",
    [
        {"addresses4": b""},
        {"names": ["-"]},
        {"created_ms": [T0 - 5], "uids": ["u"]},
        {"created_ms": [-1], "uids": ["u"]},
        {"addresses6": b"\xfd" + bytes(15)},
        {"label_sets": [{}], "label_index": [0]},
        {"uids": ["u"]},
        {"names": []},
        {"zone": "-"},
    ],
    ids=str,
)
def test_fields_common_to_a_whole_run_have_the_result_of_single_folds(fields: dict[str, Any]) -> None:
    named = [join(number, **fields) for number in range(2 * RUN_RECORDS_MIN)]
    for number, event in enumerate(named):
        if event.addresses6:
            named[number] = msgspec.structs.replace(event, addresses6=b"\xfd" + bytes(13) + number.to_bytes(2, "big"))
    assert_equal_results(log_of(named))


@given(st.data())
def test_any_log_in_any_batches_has_equal_results(data: st.DataObject) -> None:
    events = joins(data.draw(st.integers(1, 90)))
    odd = st.sampled_from(ODD).map(lambda fields: join(1_000, **fields)) | st.sampled_from([*events, POISON])
    for place in data.draw(st.lists(st.integers(0, 90), max_size=3)):
        events.insert(place, data.draw(odd))
    jumps = st.lists(st.sampled_from([0, 0, 0, 1, 7, -20, 30_000, 70_000]), max_size=100)
    times_ms, now_ms = [], T0
    for jump in data.draw(jumps):
        now_ms += jump
        times_ms.append(now_ms)
    splits = data.draw(st.lists(st.integers(1, 90), max_size=4, unique=True))
    assert_equal_results(log_of(events, times_ms, step=data.draw(st.sampled_from([1, 2, 50]))), splits)


@given(st.integers(RUN_RECORDS_MIN, 60), st.integers(0, 59), st.data())
def test_damaged_values_have_equal_results(count: int, place: int, data: st.DataObject) -> None:
    records = log_of(joins(count))
    at = 1 + place % count
    value = bytearray(records[at].value)
    for _ in range(data.draw(st.integers(1, 2))):
        value[data.draw(st.integers(5, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(value), len(value), data.draw(st.integers(0, len(value)))]))
    records[at] = records[at]._replace(value=bytes(value[:cut]))
    assert_equal_results(records)


def test_headers_are_part_of_the_running_hash() -> None:
    records = log_of(joins(3 * RUN_RECORDS_MIN))
    for at in (1, 20):
        records[at] = records[at]._replace(headers=(("a", b"b"),))
    assert_equal_results(records)


def test_ids_are_forgotten_at_the_same_record() -> None:
    apart_ms = 20_000
    times = [T0 + number * apart_ms for number in range(60)]
    events = [join(number, now_ms=now_ms) for number, now_ms in enumerate(times)]
    assert_equal_results(log_of(events, times))
    slow = [join(number, now_ms=T0 + number * 1_500) for number in range(900)]
    records = log_of(slow, [T0 + number * 1_500 for number in range(900)])
    assert assert_equal_results(records) < 100
    folded, _, _ = together(records, ())
    assert folded.ledger.has_forgotten(slow[0].envelope.command_id)


def test_a_run_of_internal_joins_does_not_set_the_time_of_the_ledger() -> None:
    """The clock is eleven minutes fast at the internal joins; a copy of the first command follows its correction."""
    first = join(0)
    internal = [join(number, envelope=internal_envelope("z", "p", T0)) for number in range(1, 2 * RUN_RECORDS_MIN)]
    times = [T0, *[T0 + 11 * MINUTE_MS] * len(internal), T0 + MINUTE_MS]
    records = log_of([first, *internal, first], times)
    assert_equal_results(records)
    _, answers, _ = together(records, ())
    assert answers[0] == answers[-1]


@given(st.lists(st.sampled_from([1, 30, -30, 59_000, -59_000, 61_000, -61_000, 3_600_000, -3_600_000]), max_size=40))
def test_a_run_ends_at_a_clock_correction(jumps_ms: list[int]) -> None:
    times, now_ms = [], T0
    for number in range(60):
        now_ms += jumps_ms[number % len(jumps_ms)] if jumps_ms and number % 9 == 8 else 10
        times.append(now_ms)
    assert_equal_results(log_of([join(number, now_ms=at_ms) for number, at_ms in enumerate(times)], times))


class FailingFold(ZonesFold):
    """A fold with a bug in evolve."""

    def evolve(self, state: ZonesState, change: ZonesChange, at: RecordMetadata) -> None:
        raise RuntimeError("a bug")


def test_an_exception_in_a_run_halts_the_partition_before_the_run() -> None:
    records = log_of(joins(RUN_RECORDS_MIN))
    folded = FoldedPartition(ZONES_0, {1: FailingFold()}, LOG_ID)
    folded.fold(records[0])
    folded.fold_next(records, 1, len(records))
    assert folded.position == 1
    assert folded.halted == "run from offset 1: RuntimeError: a bug"
    assert folded.last() == (0, record_hash(records[0]))

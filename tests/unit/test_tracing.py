"""Tracing of commands: headers of a record have no effect on folds, and the number of traces is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deploy.telemetry.trace_export import recording_spans
from deploy.telemetry.tracing import CALLS_PER_S, HEADER, KEPT_MAX, TRACES_MAX, VERSIONS_MAX, SpanRecorder
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, ZONES, Headers, Partition, Record
from projections.installs.rows import Level
from schemas.events import MembershipChanged
from tests.support.samples import sample
from tests.support.toy_fold import ToyFold
from tests.support.toy_records import LOG_ID, T0, Issuer, created, records

SAMPLED = b"00-%032x-%016x-01"
ZONES_0 = Partition(ZONES, 0)


@pytest.fixture
def recorded() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def span_recorder(recorded: InMemorySpanExporter) -> Iterator[SpanRecorder]:
    with recording_spans(SimpleSpanProcessor(recorded), share=1.0, replica="r") as span_recorder:
        yield span_recorder


def followed(offset: int, *parents: bytes) -> Record:
    return Record(offset, T0, b"key", b"value", tuple((HEADER, parent) for parent in parents))


def forwarding(partition: int, start: int, end: int) -> MembershipChanged:
    event: MembershipChanged = sample("MembershipChanged")
    return replace(event, cause_partition=partition, from_offset=start, to_offset=end)


def names(recorded: InMemorySpanExporter) -> list[str]:
    return [span.name for span in recorded.get_finished_spans()]


@given(st.lists(st.tuples(st.text(), st.binary()), max_size=20))
def test_headers_have_no_effect_on_folds_or_on_the_detection_of_copies(headers: list[tuple[str, bytes]]) -> None:
    def fold(beside: Headers, copy: Headers) -> FoldedPartition:
        folded = FoldedPartition(FLEET_0, {1: ToyFold()}, LOG_ID)
        command = Issuer().set("a")
        for record, other in zip(records([created(), command, command]), ((), beside, copy), strict=True):
            folded.fold(record._replace(headers=other))
        return folded

    plain, beside = fold((), ()), fold(tuple(headers), ())
    assert beside.state.total == plain.state.total and beside.ledger.entries == plain.ledger.entries
    assert beside.quarantined == 0 and beside.state.total.effects == 1
    assert (beside.running == plain.running) == (not headers), "the running hash must cover the headers"


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"))))
def test_an_invalid_trace_header_is_ignored(contents: list[bytes]) -> None:
    recorded = InMemorySpanExporter()
    with recording_spans(SimpleSpanProcessor(recorded), share=1.0, replica="r") as span_recorder:
        span_recorder.on_fold(ZONES_0, [followed(1, *contents), followed(2, SAMPLED[:-2] % (1, 1) + b"00")])
    assert names(recorded) == []


def test_a_record_with_many_traces_is_recorded_in_some(
    span_recorder: SpanRecorder, recorded: InMemorySpanExporter
) -> None:
    span_recorder.on_fold(ZONES_0, [followed(7, *(SAMPLED % (number, 1) for number in range(1, 1_000)))])
    assert names(recorded) == ["fold zones/0"] * TRACES_MAX


def test_a_forward_is_in_the_traces_of_its_records(span_recorder: SpanRecorder, recorded: InMemorySpanExporter) -> None:
    span_recorder.on_fold(ZONES_0, [followed(offset, SAMPLED % (offset, 1)) for offset in (4, 5, 6, 7)])
    event = forwarding(0, 5, 7)
    forward = span_recorder.on_append(FLEET_0, event)
    assert forward is not None
    assert [content[3:35] for _, content in forward.headers] == [b"%032x" % 5, b"%032x" % 6]
    forward.finish(None)
    assert names(recorded)[-2:] == ["forward zones/0", "forward zones/0"]
    assert span_recorder.on_append(FLEET_0, forwarding(1, 5, 7)) is None


def test_a_device_that_skips_a_version_ends_the_traces_of_both(
    span_recorder: SpanRecorder, recorded: InMemorySpanExporter
) -> None:
    for offset in (1, 2):
        span_recorder.on_fold(FLEET_0, [followed(offset, SAMPLED % (offset, 1))])
        span_recorder.distributing({"z": offset + 1, "other": offset})
    span_recorder.reached("z", 3, Level.IN_HARDWARE)
    assert "device z" not in names(recorded), "a device span needs a table that was sent"
    span_recorder.sent("z", 3)
    span_recorder.reached("z", 3, Level.IN_HARDWARE)
    assert names(recorded).count("device z") == 2 and "device other" not in names(recorded)


def test_zones_without_responses_are_tracked_within_a_bound(
    span_recorder: SpanRecorder, recorded: InMemorySpanExporter
) -> None:
    for offset in range(1, 4 * VERSIONS_MAX):
        span_recorder.on_fold(FLEET_0, [followed(offset, SAMPLED % (offset, 1))])
        span_recorder.distributing({"z": offset + 1})
        span_recorder.sent("z", offset + 1)
    assert names(recorded).count("device z") == 4 * VERSIONS_MAX - 1 - VERSIONS_MAX
    for number in range(2 * KEPT_MAX):
        span_recorder.on_fold(FLEET_0, [followed(1_000 + number, SAMPLED % (number + 1, 1))])
        span_recorder.distributing({f"z{number}": 1_001 + number})
    assert len(span_recorder._awaited_versions) == KEPT_MAX


async def test_the_number_of_traced_calls_is_bounded(
    span_recorder: SpanRecorder, recorded: InMemorySpanExporter
) -> None:
    for number in range(10 * CALLS_PER_S):
        with span_recorder.call("Commands.JoinNodes", [(HEADER, (SAMPLED % (number + 1, 1)).decode())]):
            pass
    assert CALLS_PER_S <= len(names(recorded)) <= 2 * CALLS_PER_S

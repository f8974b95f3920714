"""The log in pages from its end to its start: every event comes once and in order of time, with any filter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.operations.export.events import EventFilter
from deploy.web.page.log import LOOKED_AT_MAX, PAGE, LogPage, latest, parse_cursor
from deploy.web.page.requests import BadQuery
from eventstore.avro.codec import encode
from eventstore.log import FLEET_0, RESOURCES, ZONES, Partition
from schemas.events import Envelope, Event, NodesLeft, ResourcesObserved, WritesFrozen
from tests.support.memory_log import Contents, MemoryLog

COUNT = 3
PLACES = [*TOPICS.partitions(ZONES, COUNT), FLEET_0]
FOLDS = folds_of(COUNT)


def envelope_of(subject: str, actor: str = "a") -> Envelope:
    return Envelope("", subject, actor, 1)


def left(zone: str, names: list[str]) -> Event:
    return NodesLeft(envelope_of(zone), zone, names, [], [], False, b"")


def log_of(records: Sequence[tuple[Partition, int, Event]]) -> MemoryLog:
    contents = Contents(COUNT)
    for partition, time_ms, event in records:
        contents.add(partition, time_ms, b"", encode(event))
    return MemoryLog(contents, lambda: 0)


async def ends_of(log: MemoryLog) -> dict[Partition, int]:
    return {p: await log.end(p) for topic in TOPICS.folded for p in log.partitions(topic)}


async def every_page(log: MemoryLog, wanted: EventFilter) -> list[LogPage]:
    pages = [await latest(log, FOLDS, wanted, await ends_of(log))]
    while pages[-1].before:
        pages.append(await latest(log, FOLDS, wanted, parse_cursor(pages[-1].before, log)))
    return pages


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.integers(0, 3), st.booleans()), max_size=400))
def test_pages_have_every_matching_event_once_and_the_latest_first(steps: list[tuple[Partition, int, bool]]) -> None:
    time_ms, records, expected = 1_000, [], []
    counts: dict[Partition, int] = {}
    for partition, later_ms, is_wanted in steps:
        time_ms += later_ms
        records.append((partition, time_ms, WritesFrozen(envelope_of("wanted" if is_wanted else "other"), "z")))
        offset = counts[partition] = counts.get(partition, -1) + 1
        if is_wanted:
            expected.append((time_ms, partition, offset))
    pages = asyncio.run(every_page(log_of(records), EventFilter(subject="wanted")))
    shown = [(line["timestamp_ms"], line["partition"], line["offset"]) for page in pages for line in page.events]
    assert shown == [(at, str(partition), offset) for at, partition, offset in sorted(expected, reverse=True)]
    assert all(len(page.events) <= PAGE for page in pages)


async def test_a_page_reads_a_bounded_number_of_records() -> None:
    log = log_of([(PLACES[0], 1_000 + n, left("z", ["n"])) for n in range(LOOKED_AT_MAX + 10)])
    first, second = await every_page(log, EventFilter(actor="nobody"))
    assert (first.events, first.looked_at) == ([], LOOKED_AT_MAX)
    assert (second.looked_at, second.before) == (10, "")


async def test_a_type_is_searched_only_in_its_topics() -> None:
    records = [(PLACES[0], 1_000 + n, left("z", ["n"])) for n in range(300)]
    log = log_of([*records, (FLEET_0, 5, WritesFrozen(envelope_of("z"), "z"))])
    found = await latest(log, FOLDS, EventFilter(types={"WritesFrozen"}), await ends_of(log))
    assert ([line["type"] for line in found.events], found.looked_at) == (["WritesFrozen"], 1)


async def test_a_type_with_a_newer_schema_is_searched_by_its_name() -> None:
    observed = ResourcesObserved(envelope_of("z"), "east", ["Node.core"], [], ["n"], [], ['{"ready":true}'])
    log = log_of([(Partition(RESOURCES, 0), 5, observed)])
    found = await latest(log, FOLDS, EventFilter(types={"ResourcesObserved"}), await ends_of(log))
    assert [line["type"] for line in found.events] == ["ResourcesObserved"]


async def test_a_long_event_is_shown_with_its_beginning_and_its_length() -> None:
    log = log_of([(PLACES[0], 1_000, left("z", [f"n{n}" for n in range(900)]))])
    [line] = (await latest(log, FOLDS, EventFilter(), await ends_of(log))).events
    assert (line["names"][:2], line["names"][-1]) == (["n0", "n1"], "... 880 more")


async def test_expired_records_are_skipped() -> None:
    log = log_of([(PLACES[0], 1_000 + n, left("z", ["n"])) for n in range(30)])
    del log.contents.records[PLACES[0]][:20]
    log.contents.begins[PLACES[0]] = 20
    [page] = await every_page(log, EventFilter())
    assert [line["offset"] for line in page.events] == list(range(29, 19, -1))


@pytest.mark.parametrize(
    "cursor", ["nonsense", "zones/0", "zones/9=1", "zones/0=-1", "x/0=1", "zones/0=1,", "zones/٣=1"]
)
def test_an_invalid_cursor_is_refused_with_its_field(cursor: str) -> None:
    with pytest.raises(BadQuery, match=r"^before: "):
        parse_cursor(cursor, log_of([]))

"""The log's events as lines of JSON: position, append time and content."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from commands.streams.event_filter import UNDECODABLE, is_wanted
from deploy.operations.export.rendering import rendered
from eventstore.as_of import AsOf
from eventstore.avro.codec import decode
from eventstore.errors import PermanentError, Undecodable
from eventstore.folding.origin import wait_for_origin
from eventstore.log import Batch, EventLog, Partition, Record
from eventstore.position import from_token
from eventstore.progress import ReportProgress
from eventstore.recovery.replay import cut_at_position
from schemas.events import EVENTS

EXPORTED_TYPES = frozenset({event.__name__ for event in EVENTS} | {UNDECODABLE})

_WIDER = 8
"""Factor by which the range that is read grows as long as it has too few matching events."""


def silent(_what: str, _share: float) -> None:
    """A progress callback without effect."""


class EventFilter(NamedTuple):
    """The filter of events. Empty `topics` admit the events of all folded topics; any other empty field admits every
    event. `since_ms` is an append time; `subject` must match exactly.

    The range begins at `start` and ends at `until`; each of them is a position or an append time. A record at the
    position `until` is not in the range, but a record that was appended at the time `until` is.
    """

    topics: Collection[str] = ()
    types: Collection[str] = ()
    subject: str = ""
    actor: str = ""
    command_id: str = ""
    since_ms: int = 0
    start: AsOf | None = None
    until: AsOf | None = None

    def admits(self, line: dict[str, object]) -> bool:
        envelope = line.get("envelope")
        found = envelope if isinstance(envelope, dict) else {}
        fields = (found.get(field, "") for field in ("subject", "actor", "command_id"))
        return is_wanted(self, str(line["type"]), *fields)


async def lines(
    log: EventLog, event_filter: EventFilter, *, follow: bool, report: ReportProgress = silent
) -> AsyncGenerator[dict[str, object], None]:
    """Events in order per partition, up to the present ends of the log, or without end if `follow`."""
    async with aclosing(batches(log, event_filter, follow=follow, report=report)) as found:
        async for partition, records in found:
            for line in admitted_lines(event_filter, partition, records):
                yield line


async def tail(log: EventLog, event_filter: EventFilter, *, last: int) -> AsyncGenerator[dict[str, object], None]:
    """The last events of the log in order of append time, then new events as they are appended. With `until`, it does
    not wait for new events.
    """
    begins, ends = await range_of(log, event_filter)
    for line in await _last(log, event_filter, begins, ends, last):
        yield line
    if event_filter.until is not None:
        return
    async with aclosing(log.read(ends)) as found:
        async for partition, records in found:
            for line in admitted_lines(event_filter, partition, records):
                yield line


async def _last(
    log: EventLog, event_filter: EventFilter, begins: Mapping[Partition, int], ends: Mapping[Partition, int], count: int
) -> list[dict[str, object]]:
    """The last `count` events before `ends`. Each partition is read from earlier and earlier starts until it has
    `count` events: a filter may admit one record in millions, and most tails need a few records of a large log.
    """
    found: list[dict[str, object]] = []
    for partition, end in ends.items():
        start, window, lines_found = end, count, list[dict[str, object]]()
        while len(lines_found) < count and start > begins[partition]:
            start, window = max(begins[partition], end - window), window * _WIDER
            lines_found = await _lines_between(log, event_filter, partition, start, end)
        found += lines_found[-count:]
    found.sort(key=lambda line: int(str(line["timestamp_ms"])))
    return found[-count:] if count else []


async def _lines_between(
    log: EventLog, event_filter: EventFilter, partition: Partition, start: int, end: int
) -> list[dict[str, object]]:
    lines_found: list[dict[str, object]] = []
    async with aclosing(_between(log, {partition: start}, {partition: end}, follow=False, report=silent)) as found:
        async for _, records in found:
            lines_found += admitted_lines(event_filter, partition, records)
    return lines_found


def admitted_lines(
    event_filter: EventFilter, partition: Partition, records: Iterable[Record]
) -> Iterator[dict[str, object]]:
    """The events among these records that the filter admits, as lines."""
    return filter(event_filter.admits, (as_line(partition, record) for record in records))


async def batches(
    log: EventLog, event_filter: EventFilter, *, follow: bool, report: ReportProgress = silent
) -> AsyncGenerator[Batch, None]:
    """The records of the wanted topics and positions, of every type."""
    begins, ends = await range_of(log, event_filter)
    async with aclosing(
        _between(log, begins, ends, follow=follow and event_filter.until is None, report=report)
    ) as found:
        async for batch in found:
            yield batch


async def _between(
    log: EventLog,
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    *,
    follow: bool,
    report: ReportProgress,
) -> AsyncGenerator[Batch, None]:
    """The records from `begins` up to, but not including, `ends`. With `follow`, without end."""
    behind = {partition for partition, end in ends.items() if begins[partition] < end}
    total = sum(ends[partition] - begins[partition] for partition in behind)
    if not behind and not follow:
        return
    positions = {partition: begin for partition, begin in begins.items() if follow or partition in behind}
    done = 0
    async with aclosing(log.read(positions)) as found:
        async for partition, records in found:
            within = records if follow else [each for each in records if each.offset < ends[partition]]
            if within:
                yield partition, within
            done += len(within)
            report(str(partition), min(done / total, 1.0) if total else 1.0)
            if records and records[-1].offset + 1 >= ends[partition]:
                behind.discard(partition)
            if not behind and not follow:
                return


async def range_of(log: EventLog, event_filter: EventFilter) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """The start and end in each partition."""
    partitions = [
        partition for topic in event_filter.topics or log.topics.folded for partition in log.partitions(topic)
    ]
    ends = {partition: await log.end(partition) for partition in partitions}
    begins = {partition: await _start(log, partition, event_filter.since_ms) for partition in partitions}
    first = await _cut(log, event_filter.start, 0) if event_filter.start is not None else {}
    last = await _cut(log, event_filter.until, 1) if event_filter.until is not None else {}
    _check_order(first, last)
    begins = {partition: max(begin, first.get(partition, begin)) for partition, begin in begins.items()}
    ends = {partition: min(end, last.get(partition, end)) for partition, end in ends.items()}
    return begins, ends


def _check_order(first: Mapping[Partition, int], last: Mapping[Partition, int]) -> None:
    """Raise PermanentError if the start is after the end, which would select no event. Equal points are allowed. If the
    start is later in one partition and the end in another, the range is allowed too: positions from two responses may
    differ in this way.
    """
    further = [last[partition] - begin for partition, begin in first.items() if partition in last]
    if further and min(further) < 0 and max(further) <= 0:
        raise PermanentError("from: it must not be later than until")


async def _cut(log: EventLog, as_of: AsOf, more_ms: int) -> dict[Partition, int]:
    """The offset in each partition at a position or a time; `more_ms` is added to a time."""
    if isinstance(as_of, int):
        there = [partition for topic in log.topics.with_events for partition in log.partitions(topic)]
        return {partition: await log.position_at(partition, as_of + more_ms) for partition in there}
    named = from_token(as_of, (await wait_for_origin(log)).log_id)
    return await cut_at_position(log, log.topics.with_events, named.offsets)


def as_line(partition: Partition, record: Record) -> dict[str, object]:
    """One event, with addresses and hashes as text. A record that no schema decodes has type `undecodable`, and its
    value in hex."""
    where: dict[str, object] = {
        "partition": str(partition),
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    try:
        event = decode(record.value)
    except Undecodable as error:
        return {**where, "type": UNDECODABLE, "reason": str(error), "value": record.value.hex()}
    return {**where, "type": type(event).__name__, **rendered(event)}


def as_json(line: dict[str, object]) -> str:
    return msgspec.json.encode(line).decode()


async def _start(log: EventLog, partition: Partition, since_ms: int) -> int:
    return await log.position_at(partition, since_ms) if since_ms else await log.begin(partition)

"""The log for people: the latest event first, over all partitions in order of time, one page at a time.

A log can only be read forwards. Each partition is therefore read in ranges, each range before the previous one. The
page then takes one record after another, always the latest of all records that are read and not taken. A page ends when
it is full, after a limit of examined records (so a filter without a match has a bounded cost), or at the log's
beginning. Its cursor is the start of the next page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from commands.streams.event_filter import UNDECODABLE
from deploy.operations.export.events import EventFilter, as_line
from deploy.web.page.requests import BadQuery
from eventstore.errors import LogUnavailable
from eventstore.folding.fold import Fold, accepted_events
from eventstore.folding.partition import PLANE_EVENTS
from eventstore.log import EventLog, Partition, Record
from projections.field_checks import quoted

PAGE = 50
LOOKED_AT_MAX = 4_000
"""Maximum records examined for one page."""
FIRST_STRETCH, LAST_STRETCH = 8, 256
"""Records of the first read of a partition, and the maximum of later reads, which grow by a factor of 4."""
READ_S = 5.0
_TEXT_SHOWN = 2_000
_ITEMS_SHOWN = 20
"""Maximum number of characters of a text, and of items of a list, that the page shows."""


class LogPage(NamedTuple):
    """Events, the latest first; `before` is the cursor of the next page, empty at the log's beginning."""

    events: list[dict[str, Any]]
    before: str
    looked_at: int


class _Stretch:
    """The records of one partition that are read and not taken yet, and the start of their range."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.records: list[Record] = []
        self.begins = position
        self.size = FIRST_STRETCH


async def latest(
    log: EventLog, folds: Collection[Fold[Any]], event_filter: EventFilter, ends: Mapping[Partition, int]
) -> LogPage:
    """One page of the events before these positions."""
    stretches = {
        partition: _Stretch(end) for partition, end in ends.items() if _may_have(partition, folds, event_filter)
    }
    begins = {partition: await log.begin(partition) for partition in stretches}
    found: list[dict[str, Any]] = []
    looked_at = 0
    while len(found) < PAGE and looked_at < LOOKED_AT_MAX:
        await _read_back(log, stretches, begins)
        there = [(each.records[-1].timestamp_ms, partition) for partition, each in stretches.items() if each.records]
        if not there:
            return LogPage(found, "", looked_at)
        _, partition = max(there)
        record = stretches[partition].records.pop()
        stretches[partition].position = record.offset
        line = as_line(partition, record)
        if event_filter.admits(line):
            found.append(_shortened(line))
        looked_at += 1
        if not looked_at % 50:
            await asyncio.sleep(0)
    positions = {partition: each.position for partition, each in stretches.items()}
    return LogPage(found, _cursor({**ends, **positions}), looked_at)


def parse_cursor(text: str, log: EventLog) -> dict[Partition, int]:
    """The positions of a cursor. Raises BadQuery."""
    found = {}
    for part in text.split(","):
        place, _, offset = part.partition("=")
        topic, _, number = place.partition("/")
        if not (number.isascii() and number.isdigit() and offset.isascii() and offset.isdigit() and len(offset) < 19):
            raise BadQuery(f"before: {quoted(part)} must be part of the cursor of an earlier page")
        partition = Partition(topic, int(number))
        if len(number) > 4 or topic not in log.topics.folded or partition not in log.partitions(topic):
            raise BadQuery(f"before: {quoted(place)} is not a partition of this log")
        found[partition] = int(offset)
    return found


def _cursor(positions: Mapping[Partition, int]) -> str:
    return ",".join(f"{partition}={position}" for partition, position in sorted(positions.items()))


def _may_have(partition: Partition, folds: Collection[Fold[Any]], event_filter: EventFilter) -> bool:
    """Whether a partition may hold wanted events: its fold must accept one of the wanted types. A fold quarantines
    events of any other type.
    """
    if not event_filter.types or UNDECODABLE in event_filter.types:
        return True
    accepted = PLANE_EVENTS | accepted_events(fold for fold in folds if fold.topic == partition.topic)
    return not accepted.isdisjoint(event_filter.types)


async def _read_back(log: EventLog, stretches: Mapping[Partition, _Stretch], begins: Mapping[Partition, int]) -> None:
    """Read the preceding range of each partition whose records are all taken."""
    starts: dict[Partition, int] = {}
    for partition, each in stretches.items():
        if not each.records and each.position > begins[partition]:
            starts[partition] = max(begins[partition], min(each.position, each.begins) - each.size)
            each.size = min(each.size * 4, LAST_STRETCH)
    if not starts:
        return
    missing = {partition: stretches[partition].position for partition in starts}
    try:
        async with asyncio.timeout(READ_S), aclosing(log.read(starts)) as batches:
            async for partition, records in batches:
                if partition in missing:
                    stretches[partition].records += [r for r in records if r.offset < missing[partition]]
                    if records[-1].offset + 1 >= missing[partition]:
                        del missing[partition]
                if not missing:
                    break
    except TimeoutError as error:
        raise LogUnavailable(f"log: {min(missing)} gave no records within {READ_S:g} s") from error
    for partition, start in starts.items():
        stretches[partition].begins = start
        if not stretches[partition].records:  # a gap in the offsets
            stretches[partition].position = start


def _shortened(value: Any) -> Any:
    """An event for display: long texts are truncated with their length, long lists with the number of omitted items."""
    match value:
        case dict():
            return {key: _shortened(each) for key, each in value.items()}
        case str():
            return value if len(value) <= _TEXT_SHOWN else f"{value[:_TEXT_SHOWN]}... ({len(value)} characters)"
        case Sequence():
            shown_ = [_shortened(each) for each in value[:_ITEMS_SHOWN]]
            return shown_ if len(value) <= _ITEMS_SHOWN else [*shown_, f"... {len(value) - _ITEMS_SHOWN} more"]
        case _:
            return value

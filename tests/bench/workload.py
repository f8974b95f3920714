"""The fleet that benches join, as events and as records: node after node, zone after zone, three kinds of labels."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.folding.fold import Fold
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import envelope, internal_envelope, uuid7
from eventstore.log import ZONES, Partition, Record
from projections.forwarding.zones_to_fleet import forward
from projections.zones.state import ZonesState
from schemas.events import Event, LogCreated, MembershipChanged, NodesJoined, NodesLeft

T = TypeVar("T")

LOG_ID = "bench"
ZONES_0 = Partition(ZONES, 0)
FIRST_ADDRESS = 10 << 24 | 1
_IDS = random.Random(11)
LABELS: Sequence[dict[str, str]] = tuple({"gpu": kind, "rack-row": "a"} for kind in ("h100", "gb200", "gb300"))


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def name_of(number: int) -> str:
    return f"node-{number:07}"


def zone_name(number: int) -> str:
    return f"zone-{number:04}"


def joins(
    nodes: int, zones: int, per_record: int, *, first: int = 0, seed: int = 7, missing_each: int = 0
) -> Iterator[NodesJoined]:
    """Commands issued now that join nodes `first` to before `first + nodes`, spread over the zones in turn.

    Their addresses are contiguous, with a gap at every so many-th if given.
    """
    rng = random.Random(seed)
    for count, start in enumerate(range(first, first + nodes, per_record)):
        numbers = range(start, min(start + per_record, first + nodes))
        zone = zone_name(count % zones)
        skipped = [number // (missing_each - 1) if missing_each else 0 for number in numbers]
        places = map(int.__add__, numbers, skipped)
        addresses = b"".join((FIRST_ADDRESS + place).to_bytes(4, "big") for place in places)
        labels = [number % len(LABELS) for number in numbers]
        kinds = list(LABELS) if len(numbers) > 1 else [LABELS[labels[0]]]
        said = envelope(f"zone/{zone}", "bench", uuid7(now_ms(), rng))
        index = labels if len(numbers) > 1 else [0]
        yield NodesJoined(said, zone, [name_of(number) for number in numbers], [], [], addresses, b"", kinds, index)


def leaves(joined: Iterable[NodesJoined]) -> Iterator[NodesLeft]:
    """Commands issued now that remove the nodes of these joins."""
    for event in joined:
        said = envelope(event.envelope.subject, "bench", new_id())
        yield NodesLeft(said, event.zone, event.names, [], [], inferred=False, list_hash=b"")


def new_id() -> str:
    """The id of a command issued now."""
    return uuid7(now_ms(), _IDS)


def records(events: Iterable[Event]) -> list[Record]:
    """A partition with these events after its LogCreated."""
    created = LogCreated(internal_envelope("log", "bench", now_ms()), LOG_ID, 1, 1, "")
    return [Record(offset, now_ms(), b"", encode(event)) for offset, event in enumerate((created, *events))]


def folded(partition: Partition, fold: Fold[Any], log: Iterable[Record]) -> FoldedPartition:
    """A partition folded as by a replica."""
    found = FoldedPartition(partition, {fold.version: fold}, LOG_ID, is_deciding=fold.topic in TOPICS.deciding)
    for record in log:
        found.fold(record)
    assert not found.halted, found.halted
    assert not found.quarantined
    return found


def forwards(state: ZonesState, number: int = 0) -> Iterator[MembershipChanged]:
    """All records that a zones partition forwards to fleet."""
    mark = 0
    while (event := forward(state, number, mark)) is not None:
        yield event
        mark = event.to_offset

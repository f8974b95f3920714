"""The decisions topic has exactly the decisions of a fold of the log, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drivers.decisions.written import cause_of
from eventstore.log import DECISIONS, Partition, Record
from tests.simulation.checkers.evidence import Evidence

Found = Iterator[str]

IN_FLIGHT_MAX = 256
"""How many decisions of a partition a writer appends concurrently. It starts the next batch only after all of them are
written.
"""


def check_decided(run: Evidence) -> Found:
    """I26: every record of the topic equals a decision of a fresh fold, byte for byte."""
    for partition, records in _topic(run).items():
        for record in records:
            if run.decided.get(record.key.decode(errors="replace")) != record.value:
                yield f"{partition}@{record.offset} has another decision about {record.key!r} than a fresh fold"


def check_decision_order(run: Evidence) -> Found:
    """I26: no decision comes after a decision of a later batch: a restarted writer would take the missing one as
    written.
    """
    causes: dict[Partition, list[int]] = {}
    for key in run.decided:
        if (cause := cause_of(key.encode())) is not None:
            causes.setdefault(cause[0], []).append(cause[1])
    places = {source: {offset: place for place, offset in enumerate(found)} for source, found in causes.items()}
    seen: dict[Partition, set[int]] = {source: set() for source in causes}
    first_missing = dict.fromkeys(causes, 0)
    for partition, records in _topic(run).items():
        for record in records:
            cause = cause_of(record.key)
            if cause is None or cause[1] not in places.get(cause[0], ()):
                continue
            source, offset = cause
            if places[source][offset] - first_missing[source] >= IN_FLIGHT_MAX:
                late = causes[source][first_missing[source]]
                yield f"{partition}@{record.offset} is about {source}/{offset}, long before the decision about {late}"
            seen[source].add(offset)
            while first_missing[source] < len(causes[source]) and causes[source][first_missing[source]] in seen[source]:
                first_missing[source] += 1


def check_complete(run: Evidence) -> Found:
    """I26, at rest: every decision is in the topic."""
    if topic := _topic(run):
        written = {record.key.decode(errors="replace") for records in topic.values() for record in records}
        for key in run.decided:
            if key not in written:
                yield f"no decision about {key} was written"


def _topic(run: Evidence) -> dict[Partition, Sequence[Record]]:
    """The partitions of the topic; empty if the log has no such topic."""
    return {partition: found for partition, found in run.records.items() if partition.topic == DECISIONS}

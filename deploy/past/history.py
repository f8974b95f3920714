"""The history of one subject in order: the log is folded again, and the decisions about the subject are selected.

The fold repeats its original decisions. Partitions are folded one after the other, so that one state at a time is in
memory; the results are sorted by time at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from drivers.decisions.kept import decided_records_of
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun
from eventstore.folding.fold import Fold
from eventstore.folding.origin import wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import EventLog
from projections.decisions.decided import DECIDED_TOPICS
from projections.decisions.histories import about
from projections.decisions.items import DecisionItem

ITEMS_SHOWN = 20
"""Listed items of one record; the rest is counted by kind."""

Heard = Callable[[int, int], None]
"""Called with the numbers of folded records and of all records."""


class Happening(NamedTuple):
    """One record about the subject: its time, position, principal, and decision."""

    time_ms: int
    partition: str
    offset: int
    event: str
    actor: str
    command_id: str
    outcome: str
    reason: str
    items: tuple[DecisionItem, ...]


async def history(log: EventLog, folds: Sequence[Fold[Any]], subject: str, heard: Heard) -> list[Happening]:
    """The history up to the present end of the log, oldest first. Raises as EventLog does."""
    origin = await wait_for_origin(log)
    rules: dict[str, dict[int, Fold[Any]]] = {}
    for fold in folds:
        rules.setdefault(fold.topic, {})[fold.version] = fold
    ends = {partition: await log.end(partition) for topic in DECIDED_TOPICS for partition in log.partitions(topic)}
    found: list[Happening] = []
    done, total = 0, sum(ends.values())
    for partition, end in ends.items():
        listener = _Listener(subject, found)
        folded = FoldedPartition(partition, rules[partition.topic], origin.log_id, listener)
        if end:
            async with aclosing(_fold(log, folded, end)) as positions:
                async for position in positions:
                    heard(done + position, total)
        done += end
    return sorted(found)


def homes_of_dpu(happened: Sequence[Happening], name: str) -> dict[str, str]:
    """The zones in which a DPU of this name was registered, sorted, each with its partition."""
    return dict(
        sorted(
            (item.detail["zone"], found.partition)
            for found in happened
            for item in found.items
            if (item.kind, item.subject) == ("dpu_registered", name)
        )
    )


def of_home(happened: Sequence[Happening], homes: Mapping[str, str], zone: str) -> list[Happening]:
    """A history without the records about DPUs with the same name in other zones."""
    others = {*homes.values()} - {homes[zone]}
    return [found for found in happened if found.partition not in others]


async def _fold(log: EventLog, folded: FoldedPartition, end: int) -> AsyncGenerator[int, None]:
    async with aclosing(log.read({folded.partition: folded.position})) as batches:
        async for _, records in batches:
            start, stop = 0, len(records)
            while stop and records[stop - 1].offset >= end:
                stop -= 1
            while start < stop and not folded.halted:
                start, _ = folded.fold_next(records, start, stop)
            yield folded.position
            await asyncio.sleep(0)
            if records[-1].offset + 1 >= end or folded.halted:
                return


class _Listener:
    """Collects the records about the subject."""

    def __init__(self, subject: str, found: list[Happening]) -> None:
        self._subject = subject
        self._text = subject.encode()
        self._found = found

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        if isinstance(decided_record, DecidedRecord):
            self._take(decided_record)
        elif any(self._text in record.value for record in decided_record.records):  # joins name all their subjects
            for single in decided_records_of(decided_record):
                self._take(single)

    def owes_from(self, position: int) -> int:
        return position

    def restored(self, owed_from: int, position: int) -> None:
        """Ignored: a history folds from the beginning of the log."""

    def _take(self, decided_record: DecidedRecord) -> None:
        event, change, outcome, at, _, _ = decided_record
        items = about(self._subject, event, change, outcome, at)
        if not items:
            return
        said = event.envelope
        self._found.append(
            Happening(
                at.append_ms,
                str(at.partition),
                at.offset,
                type(event).__name__,
                said.actor,
                said.command_id,
                outcome.code,
                outcome.reason,
                tuple(items) if len(items) <= ITEMS_SHOWN else _counted(items),
            )
        )


def _counted(items: Sequence[DecisionItem]) -> tuple[DecisionItem, ...]:
    kinds = Counter(item.kind for item in items)
    return tuple(DecisionItem(kind, f"{count} of them", {}) for kind, count in kinds.items())

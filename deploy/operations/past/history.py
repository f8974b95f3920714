"""The history of one subject in order: the log is folded again, and the decisions about the subject are selected.

The fold repeats its original decisions. The results are sorted by time at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from deploy.operations.past.folded_decisions import Decided, fold_decisions
from eventstore.folding.decision_listener import DecidedRun, decided_records_of
from eventstore.folding.fold import Fold
from eventstore.log import EventLog
from projections.decisions.histories import about
from projections.decisions.items import DecisionItem

ITEMS_SHOWN = 20
"""Maximum number of items listed for one record. If the record has more, all its items are counted by kind instead."""

OnProgress = Callable[[int, int], None]
"""A callback with the number of folded records and of all records."""


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


async def history(log: EventLog, folds: Sequence[Fold[Any]], subject: str, on_progress: OnProgress) -> list[Happening]:
    """The history up to the present end of the log, oldest first. Raises the errors of EventLog."""
    ends = {partition: await log.end(partition) for topic in log.topics.deciding for partition in log.partitions(topic)}
    found: list[Happening] = []
    done, total = dict.fromkeys(ends, 0), sum(ends.values())
    async with aclosing(fold_decisions(log, folds, ends)) as folding:
        async for folded, decisions in folding:
            for decided in decisions:
                found += _happenings(subject, decided)
            done[folded.partition] = folded.position
            on_progress(sum(done.values()), total)
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


def _happenings(subject: str, decided: Decided) -> Iterator[Happening]:
    if isinstance(decided, DecidedRun):
        text = subject.encode()
        if any(text in record.value for record in decided.records):  # the record of a join names its nodes
            for single in decided_records_of(decided):
                yield from _happenings(subject, single)
        return
    event, change, outcome, at, _, _ = decided
    if items := about(subject, event, change, outcome, at):
        said = event.envelope
        yield Happening(
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


def _counted(items: Sequence[DecisionItem]) -> tuple[DecisionItem, ...]:
    kinds = Counter(item.kind for item in items)
    return tuple(DecisionItem(kind, f"{count} of them", {}) for kind, count in kinds.items())

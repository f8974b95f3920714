"""What a fold decided, spelled out: from an event, the change that it made, and its outcome, to items that say so.

Nothing is decided here, and nothing is computed anew: an item is read off the very change that the fold evolved by, so
what is written for analysts cannot say anything else than what happened. Rows in a change that began at the record's
own offset are what is new by it: a phase, an index, a place in line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eventstore.folding.fold import At, Outcome
from eventstore.log import CLIQUES, FLEET, ZONES
from projections.decisions import cliques as clique_decisions
from projections.decisions import fleet as fleet_decisions
from projections.decisions import zones as zone_decisions
from projections.decisions.items import Item
from schemas.events import Decided, Event, FoldVersionRaised

DECIDED_TOPICS = (ZONES, CLIQUES, FLEET)
"""Topics whose folds decide something."""

MAX_TEXT = 600_000
"""Characters of items in one record; the items beyond are counted, not listed, so that it fits the log."""


def key_of(at: At) -> str:
    """The key of a decision: where its cause stands."""
    return f"{at.partition.topic}/{at.partition.number}/{at.offset}"


def decided(event: Event, change: Any, outcome: Outcome, at: At, version: int) -> Decided:
    """The record that says what a fold of this version decided."""
    kinds, subjects, details = _columns(list(_bounded(spell(event, change, outcome, at))))
    return Decided(
        envelope=event.envelope,
        topic=at.partition.topic,
        partition=at.partition.number,
        offset=at.offset,
        appended_ms=at.append_ms,
        event=type(event).__name__,
        fold_version=version,
        outcome=outcome.code,
        reason=outcome.reason,
        kinds=kinds,
        subjects=subjects,
        details=details,
    )


def spell(event: Event, change: Any, outcome: Outcome, at: At) -> list[Item]:
    """Every item of a decision: at least one."""
    items = [*_changed(event, change, outcome, at), *_answered(outcome)]
    if items:
        return items
    subject = event.envelope.subject
    if outcome.code == "refused":
        return [Item("refused", subject, {"reason": outcome.reason})]
    return [Item("unchanged", subject, {"reason": outcome.reason} if outcome.reason else {})]


def _changed(event: Event, change: Any, outcome: Outcome, at: At) -> Iterable[Item]:
    if isinstance(event, FoldVersionRaised):
        raised = Item("fold_version_raised", str(at.partition), {"version": str(event.version)})
        return [raised] if outcome.code == "done" else []
    if change is None:
        return _waiting_still(event, outcome, at)
    match at.partition.topic:
        case topic if topic == ZONES:
            return zone_decisions.items(event, change, outcome, at)
        case topic if topic == CLIQUES:
            return clique_decisions.items(event, change, outcome, at)
        case topic if topic == FLEET:
            return fleet_decisions.items(event, change, at)
    raise AssertionError(f"{at.partition} decides nothing")


def _waiting_still(event: Event, outcome: Outcome, at: At) -> Iterable[Item]:
    """Who asks again while in line is told the place; nothing changes."""
    if outcome.code == "waiting":
        kind = "index_waiting" if at.partition.topic == CLIQUES else "dpu_waiting"
        yield Item(kind, event.envelope.subject, {"place": str(outcome.place)})
    elif outcome.index >= 0:
        yield Item("index_kept", event.envelope.subject, {"index": str(outcome.index)})


def _answered(outcome: Outcome) -> Iterable[Item]:
    """Items of a batch that came out differently from the whole."""
    for item in outcome.items:
        yield Item("refused" if item.code == "refused" else "unchanged", item.name, {"reason": item.reason})


def _bounded(items: Sequence[Item]) -> Iterable[Item]:
    size, detail_size, previous = 0, 0, None
    for number, item in enumerate(items):
        kind, subject, detail = item
        if detail is not previous:  # most items of a batch share theirs
            detail_size, previous = sum(len(key) + len(text) for key, text in detail.items()), detail
        size += len(kind) + len(subject) + detail_size
        if size > MAX_TEXT:
            yield Item("not_listed", "", {"items": str(len(items) - number)})
            return
        yield item


def _columns(items: Sequence[Item]) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Columns, each one entry long if all items say the same there; subjects always in full."""
    kinds, details = [item.kind for item in items], [item.detail for item in items]
    if kinds.count(kinds[0]) == len(kinds):
        del kinds[1:]
    if details.count(details[0]) == len(details):
        del details[1:]
    return kinds, [item.subject for item in items], details

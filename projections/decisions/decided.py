"""Renders the decision of a fold: an event, its change and its outcome become items.

This module makes no decision of its own. Items are read from the change that the fold applied to its state, so the
record for analysts cannot differ from that state. Some items exist only if the record began a state, such as a phase,
an index or a place in the queue. A record began the state if the `since` of the row is the offset of the record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from eventstore.folding.fold import ItemOutcome, Outcome, RecordMetadata
from eventstore.log import CLIQUES, FLEET, ZONES
from projections.decisions import cliques as clique_decisions
from projections.decisions import fleet as fleet_decisions
from projections.decisions import zones as zone_decisions
from projections.decisions.items import DecisionItems, result_detail, single_item
from schemas.events import DecisionRecorded, Envelope, Event, FoldVersionUpgraded

_Value = TypeVar("_Value", str, dict[str, str])

_RENDERERS: Mapping[str, Callable[[Any, Any, Outcome, RecordMetadata], Iterable[DecisionItems]]] = {
    ZONES: zone_decisions.items,
    CLIQUES: clique_decisions.items,
    FLEET: fleet_decisions.items,
}
"""The items of a change, by the topic of its fold. A change of another fold is one item of kind `changed`."""

MAX_TEXT = 600_000
"""Maximum number of bytes of the items in one record, so that the record fits the log. Further items are counted, not
listed."""

MAX_ENVELOPE_TEXT = 4_096
"""Maximum number of characters of each text of the envelope. Longer texts, which only other programs write, are cut.
Otherwise the writer would retry for ever to append a decision that is too large for the log, and its replica would stop
folding.
"""


def key_of(at: RecordMetadata) -> str:
    """The key of a decision: the position of its cause in the log."""
    return f"{at.partition.topic}/{at.partition.number}/{at.offset}"


def decided(event: Event, change: Any, outcome: Outcome, at: RecordMetadata, version: int) -> DecisionRecorded:
    """The record of a decision. `version` is the version of the fold that decided."""
    items = list(_bounded(render(event, change, outcome, at)))
    counts = [len(each.subjects) for each in items]
    return DecisionRecorded(
        envelope=_cut(event.envelope),
        topic=at.partition.topic,
        partition=at.partition.number,
        offset=at.offset,
        appended_ms=at.append_ms,
        event=type(event).__name__,
        fold_version=version,
        outcome=outcome.code,
        reason=outcome.reason,
        kinds=_column([each.kind for each in items], counts),
        subjects=[subject for each in items for subject in each.subjects],
        details=_column([each.detail for each in items], counts),
    )


def render(event: Event, change: Any, outcome: Outcome, at: RecordMetadata) -> list[DecisionItems]:
    """All items of a decision, at least one."""
    items = [*_changed(event, change, outcome, at), *_answered(outcome)]
    if items:
        return items
    subject = event.envelope.subject
    if outcome.code == "refused":
        return [_refused_item(subject, outcome)]
    return [single_item("unchanged", subject, {"reason": outcome.reason} if outcome.reason else {})]


def _changed(event: Event, change: Any, outcome: Outcome, at: RecordMetadata) -> Iterable[DecisionItems]:
    if isinstance(event, FoldVersionUpgraded):
        raised = single_item("fold_version_upgraded", str(at.partition), {"version": str(event.version)})
        return [raised] if outcome.code == "done" else []
    if change is None and at.partition.topic != CLIQUES:
        return _waiting_still(event, outcome)
    renderer = _RENDERERS.get(at.partition.topic)
    return renderer(event, change, outcome, at) if renderer else [single_item("changed", event.envelope.subject, {})]


def _waiting_still(event: Event, outcome: Outcome) -> Iterable[DecisionItems]:
    """The item with the queue position, for a request that changed nothing because its DPU is queued already."""
    if outcome.code == "waiting":
        yield single_item("dpu_waiting", event.envelope.subject, result_detail(outcome.result))


def _answered(outcome: Outcome) -> Iterable[DecisionItems]:
    """The decision items for the items of an outcome that are `refused` or `unchanged`."""
    for item in outcome.items:
        if item.code == "refused":
            yield _refused_item(item.name, item)
        elif item.code == "unchanged":
            yield single_item("unchanged", item.name, {"reason": item.reason})


def _refused_item(subject: str, refused: Outcome | ItemOutcome) -> DecisionItems:
    return single_item("refused", subject, {"reason_code": refused.reason_code, "reason": refused.reason})


def _cut(envelope: Envelope) -> Envelope:
    """The envelope, with each text cut to MAX_ENVELOPE_TEXT characters."""
    command_id, subject, actor = envelope.command_id, envelope.subject, envelope.actor
    if max(len(command_id), len(subject), len(actor)) <= MAX_ENVELOPE_TEXT:
        return envelope
    command_id, subject, actor = (text[:MAX_ENVELOPE_TEXT] for text in (command_id, subject, actor))
    return Envelope(command_id, subject, actor, envelope.issued_at_ms)


def _bytes(text: str) -> int:
    """The length of a text in a record (UTF-8), in bytes."""
    return len(text) if text.isascii() else len(text.encode())


def _bounded(items: Sequence[DecisionItems]) -> Iterator[DecisionItems]:
    """The items that fit MAX_TEXT. If some do not fit, a last item has their number."""
    left, unlisted = MAX_TEXT, sum(len(each.subjects) for each in items)
    for each in items:
        kind, subjects, detail = each
        beside = len(kind) + sum(_bytes(key) + _bytes(text) for key, text in detail.items())
        size = _bytes("".join(subjects)) + beside * len(subjects)
        if size > left:
            fit = bisect_right(list(accumulate(_bytes(subject) + beside for subject in subjects)), left)
            if fit:
                yield DecisionItems(kind, subjects[:fit], detail)
            yield single_item("not_listed", "", {"items": str(unlisted - fit)})
            return
        left -= size
        unlisted -= len(subjects)
        yield each


def _column(values: list[_Value], counts: Sequence[int]) -> list[_Value]:
    """The column of these values, each repeated by its count. If all values are equal, the column has one value."""
    if values.count(values[0]) == len(values):
        return values[:1]
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]

"""Selects the items of a decision about one subject: a node, a DPU, a clique (`DOMAIN/CLIQUE`) or a zone.

A history reads every record of a log, so a record is checked for the subject before it is rendered. The history of a
zone contains the histories of its nodes and DPUs. The history of a clique contains the histories of its members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventstore.folding.fold import Outcome, RecordMetadata
from projections.cliques import state as clique_state
from projections.decisions.decided import render
from projections.decisions.fleet import edit_subject
from projections.decisions.items import DecisionItem, flattened
from projections.fleet import fold as fleet
from projections.fleet.membership import joins
from projections.fleet.staging.decide import ChargedRelease, DpusNamed
from projections.fleet.withdrawals import holds
from projections.staging.decide import StageReleased, StagingFinished, StagingUndone, StagingUpdated
from projections.zones import state as zone_state
from schemas.events import Event

_FIELDS = ("names", "nodes", "zones", "zone", "dpu", "node", "name")


def about(subject: str, event: Event, change: Any, outcome: Outcome, at: RecordMetadata) -> list[DecisionItem]:
    """The items about a subject. If the record itself names the subject and no item is about it, all items are
    returned."""
    is_named = _is_named(subject, event)
    if not is_named and not _is_in(subject, change):
        return []
    items = list(flattened(render(event, change, outcome, at)))
    own = [item for item in items if _is_about(subject, item)]
    return own or (items if is_named else [])


def _is_named(subject: str, event: Event) -> bool:
    """Whether the record itself names the subject."""
    if event.envelope.subject == subject:
        return True
    for field in _FIELDS:
        value = getattr(event, field, None)
        if value == subject or (isinstance(value, list) and subject in value):
            return True
    domain = getattr(event, "domain", None)
    return domain is not None and f"{domain}/{getattr(event, 'clique', '')}" == subject


def _is_in(subject: str, change: Any) -> bool:
    """Whether the change may concern the subject."""
    match change:
        case zone_state.ZonesChange():
            in_line = any(dpu is not None and dpu.zone == subject for dpu in change.dpus.values())
            return in_line or any(
                subject in rows for rows in (change.nodes, change.tombstones, change.dpus, change.zones)
            )
        case clique_state.CliquesChange():
            return any(subject in clique_state.split_key(key) for key, _ in change.rows)
        case clique_state.ItemChanges():
            return any(_is_in(subject, each) for each in change.changes)
        case joins.MembersAdded():
            return False  # the record itself has its names and zones
        case joins.MembersChanged():
            lost = ((name, zone) for zone, name, *_ in change.superseded)
            return any(subject in pair for pair in lost) or any(_names_subject(subject, change.impact.changes))
        case holds.MembersReleased():
            return any(_names_subject(subject, change.impact.changes))
        case holds.MembersRejected():
            return subject in change.names
        case holds.EditRejected():
            return subject == edit_subject(change.hold)
        case holds.BudgetChanged():
            return subject == change.budget.kind
        case holds.EditApplied() | fleet.ZoneEdited():
            edit = change.edit if isinstance(change, fleet.ZoneEdited) else change
            return isinstance(edit, holds.EditApplied) and subject in (
                edit.proposal.edit.policy,
                edit.proposal.edit.zone,
            )
    return _is_in_stages(subject, change)


def _is_in_stages(subject: str, change: Any) -> bool:
    """Whether a change of a staged change may concern the subject."""
    match change:
        case holds.EditStaged():
            return subject == change.edit.proposal.edit.policy
        case DpusNamed(rows):
            return subject in rows
        case StageReleased(row) | ChargedRelease(row) | StagingUpdated(row) | StagingUndone(row) | StagingFinished(row):
            return bool(subject == row.policy)
    return False


def _names_subject(subject: str, changes: Iterable[Any]) -> Iterable[bool]:
    for change in changes:
        yield change.name == subject
        yield any(row is not None and row.zone == subject for row in (change.before, change.after))


def _is_about(subject: str, item: DecisionItem) -> bool:
    return item.subject == subject or subject in (item.detail.get("zone"), item.detail.get("clique"))

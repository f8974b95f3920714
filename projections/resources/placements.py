"""The zones of wanted DPUs: which zone has each DPU. A DPU is never in two zones.

A driver proposes the zone of a DPU that has none, and the end of a placement when the DPU is wanted elsewhere or no
more. A placement that ends stays until its zone reports that the DPU is gone, and that it knew of the end: then no
record can register the DPU there again. Only after that the DPU can be placed in another zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, normalize, refusal, refused
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.item_outcomes import merged
from projections.resources.items import Seen, placed_items
from projections.resources.state import MAX_OBJECTS, Placement, ResourcesChange, ResourcesState
from schemas.events import DpusPlaced, ResourcesObserved


def place(state: ResourcesState, event: DpusPlaced, at: RecordMetadata) -> Decision:
    """Decide on proposed zones of DPUs; an empty one ends the placement."""
    items = placed_items(event)
    if isinstance(items, str):
        return refusal(items)
    faults = (check_zone(f"zones[{number}]", zone) for number, (_, zone) in enumerate(items) if zone)
    if fault := next(filter(None, faults), None):
        return refusal(fault)
    rows: dict[str, Placement | None] = {}
    outcomes = []
    for key, zone in items:
        result = _decided(state, key, zone, len(rows), at)
        if isinstance(result, Placement):
            rows[key] = result
        outcomes.append(DONE if isinstance(result, Placement) else result)
    outcome = outcomes[0] if len(outcomes) == 1 else merged([key for key, _ in items], outcomes)
    return normalize(Decision(ResourcesChange(placements=rows) if rows else None, outcome))


def released(state: ResourcesState, event: ResourcesObserved, items: Iterable[Seen]) -> Mapping[str, Placement | None]:
    """The placements that end because their zone reports the DPU as gone, after it knew of the end."""
    if event.cause_partition < 0:
        return {}
    found: dict[str, Placement | None] = {}
    for item in items:
        row = state.placements.rows.get(item.at.key)
        if row is not None and not item.observation and 0 <= row.ending < event.seen_offset:
            found[item.at.key] = None
    return found


def _decided(state: ResourcesState, key: str, zone: str, added: int, at: RecordMetadata) -> Placement | Outcome:
    known = state.placements.rows.get(key)
    if known is None:
        if not zone:
            return UNCHANGED
        if len(state.placements.rows) + added >= MAX_OBJECTS:
            reason = f"names: {quoted(key)} would be more than the {MAX_OBJECTS} placed DPUs allowed"
            return refused(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_OBJECTS))
        return Placement(zone, at.offset, since_ms=at.time_ms)
    if not zone:
        return replace(known, ending=at.offset) if known.ending < 0 else UNCHANGED
    if zone == known.zone:
        return replace(known, ending=-1) if known.ending >= 0 else UNCHANGED
    reason = f"zones: {quoted(key)} is in zone {known.zone!r}, and moves only after it is deleted there"
    return refused(Fault(reason, Reason.DPU_IN_OTHER_ZONE, dpu=key, zone=known.zone))

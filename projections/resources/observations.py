"""Observations of the real things behind objects: what a fold decides about them.

Observers state only changes, so an observation equal to the last one changes nothing; neither does one of an older
version of its object, as the watch of a replica may lag behind. A report about DPUs of a zones partition is accepted
only if it begins where the last accepted report ended. Therefore the report of a replica that lags behind never
replaces a newer one. A report may need several records: those after the first begin and end at the same offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, normalize, refusal, refused
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.item_outcomes import merged
from projections.resources.items import Seen, observed_items
from projections.resources.placements import released
from projections.resources.state import Mark, Observed, ResourcesChange, ResourcesState
from schemas.events import ResourcesObserved

MAX_OBSERVED = 400_000
"""Maximum number of observations of one partition: of its objects, and of as many that others own."""


def observe(state: ResourcesState, event: ResourcesObserved, at: RecordMetadata) -> Decision:
    """Decide on a record of observations."""
    items = observed_items(event)
    if isinstance(items, str):
        return refusal(items)
    marks = {}
    if event.cause_partition >= 0:
        mark = state.observed_before(event.cause_partition)
        if event.from_offset != mark or event.to_offset < mark:
            reason = f"from_offset: {event.from_offset} to {event.to_offset} must begin at {mark}, where the last"
            return refusal(Fault(f"{reason} report ended", Reason.OUT_OF_ORDER, mark=mark))
        if event.seen_offset > at.offset:
            reason = f"seen_offset: {event.seen_offset} is after {at.offset}, this record"
            return refusal(Fault(reason, Reason.OUT_OF_ORDER))
        if event.to_offset > mark:
            marks = {str(event.cause_partition): Mark(event.to_offset)}
    decisions = [*_decide(state, items, event.envelope.actor, at)]
    rows = {key: row for key, row, outcome in decisions if outcome.code == "done"}
    outcomes = [outcome for _, _, outcome in decisions]
    outcome = outcomes[0] if len(outcomes) == 1 else merged([item.at.key for item in items], outcomes)
    placements = released(state, event, items)
    if not rows and not marks and not placements:
        return normalize(Decision(None, outcome))
    change = ResourcesChange(observed=rows, marks=marks, placements=placements)
    return normalize(Decision(change, outcome))


def _decide(
    state: ResourcesState, items: Sequence[Seen], actor: str, at: RecordMetadata
) -> Iterator[tuple[str, Observed | None, Outcome]]:
    room = MAX_OBSERVED - len(state.observed.rows)
    for item in items:
        key, known = item.at.key, state.observed.rows.get(item.at.key)
        if known is not None and 0 < item.version < known.version:
            yield (
                key,
                None,
                Outcome("unchanged", f"resource_versions: a newer state of {quoted(item.at.name)} is known"),
            )
        elif not item.observation:
            is_known = known is not None and item.uid in ("", known.uid)
            yield key, None, DONE if is_known else UNCHANGED
        elif known is not None and _is_same(item, known):
            yield key, None, UNCHANGED
        elif known is None and room <= 0:
            reason = f"names: {quoted(item.at.name)} would be more than the {MAX_OBSERVED} observations allowed"
            yield key, None, refused(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_OBSERVED))
        else:
            room -= known is None
            yield key, Observed(item.uid, item.observation, actor, at.time_ms, at.offset, item.version), DONE


def _is_same(item: Seen, known: Observed) -> bool:
    """Whether an observation changes nothing. One without a version changes a known version to none: the cluster was
    restored from a backup."""
    return (known.uid, known.observation) == (item.uid, item.observation) and (item.version > 0 or not known.version)

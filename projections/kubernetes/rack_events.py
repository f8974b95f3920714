"""The Events about the object of a zone: DPUs that need an operator, changes that wait for approval, records without
effect, and nodes that stay although their source lacks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eventstore.log import Partition
from projections.fleet.withdrawals.budgets import Hold
from projections.kubernetes.object_events import ObjectEvent, Regarding
from projections.kubernetes.object_names import hold_name
from projections.kubernetes.rack_status import stuck_because, worst_stuck
from projections.kubernetes.status_body import shortened
from projections.kubernetes.zone_notices import ZoneNotice
from projections.zones.state import ZonesState
from schemas.resources.dpu_rack import DPU_RACK

MAX_STUCK = 20
"""Maximum number of DPUs of a zone with an Event: those that have needed an operator longest."""
MAX_HOLDS = 5
"""Maximum number of holds of a zone with an Event, the oldest ones."""
_MAX_NAME = 253


class RackFacts(NamedTuple):
    """The facts about a zone that people must know. `partition` is the zone's partition, with `quarantined` records.
    `holds` are the holds of the zone's nodes, labels and policies, the oldest first."""

    zone: str
    zones: ZonesState
    partition: Partition
    quarantined: int
    holds: Sequence[Hold]
    notice: ZoneNotice | None


def rack_events(name: str, uid: str, facts: RackFacts) -> Iterator[ObjectEvent]:
    """The Events about the object of a zone that its present state calls for."""
    about = Regarding(DPU_RACK.api_version, DPU_RACK.name, name, uid)
    for dpu in worst_stuck(facts.zones, facts.zone, MAX_STUCK):
        message = f"DPU {shortened(dpu, _MAX_NAME)} needs an operator: {stuck_because(facts.zones.dpus.rows[dpu])}"
        yield ObjectEvent(about, "DPUNeedsOperator", message, code=dpu)
    for hold in facts.holds[:MAX_HOLDS]:
        change = f"{hold_name(hold.id)}: a change of {hold.subject} exceeds the budget {hold.kind}"
        message = f"{change}, and waits until two people approve it, or one rejects it"
        yield ObjectEvent(about, "WaitsForApproval", message, code=str(hold.id))
    if facts.quarantined:
        records = f"{facts.quarantined} record{'s' if facts.quarantined > 1 else ''} of {facts.partition}"
        message = f"{records}, the partition of this zone, cannot be decoded and had no effect"
        yield ObjectEvent(about, "RecordsQuarantined", message)
    if facts.notice is not None:
        yield ObjectEvent(about, facts.notice.reason, facts.notice.message)

"""A simulated next version of the plane: changed rules of zones, with another layout of their state.

`python -m tests.support.next_build ...` is `dpuplane ...` of that version.

Its zone fold refuses new nodes whose name begins with `x`. It has no table `zones` for limits; the table `places` with
the same rows replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deploy.composition import topics
from eventstore.folding.fold import Decision, RecordMetadata, refusal
from eventstore.folding.state_table import StateTable
from eventstore.log import ZONES, Partition
from eventstore.topics import TopicTable
from projections.zones.fold import ZonesFold2
from projections.zones.rows import Zone
from projections.zones.state import ZonesState
from schemas.events import Event, NodesJoined


class LaterZoneState(ZonesState):
    """Zone state with its rows of zones in another table."""

    def __init__(self) -> None:
        super().__init__()
        self.zone_rows = StateTable("places", Zone)


class LaterZoneFold:
    """Fold version 3 of zones. It does not fold runs, so each record meets the changed rule."""

    topic = ZonesFold2.topic
    version = 3
    accepts = ZonesFold2.accepts

    def __init__(self) -> None:
        self._before = ZonesFold2()

    def initial_state(self, partition: Partition) -> LaterZoneState:
        return LaterZoneState()

    def migrate(self, state: ZonesState, at: RecordMetadata) -> LaterZoneState:
        later = LaterZoneState()
        for name in (
            "nodes",
            "tombstones",
            "snapshots",
            "dpus",
            "wanted",
            "resources_marks",
            "networks",
            "network_texts",
            "marks",
            "causes",
            "join_actors",
        ):
            setattr(later, name, getattr(state, name))
        for zone, row in state.zone_rows.rows.items():
            later.zone_rows.put(zone, Zone(ordinals=row.ordinals))
        later.rederive()
        return later

    def decide(self, state: LaterZoneState, event: Event, at: RecordMetadata) -> Decision:
        if isinstance(event, NodesJoined) and (taken := [name for name in event.names if name.startswith("x")]):
            return refusal(f"names: {taken[0]!r} must not begin with x")
        return self._before.decide(state, event, at)

    def evolve(self, state: LaterZoneState, change: Any, at: RecordMetadata) -> None:
        self._before.evolve(state, change, at)


if __name__ == "__main__":
    topics.TOPICS = TopicTable(
        replace(spec, folds=(*spec.folds, lambda _: LaterZoneFold())) if spec.name == ZONES else spec
        for spec in topics.TOPICS
    )
    from deploy.cli import main  # after the change: every module takes the table when it is imported

    main()

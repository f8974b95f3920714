"""The zone of what a command names without it.

A zone is the key of the record, so it must be known before there is one. A repeated command may find that its first
copy has already taken the node (or the DPU) away: then the zone is the one for which the command is the very record
that is remembered under its id. That is asked first, for they may be in another zone by now.
"""

from __future__ import annotations

from collections.abc import Callable

from commands.queries.reader import Reader
from commands.requests.shapes import Unplaced
from eventstore.avro.codec import encode
from eventstore.folding.hashes import content_of
from eventstore.log import ZONES
from eventstore.replicas.replica import Replica
from projections.names import shown
from projections.views.nodes import zone_of_node
from projections.views.zones import is_known
from projections.zones.dpu_views import zones_of_dpu
from schemas.events import Event, NodesLeft

EventOf = Callable[[str], Event]
"""The record that a command would be in a zone."""


class Lookup:
    """Finds zones in what this replica has folded."""

    def __init__(self, replica: Replica, reader: Reader) -> None:
        self._replica = replica
        self._reader = reader

    def zone_of_leave(self, event_of: Callable[[str], NodesLeft]) -> str:
        """The one zone that the nodes are in, or were in when this very command was decided. Raises Unplaced."""
        if (remembered := self._remembered(event_of)) is not None:
            return remembered
        names = event_of("").names
        found: dict[str, str] = {}
        for name in names:
            zone = zone_of_node(name, self._reader.all_zones())
            if zone is not None:
                found.setdefault(zone, name)
        if len(found) > 1:
            (one, first), (other, second) = list(found.items())[:2]
            raise Unplaced(
                f"names: {shown(first)} is in zone {shown(one)} and {shown(second)} in {shown(other)};"
                " a request has one zone"
            )
        if not found:
            raise Unplaced(f"names: {shown(names[0]) if names else ''} is in no zone")
        return next(iter(found))

    def check_zone_of_leave(self, event: NodesLeft) -> None:
        """Raises Unplaced if a node is in another zone than the one it is to leave, or that zone is not known.

        Who is in no zone at all may have left this one before, so the fold finds nothing left to do. A repeat of what
        was decided already is the fold's too, wherever the nodes have gone since.
        """
        if self._replica.outcome(event.envelope.command_id) is not None:
            return
        here = self._reader.zones(self._reader.number_of(event.zone))
        if not is_known(event.zone, here, self._reader.fleet):
            raise Unplaced(f"zone: {shown(event.zone)} is not known; a zone exists from its first node or DPU on")
        for name in event.names:
            node = here.nodes.rows.get(name)
            if node is None or node.zone != event.zone:
                zone = zone_of_node(name, self._reader.all_zones())
                if zone is not None:
                    raise Unplaced(f"names: {shown(name)} is in zone {shown(zone)}, and not in {shown(event.zone)}")

    def zone_of_lifecycle(self, dpu: str, event_of: EventOf) -> str:
        """The one zone that has this DPU, or had it when this very command was decided. Raises Unplaced."""
        if (remembered := self._remembered(event_of)) is not None:
            return remembered
        zones = zones_of_dpu(dpu, self._reader.all_zones())
        if len(zones) > 1:
            raise Unplaced(f"dpu: {shown(dpu)} is in the zones {', '.join(zones)}; name one")
        if not zones:
            raise Unplaced(f"dpu: {shown(dpu)} is in no zone")
        return zones[0]

    def _remembered(self, event_of: EventOf) -> str | None:
        """The zone in which this command, under its id, is the record that was decided."""
        command_id = event_of("").envelope.command_id
        answer = self._replica.outcome(command_id)
        if answer is None or answer.partition.topic != ZONES:
            return None
        entry = self._replica.folded(answer.partition).ledger.entries[command_id]
        zones = self._reader.zones(answer.partition.number).zones()
        return next((zone for zone in zones if content_of(encode(event_of(zone))) == entry.content), None)

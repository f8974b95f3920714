"""Nodes that joined together, as the columns that they came in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from projections.columns import expand, pick, repeated, row_at, slice_column, slice_event, value_at
from projections.zones.rows import Node
from schemas.events import NodesJoined


class Joined(NamedTuple):
    """Nodes that joined together, as the columns they came in; one zone, offset, time or actor may stand for all.

    `actors` stated the nodes, if a record of its own stated each; there are none if one record stated all of them.
    `command_ids` are the commands of these records, if their nodes have uids that do not say them.
    """

    event: NodesJoined
    zones: Sequence[str]
    offsets: Sequence[int]
    append_ms: Sequence[int]
    actors: Sequence[str] = ()
    command_ids: Sequence[str] = ()

    def node(self, place: int) -> Node:
        """The node in this place, from 0."""
        zone, offset = value_at(self.zones, place), value_at(self.offsets, place)
        return Node(zone, *row_at(self.event, place), offset, value_at(self.append_ms, place))

    def nodes(self) -> Iterator[Node]:
        """All of them, in order."""
        return islice(map(Node, *self._columns()), len(self.event.names))

    def get_many(self, places: Sequence[int]) -> Iterator[Node]:
        """The nodes in these places."""
        return islice(map(Node, *(pick(column, places) for column in self._columns())), len(places))

    def between(self, start: int, stop: int) -> Joined:
        """Those in the places from `start` to before `stop`."""
        zones, offsets, append_ms = self.zones, self.offsets, self.append_ms
        return Joined(
            slice_event(self.event, start, stop),
            slice_column(zones, start, stop),
            slice_column(offsets, start, stop),
            slice_column(append_ms, start, stop),
        )

    def _columns(self) -> tuple[Iterable[Any], ...]:
        return repeated(self.zones), *expand(self.event), repeated(self.offsets), repeated(self.append_ms)

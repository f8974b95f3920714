"""Nodes that joined together, as the columns of their record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from projections.columns import expand, repeated
from projections.zones.rows import Node
from schemas.events import NodesJoined


class Joined(NamedTuple):
    """Nodes that joined together, as columns; one zone, offset, time or actor may stand for all.

    `actors` stated the nodes, if each was stated by a record of its own; it is empty if one record stated all of them.
    `command_ids` are the commands of these records, if the uids of their nodes differ from the commands' ids.
    """

    event: NodesJoined
    zones: Sequence[str]
    offsets: Sequence[int]
    append_ms: Sequence[int]
    actors: Sequence[str] = ()
    command_ids: Sequence[str] = ()

    def nodes(self) -> Iterator[Node]:
        """All rows, in order."""
        columns = repeated(self.zones), *expand(self.event), repeated(self.offsets), repeated(self.append_ms)
        return islice(map(Node, *columns), len(self.event.names))

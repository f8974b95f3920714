"""Collects the changes of the tables that can be watched, in all partitions of a replica.

If the position of a watcher precedes the first collected change, the watcher is told that the position has expired, and
lists again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from commands.streams.change_ring import ChangeRing
from eventstore.folding.state_table import StateTable
from eventstore.log import Partition
from eventstore.replicas.folded_log import FoldedLog

CHANGES_MAX = 5_000
"""Maximum number of changed keys per table and partition. A full ring takes half a megabyte, and covers some minutes of
a busy plane."""

TableOf: TypeAlias = Callable[[Any], StateTable[Any]]
"""The watched table in the state of a fold."""


class ChangeFeed:
    """The rings of the watched tables. Use it between awaits only, so that states and positions match."""

    def __init__(self, folds: FoldedLog, most: int = CHANGES_MAX) -> None:
        self._folds = folds
        self._most = most
        self._rings: dict[tuple[Partition, TableOf], tuple[StateTable[Any], ChangeRing]] = {}

    def collect(self, tables: Iterable[tuple[Partition, TableOf]]) -> None:
        """Move the changes of these tables to their rings, which have bounded sizes."""
        for partition, table_of in tables:
            self.ring(partition, table_of)

    def ring(self, partition: Partition, table_of: TableOf) -> ChangeRing:
        """The changes of a table up to the present position of its partition."""
        table, position = table_of(self._folds.state(partition)), self._folds.position(partition)
        watched, ring = self._rings.get((partition, table_of), (None, None))
        changes = table.take_watched()
        if ring is None or watched is not table:  # the state was replaced, for example by an upgrade of the fold
            ring = ChangeRing(position, self._most)
            self._rings[partition, table_of] = (table, ring)
        else:
            ring.add(position, changes)
        return ring

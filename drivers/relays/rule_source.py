"""What a relay needs of the log: the tables of its zones, who their DPUs are, and when any of it changed.

`replica_rules` reads it from the folds that a replica keeps. It is a port of its own so that a relay's logic names
neither partitions nor folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from projections.rules.rule import Delta
from schemas.events import InstallsReported


class CurrentTable(NamedTuple):
    """The table that a zone should have now. `key` is equal for zones that share the list."""

    version: int
    digest: bytes
    key: object
    earliest_ms: int
    prefixes: int


class RuleSource(Protocol):
    """The tables of zones, as far as the log has been read."""

    @property
    def epoch(self) -> int:
        """The generation of the log."""
        ...

    def knows(self, epoch: int, version: int) -> bool:
        """Whether the log holds what a table of this epoch and version was made from: a restored one may not."""
        ...

    async def changed(self) -> bool:
        """Returns when the log was read further: whether tables, or a freeze, may have changed since the last call."""
        ...

    def current(self, zone: str, since: int) -> CurrentTable:
        """What the zone should have now; `earliest_ms` is that of the earliest change after version `since`. Zones that
        share a list share the answer."""
        ...

    def delta(self, zone: str, since: int) -> Delta | None:
        """The way from version `since` to the current one; None if that is not known any more."""
        ...

    def snapshot(self, zone: str) -> Delta: ...

    def is_frozen(self, zone: str) -> bool: ...

    def ordinals_of(self, zone: str, dpus: Sequence[str]) -> list[int | None]:
        """The numbers of these DPUs within the zone, in order; None for one that is not registered there."""
        ...

    def dpu_count(self, zone: str) -> int: ...

    async def report(self, event: InstallsReported) -> None:
        """State what a zone's DPUs have. Raises TransientError if it may not have been written, PermanentError if it
        never will be."""
        ...

"""The relay's port to the log: the tables of its zones, their DPUs, and changes of either.

`replica_rules` implements it with the folds of a replica. The port keeps partitions and folds out of the relay's logic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from projections.rules.rule import Delta
from schemas.events import InstallsReported


class CurrentTable(NamedTuple):
    """The current table of a zone. `key` is equal for zones with the same rule list."""

    version: int
    digest: bytes
    key: object
    earliest_ms: int
    prefixes: int


class RuleSource(Protocol):
    """The tables of zones, as far as the log was read."""

    @property
    def epoch(self) -> int:
        """The generation of the log."""
        ...

    def knows(self, epoch: int, version: int) -> bool:
        """Whether the log has the records from which a table of this epoch and version was computed. A restored log may
        lack them."""
        ...

    async def changed(self) -> bool:
        """Wait until the log was read further. Returns whether tables or freezes may have changed since."""
        ...

    def current(self, zone: str, since: int, stage: int = 0) -> CurrentTable:
        """The current table of a zone's DPUs of a stage; `earliest_ms` is the append time of the earliest change after
        version `since`. Zones with the same rule list share the result.
        """
        ...

    def delta(self, zone: str, since: int, stage: int = 0) -> Delta | None:
        """The delta from version `since` to the current version; None if `since` is too old to be known."""
        ...

    def snapshot(self, zone: str, stage: int = 0) -> Delta: ...

    def cohorts(self, zone: str) -> Mapping[str, int]:
        """The DPUs of a zone that have a released stage of a staged change, each with its stage. All others are in
        stage 0. As long as nothing changes, it is the same object."""
        ...

    def is_frozen(self, zone: str) -> bool: ...

    def ordinals_of(self, zone: str, dpus: Sequence[str]) -> list[int | None]:
        """The ordinals of these DPUs in the zone, in the given order; None for a DPU that is not registered there."""
        ...

    def registrations(self, zone: str) -> object:
        """A value for comparison. It is replaced by a new, different value whenever a DPU of the zone gets or loses its
        ordinal."""
        ...

    def dpu_count(self, zone: str) -> int: ...

    async def report(self, event: InstallsReported) -> None:
        """Append a report. Raises TransientError if its outcome is unknown or a retry may succeed, PermanentError if
        the log refuses it.
        """
        ...

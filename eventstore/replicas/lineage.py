"""The ancestry of a restored log: its parent, the position of the restore, and so on back to the first log.

A restore begins a new generation: the log has an id of its own, and names its parent by a position. The position has
the parent's id, and the offset after the last restored record of each deciding partition. Later records of the parent
are not in this log. A DPU may have seen them: its table is then newer than this log, and must not be taken for an older
version of this log's table.
"""

from __future__ import annotations

from typing import NamedTuple

from eventstore.errors import LogMismatch
from eventstore.log import FLEET_0
from eventstore.position import InvalidPosition, Position, from_token, to_token
from schemas.events import LogCreated


class Lineage(NamedTuple):
    """The logs that this one was restored from, parent first, each with the position up to which its records were
    restored.
    """

    generation: int
    forks: tuple[tuple[int, Position], ...]
    """Generation and position of each ancestor."""

    def knows(self, epoch: int, version: int) -> bool:
        """Whether this log contains all records from which a rule table was made. `epoch` is the generation of the log
        that the table was made from, and `version` is the table's position in fleet. True for version 0 of any epoch.
        """
        if epoch == self.generation or not version:
            return True
        since = [fork.offsets.get(FLEET_0, 0) for generation, fork in self.forks if generation >= epoch]
        return any(generation == epoch for generation, _ in self.forks) and version <= min(since)

    def generation_at(self, position: int) -> int:
        """The generation of the log when fleet had this position."""
        found = self.generation
        for generation, fork in self.forks:
            if position > fork.offsets.get(FLEET_0, 0):
                break
            found = generation
        return found

    def fork_of(self, log_id: str) -> Position | None:
        """The position up to which this log has the records of the ancestor `log_id`; None if no ancestor has this
        id."""
        return next((fork for _, fork in self.forks if fork.log_id == log_id), None)


def lineage_of(origin: LogCreated) -> Lineage:
    """The lineage in the first record of a log. Raises LogMismatch if the text is malformed."""
    forks = []
    try:
        for text in origin.parent.split():
            generation, _, token = text.partition("@")
            forks.append((int(generation), from_token(token, token.partition(":")[0])))
    except (InvalidPosition, ValueError) as error:
        raise LogMismatch(
            f"log: parent {origin.parent[:80]!r} must list GENERATION@POSITION of each restore"
        ) from error
    return Lineage(origin.generation, tuple(forks))


def parent_text(origin: LogCreated, cut: Position) -> str:
    """The `parent` text of a log that is restored from this cut: the cut of its parent first, then its ancestors."""
    return f"{origin.generation}@{to_token(cut)} {origin.parent}".strip()

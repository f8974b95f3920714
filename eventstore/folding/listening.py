"""Whoever wants to hear of each decision of a partition as it is made: what the fold read, changed and answered.

A listener is told by the fold itself, so it cannot hear anything else than what happened; it must take what it is told
and return at once. What it has not brought to its end when a process dies is told again: with each save goes the offset
from which on it still owes something, and after a restart it hears that offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from eventstore.folding.fold import At, Outcome, RunFold
from eventstore.log import Record
from schemas.events import Event


class Ruling(NamedTuple):
    """One decision. `value` is that of the record, undecoded; `version` that of the fold."""

    event: Event
    change: Any
    outcome: Outcome
    at: At
    version: int
    value: bytes


class RunRuling(NamedTuple):
    """The decisions of a run, all of which are done. `first` is where and when the first of its records stands."""

    records: Sequence[Record]
    fold: RunFold
    change: Any
    first: At
    version: int


class Listener(Protocol):
    """Hears the decisions of one partition, in the order of its records."""

    def ruled(self, ruling: Ruling | RunRuling) -> None:
        """This was decided."""
        ...

    def owes_from(self, position: int) -> int:
        """The first offset below `position` whose decision is not dealt with; `position` if none is."""
        ...

    def restored(self, owed_from: int, position: int) -> None:
        """What was decided from `owed_from` up to before `position` was told to a listener before this one."""
        ...

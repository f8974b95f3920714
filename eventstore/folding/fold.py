"""What a fold is: a pure function from the records of one partition to state and outcomes.

`decide` reads only and never raises for anything an event may contain: a refusal is a value. `evolve` is small and
total. Neither does I/O, reads a clock, draws a random number, or walks an unsorted set. Time is
`RecordMetadata.time_ms`, the fold time of the partition (`fold_time`).

What every fold needs alike (command ids seen, expiry, the version gate, LogCreated, quarantine) is done by the replica
around it, so a fold sees each command once and only events of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import structs

from eventstore.folding.state_table import StateTable
from eventstore.log import Partition
from schemas.events import Event

OutcomeCode = Literal["done", "waiting", "held", "unchanged", "refused"]


class ItemOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of one item of a batch, given only where it differs from the outcome of the whole."""

    name: str
    code: OutcomeCode
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What a fold decided of one command.

    `done` means that something changed. `unchanged` means that what was asked is so already, or no longer applies.
    `reason` is one sentence, for `refused` always. `index` is the clique index assigned (or -1), `place` the place in
    line, from 1, of a waiting claim (or 0), `hold` the id of the hold (or -1).
    """

    code: OutcomeCode
    reason: str = ""
    index: int = -1
    queue_position: int = 0
    hold: int = -1
    items: tuple[ItemOutcome, ...] = ()


DONE = Outcome("done")
UNCHANGED = Outcome("unchanged")


def refused(reason: str) -> Outcome:
    """A refusal of a whole command."""
    return Outcome("refused", reason)


CLOCK_CORRECTION_MS = 60_000
"""Append times further behind the fold time than this mean that a clock was put right; less is two brokers' difference,
or a record that overtook another."""


def fold_time(time_ms: int, append_ms: int) -> int:
    """The fold time of a record appended at `append_ms`, where that of the record before it was `time_ms`.

    It is the running maximum of append times until one lies more than a minute behind it: then the clock was ahead
    before, and fold time follows it back. A fold time that waited until the clock had caught up would stand still for
    as long as the clock had been ahead, and with it every window and deadline that is measured in it.
    """
    return append_ms if append_ms > time_ms or append_ms < time_ms - CLOCK_CORRECTION_MS else time_ms


class RecordMetadata(NamedTuple):
    """The metadata of a record: its partition, offset, append time, and fold time (`fold_time`)."""

    partition: Partition
    offset: int
    append_ms: int
    time_ms: int


class Decision(NamedTuple):
    """What `decide` returns: the change to evolve by (None for none), and the outcome to answer with."""

    change: Any
    outcome: Outcome


def unchanged(reason: str) -> Decision:
    """Nothing is left to do: nothing changes, and nothing was wrong with the command."""
    return Decision(None, Outcome("unchanged", reason))


def refusal(reason: str) -> Decision:
    """A whole command is refused: nothing changes."""
    return Decision(None, refused(reason))


def normalize(decision: Decision) -> Decision:
    """The same decision; one that changes nothing says so.

    An outcome with an index keeps its code: a repeated claim asks for the index, and is given it.
    """
    change, outcome = decision
    if change is not None or outcome.code != "done" or outcome.index >= 0:
        return decision
    return Decision(None, UNCHANGED if outcome == DONE else structs.replace(outcome, code="unchanged"))


class FoldState(Protocol):
    """The state of one partition under one fold. Everything that is not in its tables is derived from them."""

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        """All rows that are saved, in a fixed order."""
        ...

    def rederive(self) -> None:
        """Compute what is derived, after the tables were loaded."""
        ...


S = TypeVar("S", bound=FoldState)


class Fold(Protocol[S]):
    """The rules of one topic under one fold version. Stateless: what it knows is in S."""

    @property
    def topic(self) -> str: ...

    @property
    def version(self) -> int:
        """The fold version whose rules these are. Any change of what the fold does raises it."""
        ...

    @property
    def accepts(self) -> frozenset[str]:
        """Names of the event types it takes; anything else in its topic is quarantined."""
        ...

    def initial_state(self, partition: Partition) -> S: ...

    def decide(self, state: S, event: Event, at: RecordMetadata) -> Decision: ...

    def evolve(self, state: S, change: Any, at: RecordMetadata) -> None: ...


@runtime_checkable
class MigratingFold(Protocol):
    """Rules of a later version whose state has another form than that of the version before."""

    def migrate(self, state: Any, at: RecordMetadata) -> Any:
        """Migrate the state of the version before to the form of these rules: change it, or return a new one, as if
        loaded.

        As pure and as total as `evolve`. What it changes for those who follow the state changes at `at`, the record
        that raises the version.
        """
        ...


@runtime_checkable
class TimedFold(Protocol):
    """Rules whose state holds times to come: ends of windows, deadlines."""

    def rewind(self, state: Any, time_ms: int) -> None:
        """The fold time goes back to `time_ms`, as a clock was put right: bring forward what would come too late.

        As pure and as total as `evolve`.
        """
        ...


class Commands(Protocol):
    """A run of commands, read side by side: the ids, all well formed, and the times inside them."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def issued_ms(self) -> Sequence[int]: ...


@runtime_checkable
class RunFold(Protocol):
    """Rules that can also take many plain commands of one type together, to the effect of one by one.

    The fold time of a run's first record stands for all of them: what is decided may not depend on the difference.
    """

    @property
    def run_of(self) -> str:
        """The event type whose runs it takes."""
        ...

    def read_run(self, values: Sequence[bytes]) -> Any | None:
        """The Commands of these record values; None if any of them is not plain."""
        ...

    def decide_run(
        self, state: Any, commands: Any, offsets: Sequence[int], append_ms: Sequence[int], time_ms: int
    ) -> tuple[Any, int] | None:
        """The change that the first of them make, so many of which are done as nothing about them is odd; else None."""
        ...

    def evolve_run(self, state: Any, change: Any) -> None: ...

    def changes_of_run(self, change: Any) -> Iterable[Any]:
        """What `decide` would have given for each of them as its change."""
        ...

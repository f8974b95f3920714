"""The definition of a fold: a pure function from the records of one partition to state and outcomes.

`decide` only reads, and never raises for any content of an event: a refusal is a value. `evolve` is small and total.
Neither does I/O, reads a clock, draws a random number, or iterates over an unsorted set. Time is
`RecordMetadata.time_ms`, the fold time of the partition (`fold_time`).

The replica around a fold does the work that all folds share (used command ids, expiry, the version gate, LogCreated,
quarantine), so a fold sees each command once and only events of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import structs

from eventstore.avro.columns import EventColumns
from eventstore.folding.state_table import StateTable
from eventstore.log import Partition
from eventstore.reasons import as_fault
from schemas.events import Event

OutcomeCode = Literal["done", "waiting", "held", "unchanged", "refused"]


class ItemOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of one item of a batch, given only if it has a result or differs from the outcome of the batch."""

    name: str
    code: OutcomeCode
    reason: str = ""
    reason_code: str = ""
    reason_fields: dict[str, str] = {}
    result: dict[str, int] = {}


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The decision of a fold about one command.

    `done` means that the state changed. `unchanged` means that the state already is as requested, or that the request
    no longer applies. `reason` is one sentence, which a refusal always has. `reason_code` (a `Reason`) and
    `reason_fields` give the same reason to programs; only a refusal has them. `result` has the values that the fold
    gave to the caller, by name; only the fold and the caller know the names.
    """

    code: OutcomeCode
    reason: str = ""
    result: dict[str, int] = {}
    items: tuple[ItemOutcome, ...] = ()
    reason_code: str = ""
    reason_fields: dict[str, str] = {}


DONE = Outcome("done")
UNCHANGED = Outcome("unchanged")


def refused(reason: str, items: tuple[ItemOutcome, ...] = ()) -> Outcome:
    """A refusal of a whole command. `reason` is a Fault, or a plain sentence about an invalid field."""
    fault = as_fault(reason)
    return Outcome("refused", str(fault), items=items, reason_code=str(fault.reason), reason_fields=fault.fields)


def refused_item(name: str, reason: str) -> ItemOutcome:
    """A refusal of one item of a batch, like `refused`."""
    fault = as_fault(reason)
    return ItemOutcome(name, "refused", str(fault), str(fault.reason), fault.fields)


CLOCK_CORRECTION_MS = 60_000
"""If append times step back by more than this, the clock was corrected. A smaller step back is the normal difference
between the clocks of two brokers, or is due to a record that overtook another.
"""


def fold_time(time_ms: int, append_ms: int) -> int:
    """The fold time of a record appended at `append_ms` whose predecessor has the fold time `time_ms`.

    It is the running maximum of append times. When an append time lies more than a minute behind it, the clock had been
    ahead, and fold time goes back to the append time. Without this step back, fold time and all windows and deadlines
    measured in it would stop until the clock had caught up.
    """
    return append_ms if append_ms > time_ms or append_ms < time_ms - CLOCK_CORRECTION_MS else time_ms


class RecordMetadata(NamedTuple):
    """The metadata of a record: its partition, offset, append time, and fold time (`fold_time`)."""

    partition: Partition
    offset: int
    append_ms: int
    time_ms: int


class Decision(NamedTuple):
    """The result of `decide`: the change that `evolve` applies (None if there is none), and the outcome of the
    command."""

    change: Any
    outcome: Outcome


def unchanged(reason: str) -> Decision:
    """A decision that changes nothing, about a valid command."""
    return Decision(None, Outcome("unchanged", str(reason)))


def refusal(reason: str) -> Decision:
    """A decision that refuses the whole command; nothing changes."""
    return Decision(None, refused(reason))


def normalize(decision: Decision) -> Decision:
    """Mark a decision that changes nothing as `unchanged`.

    An outcome stays `done` if it, or one of its items, has a result: the caller of a repeated command gets this result.
    """
    change, outcome = decision
    if change is not None or outcome.code != "done" or outcome.result or any(item.result for item in outcome.items):
        return decision
    return Decision(None, UNCHANGED if outcome == DONE else structs.replace(outcome, code="unchanged"))


class FoldState(Protocol):
    """The state of one partition under one fold. Everything outside its tables is derived from them."""

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        """All saved tables, in a fixed order."""
        ...

    def rederive(self) -> None:
        """Compute the derived state, after the tables were loaded."""
        ...


S = TypeVar("S", bound=FoldState)


class Fold(Protocol[S]):
    """The rules of one topic under one fold version. Stateless: all state is in S."""

    @property
    def topic(self) -> str: ...

    @property
    def version(self) -> int:
        """The fold version of these rules. Any change of the rules raises it."""
        ...

    @property
    def accepts(self) -> frozenset[str]:
        """Names of the accepted event types, each with the newest accepted version of its schema, such as `Name.v2`; a
        bare name accepts the first one. Other events in the topic are quarantined."""
        ...

    def initial_state(self, partition: Partition) -> S: ...

    def decide(self, state: S, event: Event, at: RecordMetadata) -> Decision: ...

    def evolve(self, state: S, change: Any, at: RecordMetadata) -> None: ...


def accepted_events(folds: Iterable[Fold[Any]]) -> frozenset[str]:
    """The names of the event types that some fold accepts, without the versions of their schemas."""
    return frozenset(name.partition(".")[0] for fold in folds for name in fold.accepts)


def folds_by_version(folds: Iterable[Fold[Any]]) -> dict[str, dict[int, Fold[Any]]]:
    """These folds by topic and fold version."""
    by_topic: dict[str, dict[int, Fold[Any]]] = {}
    for fold in folds:
        by_topic.setdefault(fold.topic, {})[fold.version] = fold
    return by_topic


@runtime_checkable
class MigratingFold(Protocol):
    """A fold version that stores its state in another form than the version before it, and migrates the older state."""

    def migrate(self, state: Any, at: RecordMetadata) -> Any:
        """Migrate the state of the previous version to the form of this version. Either change this state and return
        it, or return a new state. The tables of a new state are saved in full, so their rows need not be marked as
        changed.

        As pure and as total as `evolve`. `at` is the record that raises the version. A change that watchers of the
        state see gets the offset of that record.
        """
        ...


@runtime_checkable
class TimedFold(Protocol):
    """A fold whose state contains times in the future: ends of windows, deadlines."""

    def rewind(self, state: Any, time_ms: int) -> None:
        """Correct the state for a clock that was fast and has been set back to `time_ms`: bring forward the times that
        would now come too late.

        As pure and as total as `evolve`.
        """
        ...


@runtime_checkable
class RunFold(Protocol):
    """A fold that can decide consecutive commands of one type together, with the same effect as one by one.

    `evolve` applies the change of a run like the change of one record. All records of a run are decided at the fold
    time of its first record, although the others may have later fold times. No decision may depend on the difference.
    """

    @property
    def run_of(self) -> str:
        """The event type of its runs."""
        ...

    def decide_run(
        self, state: Any, run: EventColumns, offsets: Sequence[int], append_ms: Sequence[int], time_ms: int
    ) -> tuple[Any, int] | None:
        """The change by the leading commands that are done in full, and the number of these commands; None if the first
        command is not done in full."""
        ...

    def changes_of_run(self, change: Any) -> Iterable[Any]:
        """The change that `decide` would have returned for each command of the run."""
        ...

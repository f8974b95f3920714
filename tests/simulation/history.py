"""What was seen from outside while a plane ran, in a form that any lane can write: simulated, or real processes.

A history is what clients asked and were told, what replicas saved and stated, what devices had and were told to do,
what went wrong meanwhile. With the records of the log it is all that `checkers.judge_history` looks at. Times are
seconds on one monotonic clock of the recorder. `write` and `read` keep it as JSON lines.

`note` beside that is a log for people, and for comparing two runs of one seed: one line of text per happening.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from xxhash import xxh3_128

from eventstore.log import Partition
from eventstore.replicas.replica import Answer
from projections.rules.rule import Rule, SetStep


class _HistoryEntry(msgspec.Struct, frozen=True, tag=True):
    """Anything in a history; the name of its class tells them apart in a file."""


class Invoked(_HistoryEntry, frozen=True):
    """A client sent a command: once for each try. What comes of a try is a Told, a NotTaken, or nobody knows."""

    at_s: float
    client: str
    command_id: str
    partition: Partition


class AttemptFailed(_HistoryEntry, frozen=True):
    """A client was told that this try certainly left nothing in the log."""

    at_s: float
    command_id: str


class Answered(_HistoryEntry, frozen=True):
    """A definite answer that a client got from a process."""

    at_s: float
    client: str
    process: str
    command_id: str
    answer: Answer


class QueryAnswered(_HistoryEntry, frozen=True):
    """A query of a partition that asked for at least position `least`, and was answered as of `position`; one of fleet
    that asked for all that fleet knows of that, as of `fleet`."""

    began_s: float
    at_s: float
    session: str
    process: str
    partition: Partition
    least: int
    position: int
    fleet: int = -1


class StateSaved(_HistoryEntry, frozen=True):
    """Digests that a process saved of a partition at a position: of its rows, and of the records before it."""

    process: str
    partition: Partition
    position: int
    digest: bytes
    running: bytes


class TableInstalled(_HistoryEntry, frozen=True):
    """A device came to have a table: its boot, and what it has then, by another way than the plane's own reports."""

    at_s: float
    zone: str
    device: str
    boot: int
    epoch: int
    version: int
    digest: bytes


class FinalTable(_HistoryEntry, frozen=True):
    """What a device has once everything rests: the version that it says, and what is really there, read past the
    plane. Rules with their prefixes, packed as in a frame; none at all if only the digest can be read."""

    zone: str
    device: str
    version: int
    digest: bytes
    rules: tuple[tuple[Rule, bytes, bytes], ...] | None = None


class FrameStarted(_HistoryEntry, frozen=True):
    """A device that had a table began to follow these steps to the next one."""

    at_s: float
    zone: str
    device: str
    before: tuple[tuple[Rule, bytes, bytes], ...]
    steps: tuple[SetStep, ...]


class FinalPosition(_HistoryEntry, frozen=True):
    """How a replica stands with a partition once everything rests."""

    process: str
    partition: Partition
    position: int
    running: bytes
    halted: str


class BmcCalled(_HistoryEntry, frozen=True):
    """A BMC was told to begin an action, by the attempt of this number. In the order in which it was told."""

    device: str
    attempt: int
    action: str


class Sample(_HistoryEntry, frozen=True):
    """How much of something bounded a process had: `what` is one of `checkers.BOUNDS`."""

    at_s: float
    process: str
    what: str
    value: float


class Alarm(_HistoryEntry, frozen=True):
    """A condition that the plane raised, or ended, about a partition, zone or device."""

    at_s: float
    process: str
    about: str
    raised: bool


class FaultInjected(_HistoryEntry, frozen=True):
    """Something went wrong from then to then, because somebody made it: a kind, and whom it hit."""

    kind: str
    target: str
    from_s: float
    to_s: float


class ProcessLived(_HistoryEntry, frozen=True):
    """A process was up. `to_s` is when it died."""

    process: str
    roles: tuple[str, ...]
    from_s: float
    to_s: float


HistoryEntry: TypeAlias = (
    Invoked
    | AttemptFailed
    | Answered
    | QueryAnswered
    | StateSaved
    | TableInstalled
    | FinalTable
    | FrameStarted
    | FinalPosition
    | BmcCalled
    | Sample
    | Alarm
    | FaultInjected
    | ProcessLived
)
H = TypeVar("H", bound=_HistoryEntry)

_DECODER = msgspec.json.Decoder(HistoryEntry)


class History:
    """The record of one run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._happened: dict[type[Any], list[Any]] = {}

    def add(self, happening: HistoryEntry) -> None:
        """In the order of time."""
        self._happened.setdefault(type(happening), []).append(happening)

    def of(self, kind: type[H]) -> list[H]:
        """All of a kind, in the order in which they were added."""
        return self._happened.get(kind, [])

    @contextmanager
    def striking(self, clock: Callable[[], float], kind: str, target: str, *details: object) -> Iterator[None]:
        """Something goes wrong meanwhile. It is counted by its kind."""
        from_s = clock()
        self.note(from_s, kind, target, *details)
        try:
            yield
        finally:
            self.add(FaultInjected(kind, target, from_s, clock()))

    def copy(self) -> History:
        """One that can be added to, without lines."""
        copied = History()
        copied._happened = {kind: list(found) for kind, found in self._happened.items()}
        return copied

    def note(self, at_s: float, what: str, *details: object) -> None:
        """One line; `what` is counted."""
        self.counts[what] += 1
        self.lines.append(f"{at_s:.6f} {what} " + " ".join(map(str, details)))

    def digest(self) -> str:
        """A digest of all lines."""
        return xxh3_128("\n".join(self.lines).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Everything but the lines, one happening per line."""
        encode = msgspec.json.Encoder().encode
        with path.open("wb") as file:
            for happened in self._happened.values():
                file.writelines(encode(happening) + b"\n" for happening in happened)


def read(*paths: Path) -> History:
    """One history of what several recorders wrote; each kind in the order of time, where it has one."""
    history, found = History(), []
    for path in paths:
        with path.open("rb") as file:
            found += [_DECODER.decode(line) for line in file]
    for happening in sorted(found, key=lambda happening: getattr(happening, "at_s", 0.0)):
        history.add(happening)
    return history

"""An external observation of a running plane, in a form that any lane can write: simulated, or real processes.

A history has the commands and answers of clients, the saves and beacons of replicas, the tables and calls of devices,
and the injected faults. Together with the records of the log it is the whole input of `checkers.judge_history`. Times
are seconds on one monotonic clock of the recorder. `write` and `read` store it as JSON lines.

`note` also writes a log for people, and for comparing two runs of one seed: one line of text per event.
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
    """Base of all entries; the class name is the tag in a file."""


class Invoked(_HistoryEntry, frozen=True):
    """A client sent a command: one entry per attempt. An attempt ends in Answered or AttemptFailed, or with an unknown
    outcome.
    """

    at_s: float
    client: str
    command_id: str
    partition: Partition


class AttemptFailed(_HistoryEntry, frozen=True):
    """A client learned that this attempt certainly left no record in the log."""

    at_s: float
    command_id: str


class Answered(_HistoryEntry, frozen=True):
    """A definite answer that a client received from a process."""

    at_s: float
    client: str
    process: str
    command_id: str
    answer: Answer


class QueryAnswered(_HistoryEntry, frozen=True):
    """A query of a partition with the minimum position `least`, answered as of `position`. A query of fleet for the
    changes up to `least` was answered as of `fleet`.
    """

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
    """A device installed a table: its boot and the table, observed independently of the plane's reports."""

    at_s: float
    zone: str
    device: str
    boot: int
    epoch: int
    version: int
    digest: bytes


class FinalTable(_HistoryEntry, frozen=True):
    """The table of a device at rest: the version that it reports, and the table read from the device itself. Rules have
    their prefixes packed as in a frame; None if only the digest can be read.
    """

    zone: str
    device: str
    version: int
    digest: bytes
    rules: tuple[tuple[Rule, bytes, bytes], ...] | None = None


class FrameStarted(_HistoryEntry, frozen=True):
    """A device with a table began to apply these steps to reach the next one."""

    at_s: float
    zone: str
    device: str
    before: tuple[tuple[Rule, bytes, bytes], ...]
    steps: tuple[SetStep, ...]


class FinalPosition(_HistoryEntry, frozen=True):
    """The position and state of a replica's partition at rest."""

    process: str
    partition: Partition
    position: int
    running: bytes
    halted: str


class BmcCalled(_HistoryEntry, frozen=True):
    """A BMC was told to begin an action, by the attempt of this number. Entries are in the order of the calls."""

    device: str
    attempt: int
    action: str


class Sample(_HistoryEntry, frozen=True):
    """The amount of a bounded quantity in a process: `what` is one of `checkers.BOUNDS`."""

    at_s: float
    process: str
    what: str
    value: float


class Alarm(_HistoryEntry, frozen=True):
    """A condition that the plane raised or ended, about a partition, zone or device."""

    at_s: float
    process: str
    about: str
    raised: bool


class FaultInjected(_HistoryEntry, frozen=True):
    """An injected fault: its kind, its victim, its start and its end."""

    kind: str
    target: str
    from_s: float
    to_s: float


class ProcessLived(_HistoryEntry, frozen=True):
    """A process was up. `to_s` is the time of its death."""

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
        """Add an entry in time order."""
        self._happened.setdefault(type(happening), []).append(happening)

    def of(self, kind: type[H]) -> list[H]:
        """All entries of a kind, in the order in which they were added."""
        return self._happened.get(kind, [])

    @contextmanager
    def striking(self, clock: Callable[[], float], kind: str, target: str, *details: object) -> Iterator[None]:
        """A fault is in effect during the context. It is counted by its kind."""
        from_s = clock()
        self.note(from_s, kind, target, *details)
        try:
            yield
        finally:
            self.add(FaultInjected(kind, target, from_s, clock()))

    def copy(self) -> History:
        """A copy that can be extended, without lines."""
        copied = History()
        copied._happened = {kind: list(found) for kind, found in self._happened.items()}
        return copied

    def note(self, at_s: float, what: str, *details: object) -> None:
        """Write one line; `what` is counted."""
        self.counts[what] += 1
        self.lines.append(f"{at_s:.6f} {what} " + " ".join(map(str, details)))

    def digest(self) -> str:
        """The digest of all lines."""
        return xxh3_128("\n".join(self.lines).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write all entries, one per line, without the lines for people."""
        encode = msgspec.json.Encoder().encode
        with path.open("wb") as file:
            for happened in self._happened.values():
                file.writelines(encode(happening) + b"\n" for happening in happened)


def read(*paths: Path) -> History:
    """Merge the files of several recorders into one history; entries that have a time are sorted by it."""
    history, found = History(), []
    for path in paths:
        with path.open("rb") as file:
            found += [_DECODER.decode(line) for line in file]
    for happening in sorted(found, key=lambda happening: getattr(happening, "at_s", 0.0)):
        history.add(happening)
    return history

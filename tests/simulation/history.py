"""The recorded history of a run, as an outside observer sees the plane. Simulations and real processes record the same
entries.

A history has the commands and answers of clients, the saved states of replicas, the tables and calls of devices, and
the injected faults. Together with the records of the log it is the whole input of `checkers.judge_history`. Times are
seconds on one monotonic clock of the recorder. `write` and `read` store a history as JSON lines. `note` adds a line of
text to a readable log, by which two runs of one seed are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from xxhash import xxh3_128

from eventstore.log import Partition
from eventstore.replicas.replica import Answer
from projections.rules.rule import Rule, SetStep


class _HistoryEntry(msgspec.Struct, frozen=True, tag=True):
    """The base of all entries. The class name is the tag in a file."""


class Invoked(_HistoryEntry, frozen=True):
    """A client sent a command: one entry per attempt. An attempt ends in Answered or AttemptFailed, or with an unknown
    outcome.
    """

    at_s: float
    client: str
    command_id: str
    partition: Partition


class AttemptFailed(_HistoryEntry, frozen=True):
    """A client learned that this attempt left no record in the log."""

    at_s: float
    command_id: str


class Answered(_HistoryEntry, frozen=True):
    """A client received a definite answer from a process."""

    at_s: float
    client: str
    process: str
    command_id: str
    answer: Answer


class QueryAnswered(_HistoryEntry, frozen=True):
    """A query with the minimum position `least` of a partition was answered at `position`. A query of fleet and zones
    was also answered at the position `fleet`; otherwise `fleet` is -1.
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
    """A process saved a partition at a position, with the digest of its rows and the running hash of the records before
    it.
    """

    process: str
    partition: Partition
    position: int
    digest: bytes
    running: bytes


class TableInstalled(_HistoryEntry, frozen=True):
    """A device installed a table in this boot, observed independently of the plane's reports."""

    at_s: float
    zone: str
    device: str
    boot: int
    epoch: int
    version: int
    digest: bytes


class FinalTable(_HistoryEntry, frozen=True):
    """The table of a device at rest: the version that the device reports, and the rules that it holds. Prefixes are
    packed as in a frame. `rules` is None if only the digest can be read.
    """

    zone: str
    device: str
    version: int
    digest: bytes
    rules: tuple[tuple[Rule, bytes, bytes], ...] | None = None


class NetworkInstalled(_HistoryEntry, frozen=True):
    """An agent made its device hold a network document, and saved the document. `boot` is the number of its
    installation, which erases what was saved before.
    """

    at_s: float
    zone: str
    device: str
    boot: int
    epoch: int
    version: int
    digest: bytes


class FinalNetwork(_HistoryEntry, frozen=True):
    """The network document of a device at rest: the version that its agent reports, and the digest of what the device
    holds.
    """

    zone: str
    device: str
    version: int
    digest: bytes


class FrameStarted(_HistoryEntry, frozen=True):
    """A device with the table `before` began to apply these steps."""

    at_s: float
    zone: str
    device: str
    before: tuple[tuple[Rule, bytes, bytes], ...]
    steps: tuple[SetStep, ...]


class FinalPosition(_HistoryEntry, frozen=True):
    """The position of a replica's partition at rest."""

    process: str
    partition: Partition
    position: int
    running: bytes
    halted: str


class BmcCalled(_HistoryEntry, frozen=True):
    """A BMC was told to start an action by this attempt. Entries are in the order of the calls.

    `began_ms` is the log time at which the attempt began, 0 if it is not known. A DPU that moves to another zone may
    get lower numbers of attempts there.
    """

    device: str
    attempt: int
    action: str
    began_ms: int = 0


class UpdateCompleted(_HistoryEntry, frozen=True):
    """An update that a BMC was told by this attempt has ended, and the card has its image."""

    device: str
    attempt: int


class FinalBmc(_HistoryEntry, frozen=True):
    """A BMC at rest: the image that its card runs, empty for none, and whether an update is running."""

    device: str
    image: str
    is_busy: bool


class Sample(_HistoryEntry, frozen=True):
    """A sample of a bounded quantity of a process. `what` is a key of `checkers.BOUNDS`."""

    at_s: float
    process: str
    what: str
    value: float


class Alarm(_HistoryEntry, frozen=True):
    """A process raised or ended an alarm about a partition."""

    at_s: float
    process: str
    about: str
    raised: bool


class FaultInjected(_HistoryEntry, frozen=True):
    """A fault was injected into a target during an interval. A fault with `is_outside` affects a source cluster only,
    and so is no reason for a command to fail.
    """

    kind: str
    target: str
    from_s: float
    to_s: float
    is_outside: bool = False


class ProcessUptime(_HistoryEntry, frozen=True):
    """A process was up during an interval. `to_s` is the time at which it ended, `ready_s` the time from which it had
    caught up with the log; None if it never had, or if the time is not known.
    """

    process: str
    roles: tuple[str, ...]
    from_s: float
    to_s: float
    ready_s: float | None = None


class NodeCommitted(_HistoryEntry, frozen=True):
    """An API server committed a Node, or its deletion. `state` is `restored` for a Node that a restore from a backup
    brought back, and `lost` for a Node that it removed. `version` is the resource version after the commit.
    """

    at_s: float
    source: str
    name: str
    uid: str
    created_ms: int
    zone: str
    state: Literal["present", "deleted", "restored", "lost"]
    version: int


class NodesHidden(_HistoryEntry, frozen=True):
    """The lists of an API server lacked these Nodes during an interval, although it had them."""

    from_s: float
    to_s: float
    source: str
    names: frozenset[str]


class StatusCommitted(_HistoryEntry, frozen=True):
    """An API server accepted a status of an object. `before` is the status that it replaced. A write without an effect
    has equal statuses.
    """

    at_s: float
    source: str
    kind: str
    name: str
    uid: str
    before: dict[str, Any]
    status: dict[str, Any]


class SpecCommitted(_HistoryEntry, frozen=True):
    """An API server committed the spec of a RulePolicy, with the user in its annotation of the author."""

    at_s: float
    source: str
    name: str
    uid: str
    spec: dict[str, Any]
    author: str


class CliqueCommitted(_HistoryEntry, frozen=True):
    """An API server committed the object of a clique. `writer` is the sender of the write: the process of an edge with
    its `mode`, or another program. The contents before and after have `rows` by node, `labels` and `owners`; None is no
    object. `place` is the log position in the object's annotation. `live` are the addresses of the daemon pods that
    could claim an index, by node.
    """

    at_s: float
    source: str
    name: str
    uid: str
    writer: str
    mode: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    place: str
    live: dict[str, str]


class CliqueModeSet(_HistoryEntry, frozen=True):
    """Every edge of a source cluster was given this mode, in which it shares cliques with upstream's daemons."""

    at_s: float
    source: str
    mode: str


class ServerRestored(_HistoryEntry, frozen=True):
    """An API server went back from a resource version to an earlier one, with the objects of that version."""

    at_s: float
    source: str
    from_version: int
    to_version: int


class HostRebooted(_HistoryEntry, frozen=True):
    """A host of DPUs was rebooted. `was_drained` means that its workload had made way."""

    at_s: float
    host: str
    was_drained: bool


class DpuNodeCommitted(_HistoryEntry, frozen=True):
    """A change of the Node of a DPU in the cluster of a DPUCluster, which is named by its key."""

    at_s: float
    cluster: str
    name: str
    is_present: bool
    is_ready: bool


class ControlPlaneDeleted(_HistoryEntry, frozen=True):
    """The control plane of a DPUCluster was deleted, as the objects at a position of their partition want it."""

    at_s: float
    cluster: str
    position: int


class FinalControlPlane(_HistoryEntry, frozen=True):
    """The control plane of a DPUCluster at rest."""

    cluster: str
    is_up: bool


class FinalDpuNode(_HistoryEntry, frozen=True):
    """The Node of a DPU at rest."""

    cluster: str
    name: str
    is_ready: bool
    labels: dict[str, str]


class FinalObject(_HistoryEntry, frozen=True):
    """An object of a source cluster at rest."""

    source: str
    kind: str
    name: str
    body: dict[str, Any]


HistoryEntry: TypeAlias = (
    Invoked
    | AttemptFailed
    | Answered
    | QueryAnswered
    | StateSaved
    | TableInstalled
    | FinalTable
    | NetworkInstalled
    | FinalNetwork
    | FrameStarted
    | FinalPosition
    | BmcCalled
    | UpdateCompleted
    | FinalBmc
    | Sample
    | Alarm
    | FaultInjected
    | ProcessUptime
    | NodeCommitted
    | NodesHidden
    | StatusCommitted
    | SpecCommitted
    | CliqueCommitted
    | CliqueModeSet
    | ServerRestored
    | HostRebooted
    | DpuNodeCommitted
    | ControlPlaneDeleted
    | FinalControlPlane
    | FinalDpuNode
    | FinalObject
)
H = TypeVar("H", bound=_HistoryEntry)

_DECODER = msgspec.json.Decoder(HistoryEntry)


class History:
    """The recorded entries of one run, and its readable log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._entries: dict[type[Any], list[Any]] = {}

    def add(self, entry: HistoryEntry) -> None:
        """Add an entry in time order."""
        self._entries.setdefault(type(entry), []).append(entry)

    def of(self, kind: type[H]) -> list[H]:
        """All entries of a kind, in the order in which they were added."""
        return self._entries.get(kind, [])

    @contextmanager
    def injecting(
        self, clock: Callable[[], float], kind: str, target: str, *details: object, is_outside: bool = False
    ) -> Iterator[None]:
        """Record a fault that is in effect during the context, and count it by its kind."""
        from_s = clock()
        self.note(from_s, kind, target, *details)
        try:
            yield
        finally:
            self.add(FaultInjected(kind, target, from_s, clock(), is_outside))

    def copy(self) -> History:
        """A copy that can be extended, without the readable log."""
        copied = History()
        copied._entries = {kind: list(found) for kind, found in self._entries.items()}
        return copied

    def note(self, at_s: float, what: str, *details: object) -> None:
        """Add a line to the readable log, and count `what`."""
        self.counts[what] += 1
        self.lines.append(f"{at_s:.6f} {what} " + " ".join(map(str, details)))

    def digest(self) -> str:
        """The digest of the readable log."""
        return xxh3_128("\n".join(self.lines).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write all entries, one per line, without the readable log."""
        encode = msgspec.json.Encoder().encode
        with path.open("wb") as file:
            for entries in self._entries.values():
                file.writelines(encode(entry) + b"\n" for entry in entries)


def read(*paths: Path) -> History:
    """Merge the files of several recorders into one history, sorted by time. Entries without a time come first."""
    history, found = History(), []
    for path in paths:
        with path.open("rb") as file:
            found += [_DECODER.decode(line) for line in file]
    for entry in sorted(found, key=lambda entry: getattr(entry, "at_s", 0.0)):
        history.add(entry)
    return history

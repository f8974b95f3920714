"""A log that a test writes record by record, with a matching history, as input for checkers.

A plane could have written these records; the fault is in the history, or in one record that the plane should never
write.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from ipaddress import IPv4Address

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.folding.fold import DONE, Outcome
from eventstore.ids import envelope, internal_envelope, uuid7
from eventstore.log import ZONES, Partition, Record
from eventstore.replicas.replica import Answer
from schemas import events as e
from tests.simulation.checkers import Evidence
from tests.simulation.history import Answered, History, Invoked

ZONES_0 = Partition(ZONES, 0)
START_MS = 1_700_000_000_000


class WrittenRun:
    """One partition of each topic. Each record advances the clock by a second."""

    def __init__(self) -> None:
        self.history = History()
        self.records: dict[Partition, list[Record]] = {
            partition: [] for topic in TOPICS.folded for partition in TOPICS.partitions(topic, 1)
        }
        self.now_s = 0.0
        self._rng = random.Random(1)
        self._appended_s: dict[tuple[Partition, int], float] = {}
        created = e.LogCreated(internal_envelope("log", "test", START_MS), uuid7(START_MS, self._rng), 1, 1, "")
        for partition in self.records:
            if partition.topic in TOPICS.deciding:
                self.write(partition, created)

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    def said(self, subject: str = "z", actor: str = "ann") -> e.Envelope:
        """The envelope of a fresh command."""
        return envelope(subject, actor, uuid7(self.now_ms, self._rng))

    def stated(self, subject: str = "z", actor: str = "forwarder/p0") -> e.Envelope:
        """The envelope of a statement of the plane."""
        return internal_envelope(subject, actor, self.now_ms)

    def write(self, partition: Partition, event: e.Event) -> int:
        """Append a record; its offset."""
        return self.append(partition, encode(event))

    def append(self, partition: Partition, value: bytes) -> int:
        """Append a value that may not be an event; its offset."""
        self.now_s += 1.0
        found = self.records.setdefault(partition, [])
        found.append(Record(len(found), self.now_ms, b"", value))
        self._appended_s[partition, found[-1].offset] = self.now_s
        return found[-1].offset

    def join(self, *names: str, zone: str = "z", labels: dict[str, str] | None = None) -> e.NodesJoined:
        """A join of nodes with an address each, not written yet."""
        fours = b"".join(IPv4Address(f"10.0.0.{1 + sum(name.encode()) % 250}").packed for name in names)
        return e.NodesJoined(self.said(zone), zone, list(names), [], [], fours, b"", [labels or {}], [0] * len(names))

    def forward(
        self, event: e.NodesJoined, start: int, end: int, *, states: Sequence[int] = (0,)
    ) -> e.MembershipChanged:
        """A forwarder's record of a join."""
        said = event.envelope
        return e.MembershipChanged(
            self.stated(),
            0,
            start,
            end,
            self.now_ms,
            [event.zone],
            event.names,
            list(states),
            [said.issued_at_ms],
            [said.command_id],
            event.addresses4,
            b"",
            event.label_sets,
            event.label_index,
            [],
            [],
        )

    def ask(self, event: e.Event, partition: Partition = ZONES_0, *, client: str = "c") -> int:
        """Record that a client sent a command, and append it; its offset. No answer is recorded."""
        self.history.add(Invoked(self.now_s, client, event.envelope.command_id, partition))
        return self.write(partition, event)

    def tell(self, event: e.Event, offset: int, outcome: Outcome = DONE, partition: Partition = ZONES_0) -> None:
        """Record the answer that a client received to its command."""
        answer = Answer(outcome, partition, offset)
        self.history.add(Answered(self.now_s + 0.5, "c", "p0", event.envelope.command_id, answer))

    def evidence(self) -> Evidence:
        """The evidence for checkers."""
        return Evidence(self.history, self.records, appended_s=lambda p, o: self._appended_s[p, o], end_s=self.now_s)

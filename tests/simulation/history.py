"""What clients asked and were told, what replicas saved, what devices had: everything that a checker later judges.

One line of text per happening, in the order in which it happened; the same seed writes the same lines.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from xxhash import xxh3_128

from eventstore.log import Partition
from eventstore.replica import Answer
from eventstore.snapshots import Head
from schemas.events import Event


class Told(NamedTuple):
    """A definite answer that a client got."""

    at_s: float
    client: str
    process: str
    event: Event
    partition: Partition
    answer: Answer


class Invoked(NamedTuple):
    """A command as a client sent it first."""

    at_s: float
    client: str
    event: Event
    partition: Partition


class Claimed(NamedTuple):
    """A digest that a replica saved of a partition at a position."""

    process: str
    partition: Partition
    head: Head


class Seen(NamedTuple):
    """A device came to have a table: its boot, and what it has then."""

    at_s: float
    device: str
    boot: int
    epoch: int
    version: int
    digest: bytes


class History:
    """The record of one run."""

    def __init__(self) -> None:
        self.invoked: dict[str, Invoked] = {}
        self.told: list[Told] = []
        self.claims: list[Claimed] = []
        self.seen: list[Seen] = []
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, at_s: float, what: str, *details: object) -> None:
        """One line; `what` is counted."""
        self.counts[what] += 1
        self.lines.append(f"{at_s:.6f} {what} " + " ".join(map(str, details)))

    def digest(self) -> str:
        """A digest of all lines."""
        return xxh3_128("\n".join(self.lines).encode()).hexdigest()

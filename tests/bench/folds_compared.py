"""The same work by the plane and by peers: the speed, and the proof that each ended in the same state."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from eventstore.log import ZONES
from eventstore.replicas.replica import Replica

Row = tuple[str, str, int, Mapping[str, str]]
"""A node in the final state of every peer: name, zone, IPv4 address, labels."""


class Rate(NamedTuple):
    """Joins a second, by the clock and by CPU time, and the final state."""

    per_s: float
    per_cpu_s: float
    nodes: int
    digest: int

    def check(self, other: Rate) -> None:
        """Check that both have the same nodes with the same fields."""
        assert (self.nodes, self.digest) == (other.nodes, other.digest), (self, other)


def rows_of(replica: Replica) -> Iterator[Row]:
    """The nodes that a replica has folded."""
    for partition in replica.partitions(ZONES):
        for name, node in replica.state(partition).nodes.rows.items():
            yield name, node.zone, node.address4, node.labels


class Stopwatch:
    """Runs from its creation."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()
        self.seconds = self.cpu_seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu_began

    def rate(self, joins: int, rows: Iterable[Row]) -> Rate:
        """The rate until the stopwatch was stopped."""
        digests = [_digest(row) for row in rows]
        return Rate(joins / self.seconds, joins / self.cpu_seconds, len(digests), sum(digests))


def _digest(row: Row) -> int:
    """A digest of one node. The sum of digests does not depend on the order; tests/bench/streams/Event.java computes
    the same.
    """
    name, zone, address, labels = row
    text = "".join(f"{key}={value}," for key, value in sorted(labels.items()))
    return zlib.crc32(f"{name}|{zone}|{address}|{text}".encode())

"""Liveness and ranks: every replica appends a beacon to the `replicas` topic twice a second.

A replica is alive if its beacon arrived less than two seconds ago by the monotonic clock of this process; wall clocks
do not matter. A replica judges the others only while it receives its own beacons, for at least two seconds. Otherwise
it treats all of them as alive, and does not take over from replicas that it cannot hear. Ranks spread the work by hash
and need no agreement, since repeating an action is harmless in this log.

Beacons also carry hashes and digests, so replicas detect that they read or folded one log differently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from random import Random
from typing import Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from eventstore.errors import AppendRefused, LogMismatch, LogUnavailable, TransientError
from eventstore.folding.partition import FoldedPartition
from eventstore.log import REPLICAS, EventLog, Partition, Record
from eventstore.replicas.clock_skew import LOG, ClockSkew
from eventstore.replicas.log_follower import Backoff
from eventstore.replicas.replica import Replica
from eventstore.replicas.status import PartitionStatus, SourceStatus
from eventstore.state_store.store import digest_bytes

EVERY_S = 0.5
FRESH_S = 2.0

_PARTITIONS_EVERY = 4
"""One beacon in this many lists all partitions. It is twenty times as long as the others."""

_APPEND_TIMEOUT_S = 2.0
_TOPIC = Partition(REPLICAS, 0)

logger = logging.getLogger(__name__)


class Beacon(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's report about itself. `supports` lists the fold versions whose rules the replica has, by topic.
    `dpus_ahead_of_log` counts the DPUs at the replica's relay whose tables are newer than the log. `now_ms` is the time
    by the replica's clock. `revocations_fault` is the reason why the replica could not load its revocation list.
    `sources` are the replica's edges for Kubernetes clusters.
    """

    replica: str
    roles: list[str]
    addresses: dict[str, str]
    version: str
    supports: dict[str, list[int]]
    partitions: list[PartitionStatus] = []
    dpus_ahead_of_log: int = 0
    now_ms: int = 0
    revocations_fault: str = ""
    sources: list[SourceStatus] = []


class Ranks(Protocol):
    """Ranks of replicas. Rank k acts k x 300 ms after rank 0, and only if the log still shows the need."""

    def rank(self, subject: str, role: str) -> int:
        """The rank of this replica among the living replicas of a role for this subject; rank 0 acts first."""
        ...

    def is_alive(self, replica: str) -> bool:
        """Whether this replica may still be running."""
        ...

    def all_support(self, topic: str, version: int) -> bool:
        """Whether all living replicas that fold a topic have the rules of this fold version. False while it is unknown
        which replicas live."""
        ...


class SingleReplica:
    """Ranks of a plane with a single process."""

    def __init__(self, name: str) -> None:
        self._name = name

    def rank(self, subject: str, role: str) -> int:
        return 0

    def is_alive(self, replica: str) -> bool:
        return replica == self._name

    def all_support(self, topic: str, version: int) -> bool:
        return True


class Beacons:
    """Sends beacons of this replica and receives those of all replicas, while `run` runs. `divergences` counts the
    detected divergences.
    """

    def __init__(
        self,
        log: EventLog,
        replica: Replica,
        *,
        roles: Sequence[str],
        addresses: Mapping[str, str],
        version: str,
        rng: Random,
        dpus_ahead_of_log: Callable[[], int] = lambda: 0,
        revocations_fault: Callable[[], str] = lambda: "",
        sources: Callable[[], Iterable[SourceStatus]] = tuple,
        clocks: ClockSkew | None = None,
    ) -> None:
        self.divergences = 0
        self._clocks = clocks
        self._dpus_ahead_of_log = dpus_ahead_of_log
        self._revocations_fault = revocations_fault
        self._sources = sources
        self._log = log
        self._replica = replica
        self._roles = list(roles)
        self._addresses = dict(addresses)
        self._version = version
        self._rng = rng
        self._heard: dict[str, tuple[float, Beacon]] = {}
        self._hearing_since_s = 0.0

    def rank(self, subject: str, role: str) -> int:
        others = {beacon.replica for beacon in self.alive() if role in beacon.roles} - {self._replica.name}
        mine = _weight(self._replica.name, subject)
        return sum(_weight(other, subject) < mine for other in others)

    def is_alive(self, replica: str) -> bool:
        return replica == self._replica.name or self._is_fresh(replica) or not self._can_judge()

    def all_support(self, topic: str, version: int) -> bool:
        found = self.supports()
        return found is not None and all(version in each.get(topic, (version,)) for each in found.values())

    def alive(self) -> list[Beacon]:
        """The living replicas by name, each with its last list of partitions."""
        return [beacon for name, (_, beacon) in sorted(self._heard.items()) if self._is_fresh(name)]

    def supports(self) -> dict[str, dict[str, list[int]]] | None:
        """The fold versions of every living replica, by its name and topic; None while liveness cannot be judged."""
        return {beacon.replica: beacon.supports for beacon in self.alive()} if self._can_judge() else None

    async def run(self) -> None:
        """Send and receive for ever, across outages."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            tasks.create_task(self._receive())

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due_s, turn, failing = loop.time(), 0, False
        while True:
            value = msgspec.json.encode(self._own_beacon(with_partitions=turn % _PARTITIONS_EVERY == 0))
            try:
                await self._log.append(_TOPIC, self._replica.name.encode(), value, timeout_s=_APPEND_TIMEOUT_S)
                turn, failing = turn + 1, False
            except (TransientError, AppendRefused) as error:
                if isinstance(error, AppendRefused):  # its list of partitions is too long: the next beacon has none
                    turn += 1
                if not failing:
                    logger.warning("beacon not appended, retrying: %s", error)
                failing = True
            due_s = max(due_s + EVERY_S, loop.time())
            await asyncio.sleep(due_s - loop.time())

    def _own_beacon(self, *, with_partitions: bool) -> Beacon:
        status = self._replica.partitions_status() if with_partitions else []
        return Beacon(
            replica=self._replica.name,
            roles=self._roles,
            addresses=self._addresses,
            version=self._version,
            supports=self._replica.supports(),
            dpus_ahead_of_log=self._dpus_ahead_of_log(),
            revocations_fault=self._revocations_fault(),
            sources=list(self._sources()),
            now_ms=self._clocks.now_ms() if self._clocks else 0,
            partitions=[partition._replace(marks=partition.marks[-1:]) for partition in status],
        )

    async def _receive(self) -> None:
        """Read beacons, always from the end of the topic: an old beacon says nothing about liveness now.

        So a position that expired in a long outage is no reason to stop. If the log has been replaced by another one,
        the sending and folding tasks detect it.
        """
        backoff = Backoff(self._rng)
        while True:
            try:
                position = await self._log.end(_TOPIC)
                async with aclosing(self._log.read({_TOPIC: position})) as batches:
                    async for _, records in batches:
                        backoff.reset()
                        for record in records:
                            if record.timestamp_ms > records[-1].timestamp_ms - FRESH_S * 1_000:
                                self._take_in(record)
            except (LogUnavailable, LogMismatch) as error:
                logger.warning("beacons not read, retrying: %s", error)
            await backoff.wait()

    def _take_in(self, record: Record) -> None:
        try:
            beacon = msgspec.json.decode(record.value, type=Beacon)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last two are no DecodeErrors
            logger.warning("beacon ignored: not decodable", extra={"offset": record.offset, "reason": str(error)})
            return
        if self._clocks is not None:
            self._compare_clocks(self._clocks, beacon, record)
        now_s = asyncio.get_running_loop().time()
        heard_s, before = self._heard.get(beacon.replica, (-FRESH_S, None))
        if beacon.replica == self._replica.name and now_s - heard_s >= FRESH_S:
            self._hearing_since_s = now_s
        if beacon.partitions:
            self._compare(beacon)
        elif before is not None:
            beacon = msgspec.structs.replace(beacon, partitions=before.partitions)
        if before is None:  # restarted replicas have new names, and every rank iterates over all entries
            self._heard = {name: heard for name, heard in self._heard.items() if self._is_fresh(name)}
        self._heard[beacon.replica] = (now_s, beacon)

    def _compare_clocks(self, clocks: ClockSkew, beacon: Beacon, record: Record) -> None:
        if beacon.replica == self._replica.name:
            clocks.observe(LOG, record.timestamp_ms)
        elif beacon.now_ms:
            clocks.observe(beacon.replica, beacon.now_ms)

    def _is_fresh(self, replica: str) -> bool:
        heard = self._heard.get(replica)
        return heard is not None and asyncio.get_running_loop().time() - heard[0] < FRESH_S

    def _can_judge(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return self._is_fresh(self._replica.name) and now_s - self._hearing_since_s >= FRESH_S

    def _compare(self, beacon: Beacon) -> None:
        for theirs in beacon.partitions:
            if theirs.partition.topic not in self._log.topics.deciding or not self._replica.is_folded(theirs.partition):
                continue
            if difference := _difference(self._replica.folded(theirs.partition), theirs):
                self.divergences += 1
                about = {"replica": beacon.replica, "partition": theirs.partition, "reason": difference}
                logger.error("replica state diverged from a peer's; run `dpuplane verify` on both", extra=about)


def _difference(mine: FoldedPartition, theirs: PartitionStatus) -> str:
    """How two replicas disagree about a partition; empty if they agree, or have no common position."""
    read = {**dict(mine.marks), mine.position: mine.running}
    for position, running in (*theirs.marks, (theirs.position, theirs.running)):
        if position in read and read[position].hex() != running:
            return f"the records before {position} hash to {read[position].hex()} here and to {running} there"
    if theirs.saved_position == mine.saved_position and theirs.digest != (digest := digest_bytes(mine.digest).hex()):
        return f"the state at {mine.saved_position} has digest {digest} here and {theirs.digest} there"
    return ""


def _weight(replica: str, subject: str) -> tuple[int, str]:
    return xxh3_64_intdigest(f"{replica}\0{subject}".encode()), replica

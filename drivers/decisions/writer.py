"""The decisions topic: every decision, rendered for analysts. No code of ours reads it to decide anything.

Each api process hears what its own fold decides (`Owed`), and the first in rank per partition writes it; the others do
so when it does not appear in the topic in time. A decision's key is where its cause stands and its bytes follow from
the cause, so a copy is the same record. At least once: with each save of a fold goes the offset up to which decisions
are written, and what was missed, by a crash or because the topic was slower than the fold for long, is folded again on
the side (drivers/decisions/missed.py). Folding never waits for any of this.

Records are gathered for a moment and written a few at a time, those of all partitions together: each is one append
more that the log must sync, and what callers wait for comes first. So it rests for many times as long as rendering has
kept the loop, the longer the less is kept: a bulk join of a million nodes spelled at once took a third of its server's
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from random import Random

from drivers.decisions.kept import Kept
from drivers.decisions.missed import Earlier, Missed, nothing_earlier
from drivers.decisions.owed import TAKEN_BYTES, Owed
from drivers.fold_watcher import FoldWatcher
from eventstore.avro.codec import encode
from eventstore.errors import FatalError, LogUnavailable, PlaneError
from eventstore.log import DECISIONS, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.log_follower import Backoff, follow
from eventstore.replicas.replica import Replica
from projections.decisions.decided import DECIDED_TOPICS, decided, key_of

logger = logging.getLogger(__name__)

AT_ONCE = 256
"""Appends under way at most, and they share a sync. A turn waits for a busy loop and for the log: with 64, and a turn
for each partition, decisions of a thousand commands a second were written no faster than they were made."""
GATHER_S = 0.2
SHARE_LEAST = 0.02
SHARE_MOST = 0.1
"""How much of the loop's time goes into rendering: the least while hardly anything is kept, so that a burst is served
first and spelled after it; the most when all is kept that may be, and while something has to be made again."""
SLICE_S = 0.001
"""Work after which it rests. After every decision, a busy loop let it spell one for each of its own turns: fewer than
were made."""
TURN_MS = 10_000
"""Each rank waits so much longer than the one before: than a decision is kept at most loads, or it would be written
twice. Who is gone has no rank after a few beacons."""
APPEND_TIMEOUT_S = 5.0
RETRY_S = 1.0
LOOKED_BACK = 4_096
"""Records at the end of a partition that are looked at, at a start, for what others have written."""
OVERLAP = 2 * AT_ONCE
"""Decisions before the last of those that are written again: of these some may have failed while later ones landed."""
RETENTION_MS = 30 * 86_400_000
"""What is older would expire at once."""


class DecisionWriter:
    """Serves every deciding partition until `run` is cancelled.

    `written` counts the appends that landed for certain, `failures` those that may not have.
    """

    def __init__(
        self,
        replica: Replica,
        owed: Mapping[Partition, Owed],
        ranks: Ranks,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        earlier: Earlier = nothing_earlier,
    ) -> None:
        self.written = 0
        self.failures = 0
        self._replica = replica
        self._log = replica.log
        self._owed = owed
        self._turns = deque(owed)
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._fold_watcher = FoldWatcher(replica, *DECIDED_TOPICS)
        self.missed = Missed(replica, owed, self._fold_watcher, rng=rng, earlier=earlier)

    async def run(self) -> None:
        await self._replica.ready()
        ends = await self._look_back()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fold_watcher.run())
            tasks.create_task(self._write())
            tasks.create_task(self._see(ends))
            tasks.create_task(self.missed.run())

    # -- writing

    async def _write(self) -> None:
        while True:
            if await self._write_some():
                continue
            if not any(owed.waits() for owed in self._owed.values()):
                await self._fold_watcher.changed(*self._owed)
            await asyncio.sleep(GATHER_S)

    async def _write_some(self) -> bool:
        """Write some of what is due, going on with the partition after the last; whether there may be more."""
        due: list[tuple[Owed, list[Kept]]] = []
        left, left_bytes = AT_ONCE, TAKEN_BYTES
        for _ in self._owed:
            partition = self._turns[0]
            self._turns.rotate(-1)
            owed = self._owed[partition]
            if not owed.waits():
                continue
            rank = self._ranks.rank(str(partition), "api")
            taken = owed.take(left, self._now_ms() - rank * TURN_MS if rank else None, left_bytes)
            if taken:
                due.append((owed, taken))
            left -= len(taken)
            left_bytes -= sum(len(decision.value) for decision in taken)
            if left <= 0 or left_bytes <= 0:
                break
        self.missed.make_room()  # whatever was taken: what others have written went, too
        if due:
            await self._write_all(due)
        return left <= 0 or left_bytes <= 0

    async def _write_all(self, due: Sequence[tuple[Owed, Sequence[Kept]]]) -> None:
        oldest_ms = self._now_ms() - RETENTION_MS
        lasting = [(owed, decision) for owed, taken in due for decision in taken if decision.at.append_ms >= oldest_ms]
        decisions = [decision for _, decision in lasting]
        try:
            values = await self._spelled(decisions)
            ends = await asyncio.gather(*map(self._append, decisions, values), return_exceptions=True)
            lost = [place for place, end in zip(lasting, ends, strict=True) if self._is_lost(place[1], end)]
        except BaseException:
            for owed, taken in due:
                owed.put_back(taken)
            raise
        self.written += len(lasting) - len(lost)
        for owed, taken in due:
            owed.put_back([decision for whose, decision in lost if whose is owed])
            owed.done(taken)
        if lost:
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))

    async def _spelled(self, decisions: Sequence[Kept]) -> list[bytes]:
        """The record values of decisions, and a rest whenever that has been some work.

        All of the work is between two looks at the clock: reading what the record says, rendering, encoding.
        """
        clock = asyncio.get_running_loop().time
        began_s, values = clock(), []
        for decision in decisions:
            values.append(value_of(decision))
            if clock() - began_s > SLICE_S or len(values) == len(decisions):
                await asyncio.sleep(rest_s(clock() - began_s, self._fullness()))
                began_s = clock()
        return values

    def _fullness(self) -> float:
        return max(owed.fullness for owed in self._owed.values())

    def _append(self, decision: Kept, value: bytes) -> Awaitable[None]:
        """Past the replica: nobody's call waits for it, so nobody follows it."""
        key = key_of(decision.at).encode()
        return self._log.append(_written_to(decision), key, value, timeout_s=APPEND_TIMEOUT_S)

    def _is_lost(self, decision: Kept, end: BaseException | None) -> bool:
        """Whether an append that ended so may not have landed. Raises what is no failure of the log."""
        if end is None:
            return False
        if isinstance(end, FatalError) or not isinstance(end, PlaneError):
            raise end
        self.failures += 1
        about = {"partition": _written_to(decision), "cause": key_of(decision.at), "reason": str(end)}
        logger.warning("append failed", extra=about)
        return True

    # -- what others wrote

    async def _see(self, ends: Mapping[Partition, int]) -> None:
        """Follow the topic from the ends that it had, so that what another wrote is not written again."""

        async def unchecked() -> None:
            """Nothing is decided by what is read here."""

        async with aclosing(follow(self._log, ends, self._rng, unchecked)) as batches:
            async for _, records in batches:
                for record in records:
                    if (cause := cause_of(record.key)) is not None and cause[0] in self._owed:
                        self._owed[cause[0]].seen(cause[1], self._replica.position(cause[0]))
                await asyncio.sleep(0)

    async def _look_back(self) -> dict[Partition, int]:
        """See up to where decisions were written before us, as far as the topic's last records tell; and its ends."""
        backoff = Backoff(self._rng)
        while True:
            try:
                ends = {partition: await self._log.end(partition) for partition in self._log.partitions(DECISIONS)}
                for partition, end in ends.items():
                    await self._look_at(partition, end)
                return ends
            except LogUnavailable as error:
                logger.warning("decisions topic not read, retrying: %s", error)
            await backoff.wait()

    async def _look_at(self, partition: Partition, end: int) -> None:
        start = max(await self._log.begin(partition), end - LOOKED_BACK)
        offsets: dict[Partition, set[int]] = {}
        if start < end:
            async with aclosing(self._log.read({partition: start})) as batches:
                async for _, records in batches:
                    for record in records:
                        if (cause := cause_of(record.key)) is not None:
                            offsets.setdefault(cause[0], set()).add(cause[1])
                    if records[-1].offset + 1 >= end:
                        break
        for cause_partition, found in offsets.items():
            if cause_partition in self._owed and len(found) > OVERLAP:
                self._owed[cause_partition].known_before(sorted(found)[-OVERLAP])


def rest_s(worked_s: float, fullness: float) -> float:
    """How long to leave the loop to others after so much work, while so much is kept of what may be."""
    share = SHARE_LEAST + (SHARE_MOST - SHARE_LEAST) * fullness
    return worked_s * (1 / share - 1)


def _written_to(decision: Kept) -> Partition:
    return Partition(DECISIONS, decision.at.partition.number)


def value_of(decision: Kept) -> bytes:
    """The value of the record that says it."""
    decided_record = decision.decided_record()
    return encode(
        decided(
            decided_record.event,
            decided_record.change,
            decided_record.outcome,
            decided_record.at,
            decided_record.version,
        )
    )


def cause_of(key: bytes) -> tuple[Partition, int] | None:
    """Where the cause of a decision with this key stands; None if it is no such key."""
    topic, _, rest = key[:64].decode(errors="replace").partition("/")
    number, _, offset = rest.partition("/")
    is_place = number.isascii() and number.isdecimal() and offset.isascii() and offset.isdecimal()
    return (Partition(topic, int(number)), int(offset)) if topic in DECIDED_TOPICS and is_place else None

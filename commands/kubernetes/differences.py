"""Appends to the resources topic what its fold lacks of a cluster, until there is no difference.

The owner marks the keys of objects that changed. A pass compares these objects with the fold and appends records about
those that differ. So a lost append, a second edge of the same source, or a restart costs another comparison and no
more. The edge with rank 0 appends at once; the others wait while the partition moves, and find no difference.

An append of unknown outcome may land minutes later and replace a newer state. Therefore its objects are compared again
once it cannot land any more. All objects are compared again that long after the start, because the former process may
have died during an append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from eventstore.backoff import backoff_ceiling
from eventstore.errors import AppendUnknown, FatalError, PlaneError
from eventstore.folding.fold import Outcome
from eventstore.log import RESOURCES
from eventstore.reasons import CLOCK_REASONS
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import KUBERNETES
from schemas.events import ResourcesApplied, ResourcesDeleted, ResourcesObserved

logger = logging.getLogger(__name__)

LINGER_S = 0.05
"""How long changes linger, so that the objects of one `kubectl apply` share a record."""
RANK_S = 0.3
RANK_S_MAX = 30.0
"""The longest wait of an edge with a later rank while the first one appends."""
SUBMIT_TIMEOUT_S = 10.0
RETRY_S = 1.0
RETRY_S_MAX = 30.0
SLICE = 500
"""Maximum number of comparisons before other tasks of the event loop run."""
LATE_S = 200.0
"""Time after which objects are compared again whose append has an unknown outcome (compare `node_edge.LATE_S`)."""
LATE_CHECK_S = 10.0
REFUSED_RETRY_S = 600.0
"""Time after which refused objects are submitted again, because the reason may no longer apply."""


class Record(NamedTuple):
    """A record about these objects, in the order of its items."""

    event: ResourcesApplied | ResourcesDeleted | ResourcesObserved
    keys: tuple[str, ...]


Plan = Callable[[Sequence[str]], Sequence[Record]]
"""The records that the fold lacks about some keys. It reads the fold, does not wait, and never raises."""


class Differences:
    """Appends the records of a plan for marked keys, while `run` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        source: str,
        plan: Plan,
        all_keys: Callable[[], Iterable[str]],
        *,
        rng: Random,
        on_refused: Callable[[str, str], None],
    ) -> None:
        self.refused: dict[str, str] = {}
        """The reason why the fold refused an object, by key."""
        self.records = 0
        """Number of records that the fold has decided on."""
        self._replica = replica
        self._ranks = ranks
        self._source = source
        self._partition = replica.partition_for(RESOURCES, source)
        self._plan = plan
        self._all_keys = all_keys
        self._rng = rng
        self._on_refused = on_refused
        self._dirty: dict[str, None] = {}
        self._unsure_s: dict[str, float] = {}
        """The time at which an object must be compared again, by key."""
        self._work = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Whether no marked key waits for its comparison."""
        return not self._dirty

    def mark(self, keys: Iterable[str]) -> None:
        """Compare these objects again."""
        for key in keys:
            self._dirty[key] = None
            self.refused.pop(key, None)
        self._work.set()

    async def run(self) -> None:
        """Append differences until cancelled."""
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_refused())
            tasks.create_task(self._repeat_unsure())
            await self._run()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._work.wait()
            self._work.clear()
            await asyncio.sleep(LINGER_S)
            await self._let_others_act()
            is_done = await self._reconcile()
            if not is_done:
                await asyncio.sleep(backoff_ceiling(failures, RETRY_S, RETRY_S_MAX) * self._rng.uniform(0.5, 1.0))
                self._work.set()
            failures = 0 if is_done else failures + 1

    async def _let_others_act(self) -> None:
        rank, waited_s, position = self._ranks.rank(f"{RESOURCES}/{self._source}", KUBERNETES), 0.0, -1
        while rank and waited_s < RANK_S_MAX and position != self._replica.position(self._partition):
            position = self._replica.position(self._partition)
            await asyncio.sleep(RANK_S * rank)
            waited_s += RANK_S * rank

    async def _reconcile(self) -> bool:
        """Append what the fold lacks of the marked objects. Returns whether nothing is left to append."""
        dirty, self._dirty = sorted(self._dirty), {}
        try:
            for start in range(0, len(dirty), SLICE):
                for record in self._plan(dirty[start : start + SLICE]):
                    if not await self._submit(record):
                        self._dirty |= dict.fromkeys(record.keys)
                await asyncio.sleep(0)
        except BaseException:
            self._dirty |= dict.fromkeys(dirty)
            raise
        return not self._dirty

    async def _submit(self, record: Record) -> bool:
        """Submit a record. Returns whether the fold has decided on it."""
        about = {"source": self._source, "event": type(record.event).__name__, "objects": len(record.keys)}
        try:
            answer = await self._replica.submit(
                self._partition, self._source.encode(), record.event, timeout_s=SUBMIT_TIMEOUT_S
            )
        except FatalError:
            raise
        except PlaneError as error:
            logger.warning("event about objects not confirmed, retrying: %s", error, extra=about)
            if isinstance(error, AppendUnknown):
                self._unsure_s |= dict.fromkeys(record.keys, _now_s() + LATE_S)
            return False
        outcome = answer.outcome
        if outcome.code == "refused" and not outcome.items and outcome.reason_code in CLOCK_REASONS:
            logger.warning("event about objects refused, retrying: %s", outcome.reason, extra=about)
            return False
        self.records += 1
        self._take_refusals(record, outcome)
        return True

    def _take_refusals(self, record: Record, outcome: Outcome) -> None:
        """Record the objects that the fold refused: single ones, or all of the record."""
        if outcome.code == "refused" and not outcome.items:
            for key in record.keys:
                self._refuse(key, outcome.reason)
        for item in outcome.items:
            if item.code == "refused":
                self._refuse(item.name, item.reason)

    def _refuse(self, key: str, reason: str) -> None:
        self.refused[key] = reason
        self._on_refused(key, reason)

    async def _repeat_unsure(self) -> None:
        """Compare objects again once no record of theirs can land any more."""
        all_s = _now_s() + LATE_S
        while True:
            next_s = min(all_s, *self._unsure_s.values(), _now_s() + LATE_S)
            await asyncio.sleep(max(LATE_CHECK_S, next_s - _now_s()))
            now_s = _now_s()
            if all_s <= now_s:
                self._unsure_s |= dict.fromkeys(self._all_keys(), now_s)
                all_s = inf
            due = [key for key, due_s in self._unsure_s.items() if due_s <= now_s]
            for key in due:
                del self._unsure_s[key]
            if due:
                self._dirty |= dict.fromkeys(due)
                self._work.set()

    async def _repeat_refused(self) -> None:
        while True:
            await asyncio.sleep(REFUSED_RETRY_S * self._rng.uniform(0.8, 1.2))
            if self.refused:
                self.mark((*self.refused,))


def _now_s() -> float:
    return asyncio.get_running_loop().time()

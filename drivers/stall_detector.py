"""Detection of zones partitions whose changes will never be forwarded, for a report to the operator.

Fleet's mark is the offset below which it has taken all changes of a zones partition. Nothing is forwarded while the
mark is beyond the folded end of the partition, or lies in the part that the partition has already pruned. Both are
contradictions between the states of zones and fleet. In an intact log, a contradiction is temporary: this replica lags.
In a log with a forged mark or a lost partition, the contradiction is permanent. The log's ends tell the two cases
apart. After the detector has seen a contradiction, it waits until this replica has read the end of the lagging
partition again. If the contradiction remains when the partition is folded up to that end, the log has no record that
resolves the contradiction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates

CHECK_S = 5.0
"""Interval of checks."""

logger = logging.getLogger(__name__)


class _Contradiction(NamedTuple):
    """A contradiction between the marks of zones and fleet, which only further folding of `lagging` could resolve."""

    lagging: Partition
    reason: str


class StallDetector:
    """Looks for stalled partitions until `run` is cancelled. `reasons` maps each stalled partition to its cause."""

    def __init__(self, replica: Replica, *, now_ms: Callable[[], int]) -> None:
        self.reasons: dict[Partition, str] = {}
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._seen_ms: dict[_Contradiction, int] = {}

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            self._check()
            await asyncio.sleep(CHECK_S)

    def _check(self) -> None:
        found = {p: one for p in self._replica.partitions(ZONES) if (one := self._contradiction(p)) is not None}
        now_ms = self._now_ms()
        self._seen_ms = {one: self._seen_ms.get(one, now_ms) for one in found.values()}
        reasons = {partition: one.reason for partition, one in found.items() if self._lasts(one)}
        for partition, reason in reasons.items():
            if partition not in self.reasons:
                logger.error("forwarding to fleet stopped", extra={"partition": partition, "reason": reason})
        for partition in self.reasons.keys() - reasons.keys():
            logger.warning("forwarding to fleet resumed", extra={"partition": partition})
        self.reasons = reasons

    def _contradiction(self, partition: Partition) -> _Contradiction | None:
        mark = self._states.fleet.marks.get(partition.number, 0)
        position, pruned = self._replica.position(partition), self._states.zones_at(partition).forwarded
        if mark > position:
            reason = f"mark: fleet has received the partition up to {mark}, beyond its end"
            return _Contradiction(partition, reason)
        if mark < pruned:
            reason = f"mark: fleet has received the partition up to {mark}, but confirmed {pruned} before"
            return _Contradiction(FLEET_0, reason)
        return None

    def _lasts(self, contradiction: _Contradiction) -> bool:
        replica, lagging = self._replica, contradiction.lagging
        if replica.ends_seen_ms <= self._seen_ms[contradiction]:
            return False
        return replica.position(lagging) >= replica.end(lagging)

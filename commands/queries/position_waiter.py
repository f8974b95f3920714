"""Read-your-writes: waits until this replica has folded the position that a caller gives.

A position in a partition of topic zones is awaited in two ways. A query about a zone waits until this replica has
folded that partition up to the position. A query about the fleet waits until topic fleet has received every change that
the partition accepted below the position. This is the case if fleet's mark for the partition is at or after the
position, or if the partition has no change left to forward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from eventstore.errors import LogUnavailable
from eventstore.log import FLEET, FLEET_0, ZONES, Partition
from eventstore.position import InvalidPosition, from_token
from eventstore.replicas.replica import Replica
from projections.field_checks import quoted
from projections.forwarding.zones_to_fleet import is_forwarded


class PositionWaiter:
    """Waits until the folds of a replica have reached a position."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def wait_for_token(self, token: str, topics: Collection[str], timeout_s: float) -> None:
        """Wait until the folds of these topics are at least as new as a caller's token (no wait if it is empty).

        Raises InvalidPosition, or LogUnavailable at the deadline.
        """
        if not token:
            return
        position = from_token(token, self._replica.log_id)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        for partition, offset in position.offsets.items():
            self._check(partition)
            await self._replica.wait_for_position(partition, offset, timeout_s=_remaining_s(deadline_s))
            if FLEET in topics and partition.topic == ZONES:
                await self.wait_until_forwarded(partition, offset, timeout_s=_remaining_s(deadline_s))

    async def wait_until_forwarded(self, partition: Partition, offset: int, *, timeout_s: float) -> None:
        """Wait until topic fleet has received the changes that this partition of topic zones accepted below `offset`.

        Raises LogUnavailable at the time limit.
        """

        def is_forwarded_now() -> bool:
            mark = self._replica.state(FLEET_0).marks.get(partition.number, 0)
            return is_forwarded(self._replica.state(partition), mark, offset)

        if not await self._replica.fold_waits.wait_for(is_forwarded_now, partition, FLEET_0, timeout_s=timeout_s):
            raise LogUnavailable(f"fleet has not received {partition} up to {offset} within the time limit")

    def _check(self, partition: Partition) -> None:
        if not self._replica.is_folded(partition):
            raise InvalidPosition(f"position: {quoted(str(partition))} is not a partition of this log")


def _remaining_s(deadline_s: float) -> float:
    return max(deadline_s - asyncio.get_running_loop().time(), 0.0)

"""The upgrade of a partition to the fold version whose rules a driver needs, once all live replicas have them."""

from __future__ import annotations

import asyncio
import logging

from drivers.internal_events import InternalEvents
from eventstore.log import Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from schemas.events import FoldVersionUpgraded

logger = logging.getLogger(__name__)

LANDING_S = 2.0
"""Longest wait for the fold to show the upgrade."""


class FoldUpgrades:
    """Upgrades partitions for a driver."""

    def __init__(self, replica: Replica, ranks: Ranks, events: InternalEvents) -> None:
        self._replica = replica
        self._ranks = ranks
        self._events = events
        self._turn = asyncio.Lock()

    async def ensure(self, partition: Partition, event: FoldVersionUpgraded, what: str) -> bool:
        """Append this event if the partition lacks the rules of its version. Returns whether the partition has them.
        `what` waits for the upgrade, for the log."""

        def has_rules() -> bool:
            return self._replica.folded(partition).version >= event.version

        async with self._turn:
            if has_rules():
                return True
            if not self._ranks.all_support(partition.topic, event.version):
                about = {"partition": partition, "version": event.version}
                logger.warning("%s wait for an upgrade of all replicas, retrying", what, extra=about)
                return False
            if not await self._events.append(partition, "fold", event):
                return False
            return await self._replica.fold_waits.wait_for(has_rules, partition, timeout_s=LANDING_S)

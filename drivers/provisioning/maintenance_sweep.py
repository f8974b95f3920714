"""Ends maintenances that no step ends: their DPU was deleted without its last step, or its last step was skipped.

The folds show such a maintenance: it has no requestor, or one that no longer needs it. A step may be about to end it,
and a fold may lag behind. So it is swept only after the folds have shown it for a while without a break.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from drivers.internal_events import TURN_S, InternalEvents
from drivers.provisioning.attempts import TimedCalls
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.object_facts import Finding, ObjectFacts
from eventstore.errors import PermanentError, TransientError
from eventstore.log import RESOURCES, ZONES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica

logger = logging.getLogger(__name__)

UNNEEDED_S = 30.0
"""How long the folds must show that a maintenance is unneeded."""
PAUSE_S = 5.0
"""Shortest time between two looks at the folds, each of which is at all maintenances."""
SWEEP_S = 120.0
"""Longest time for one maintenance. Its host may be away, and the others must not wait for it."""
AT_ONCE = 16


class MaintenanceSweep:
    """Follows the folds until `run` is cancelled. It sweeps the maintenances of the sources that `accepts` names."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        maintenances: Maintenances,
        facts: ObjectFacts,
        *,
        accepts: Callable[[str], bool],
        role: str,
        rng: Random,
    ) -> None:
        self.internal_events = InternalEvents(replica, ranks, role)
        self.swept = 0
        self._replica = replica
        self._ranks = ranks
        self._maintenances = maintenances
        self._facts = facts
        self._accepts = accepts
        self._role = role
        self._rng = rng
        self._since_s: dict[str, float] = {}
        """The time since which each maintenance is unneeded."""

    async def run(self) -> None:
        await self._replica.ready()
        with self._replica.watch(RESOURCES, ZONES) as watch:
            while True:
                await self._sweep_due()
                await asyncio.sleep(PAUSE_S * self._rng.uniform(0.5, 1.0))
                if not self._since_s:
                    await watch.changed()

    async def _sweep_due(self) -> None:
        """Sweep the maintenances that have been unneeded for long enough."""
        now_s = asyncio.get_running_loop().time()
        found = {key: each for key, each in self._facts.unneeded().items() if self._accepts(each.at.source)}
        self._since_s = {key: self._since_s.get(key, now_s) for key in found}
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for key, since_s in self._since_s.items():
                if now_s - since_s >= UNNEEDED_S:
                    tasks.create_task(self._sweep(key, found[key], places))

    async def _sweep(self, key: str, finding: Finding, places: asyncio.Semaphore) -> None:
        async with places:
            await asyncio.sleep(TURN_S * self._ranks.rank(key, self._role))
            if key not in self._facts.unneeded():
                return
            about = {"maintenance": finding.at.name, "host": finding.host.name}
            try:
                async with asyncio.timeout(SWEEP_S):
                    await self._maintenances.sweep(TimedCalls(), finding)
            except (TransientError, PermanentError, TimeoutError) as error:
                logger.warning("unneeded maintenance not ended, retrying: %s", error, extra=about)
                return
            self.swept += 1
            logger.info("unneeded maintenance ended", extra=about)

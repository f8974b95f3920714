"""Internal events: events that the plane itself appends, without a caller that waits for the outcome.

Several processes see the same need in their folds. Each process waits one turn longer than the process that ranks
before it. It appends the event when its turn comes and the need is still unmet. Two appends of one event do no harm,
since the fold accepts only the first; the ranks only avoid superfluous records. A failed append may still have landed.
In that case the folds show its event. The error is therefore logged and counted, and the driver checks the need again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from eventstore.errors import FatalError, PlaneError
from eventstore.log import Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from schemas.events import Event

logger = logging.getLogger(__name__)

TURN_S = 0.3
"""Wait per rank, in seconds."""

APPEND_TIMEOUT_S = 5.0
"""The outcome of an append that takes longer is unknown."""


RANK_MAX = 3
"""The highest rank in `turns`, which counts the turns of all higher ranks too."""


class InternalEvents:
    """The internal events of one driver, which is ranked among the replicas of `role`.

    `turns` counts, by rank, the needs that remained when our turn came. Turns with a rank above 0 mean that a replica
    of a lower rank did not act in time. `failures` counts appends with an error or an unknown outcome.
    """

    def __init__(self, replica: Replica, ranks: Ranks, role: str) -> None:
        self.failures = 0
        self.turns: Counter[int] = Counter()
        self._replica = replica
        self._ranks = ranks
        self._role = role

    async def wait_for_turn(self, subject: str, partition: Partition, is_met: Callable[[], bool]) -> bool:
        """Wait for our turn. Returns True if another replica has appended the event in the meantime, so that `is_met`
        has become true in the fold of the partition."""
        rank = self._ranks.rank(subject, self._role)
        if rank and await self._replica.fold_waits.wait_for(is_met, partition, timeout_s=rank * TURN_S):
            return True
        self.turns[min(rank, RANK_MAX)] += 1
        return False

    async def append(self, partition: Partition, key: str, event: Event) -> bool:
        """Append an event. Returns False if it may not be in the log."""
        try:
            await self._replica.append_event(partition, key.encode(), event, timeout_s=APPEND_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            self.failures += 1
            about = {"partition": partition, "subject": event.envelope.subject, "event": type(event).__name__}
            logger.warning("internal event not appended, retrying", extra=about | {"reason": str(error)})
            return False
        return True

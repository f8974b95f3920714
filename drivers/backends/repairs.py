"""Repairs of a bridge whose flows another program has changed: their budget, their counts and their log.

Two programs that undo each other's changes would keep the switch busy for ever. A device therefore makes a limited
number of repairs an hour by itself, and heeds reported changes the later, the more repairs it has made. A bridge that
has lost all of its flows gets them in any case: no program that works on single flows does that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple

logger = logging.getLogger(__name__)

REPAIRS_PER_HOUR = 30
HOUR_S = 3600.0
SPACING_S = 1.0
"""Minimum time between checks for reported changes: another program may change flows all the time."""


class RepairBudget:
    """The repairs of the last hour, of which there may be `per_hour`. Times are of one clock, in seconds. Pure."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._repaired: deque[float] = deque(maxlen=per_hour)
        """The times of the last repairs: older ones are never asked for."""

    def allows(self, now: float, *, is_empty: bool = False) -> bool:
        """Whether a bridge may be repaired, which is empty or has some of its flows."""
        return is_empty or self._spent(now) < self._per_hour

    def spend(self, now: float) -> None:
        """Count a repair that has changed the switch. A refused one has not."""
        self._repaired.append(now)

    def spacing_s(self, now: float, interval_s: float) -> float:
        """How long the next reported change waits: with a spent budget, as long as the interval of the checks."""
        return max(SPACING_S, interval_s * self._spent(now) / self._per_hour)

    def _spent(self, now: float) -> int:
        return sum(at > now - HOUR_S for at in self._repaired)


class BridgeCounts(NamedTuple):
    """Counts since the start."""

    connections: int
    repairs: int
    """Changes of flows that were not what the bridge should have."""
    unrepaired: int
    """Differences that stayed: for want of budget, or because the switch refused the repair."""


class Repairs:
    """The repairs of one bridge. `held` names what the bridge should hold, and `about` the bridge, for the log. A
    difference that stays is logged once, although each check finds it again."""

    def __init__(self, held: str, about: Mapping[str, str]) -> None:
        self.budget = RepairBudget(REPAIRS_PER_HOUR)
        self.done = 0
        self.left = 0
        self._held = held
        self._about = about
        self._difference: Hashable = None
        """The difference that stays; None for none."""

    def counts(self, connections: int) -> BridgeCounts:
        return BridgeCounts(connections, self.done, self.left)

    def repaired(self, flows: int, now: float) -> None:
        """The switch had this number of other flows, and was changed."""
        self.budget.spend(now)
        self.done += 1
        self._difference = None
        about = {**self._about, "flows": flows}
        logger.warning("the bridge did not have the flows of its %s", self._held, extra=about)

    def not_repaired(self, reason: str, state: Hashable = "") -> None:
        """The bridge differs, and stays so. Another `state` is another difference."""
        if self._difference != (reason, state):
            self._difference = (reason, state)
            self.left += 1
            text = "the bridge does not hold its %s and is not repaired: %s"
            logger.warning(text, self._held, reason, extra=self._about)

    def beyond_budget(self, state: Hashable) -> None:
        self.not_repaired(f"repairs within the last hour: {REPAIRS_PER_HOUR}, its limit", state)

    def whole(self) -> None:
        """The bridge holds what it should."""
        if self._difference is not None:
            self._difference = None
            logger.info("the bridge holds its %s again", self._held, extra=self._about)

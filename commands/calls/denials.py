"""What was denied: counted always, told to the log once per principal and minute.

A denial is what an attack looks like from inside, so it must show up; and whoever is denied in a loop must not be able
to fill a disk with it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

logger = logging.getLogger(__name__)

QUIET_S = 60.0
PRINCIPALS_MAX = 10_000


class Denials:
    """Counts since the start: `unauthenticated` callers, and those `denied` what they asked for."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.denied = 0
        self.unauthenticated = 0
        self._now_s = now_s
        self._told_at: OrderedDict[str, float] = OrderedDict()

    def deny(self, principal: str, reason: str) -> None:
        """Somebody known asked for what is not theirs."""
        self.denied += 1
        self._tell("denied", principal, reason)

    def turn_away(self, peer: str, reason: str) -> None:
        """Somebody came whom no certificate names. `peer` is an address without its port."""
        self.unauthenticated += 1
        self._tell("turned away", peer, reason)

    def _tell(self, what: str, who: str, reason: str) -> None:
        now_s = self._now_s()
        told_at = self._told_at.get(who)
        if told_at is not None and now_s - told_at < QUIET_S:
            return
        self._told_at[who] = now_s
        self._told_at.move_to_end(who)
        if len(self._told_at) > PRINCIPALS_MAX:
            self._told_at.popitem(last=False)
        logger.warning(what, extra={"principal": who, "reason": reason})

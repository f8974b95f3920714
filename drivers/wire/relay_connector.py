"""Connection and reconnection to a relay, for the agent of a DPU and for a simulated zone.

Several relays are tried in turn. The limit of the backoff doubles up to a maximum, and the backoff is drawn evenly from
zero to this limit (full jitter): a thousand agents that lost their relay at one instant must not reconnect at one
instant. If a relay gave a time to return, the agent waits for that time instead.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from drivers.wire.links import Busy, Dial, Link, LinkClosed
from drivers.wire.relay_messages import GoAway
from eventstore.backoff import backoff_ceiling

logger = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.5
BACKOFF_LAST_S = 30.0
AWAY_S_MAX = 60.0
"""Longest wait for a reconnection, whatever a relay asks for."""


class GoAwayReceived(LinkClosed):
    """The relay closed the link, with a reason and a time to return."""

    def __init__(self, refused: GoAway) -> None:
        super().__init__(refused.reason)
        self.retry_after_s = min(AWAY_S_MAX, refused.retry_after_ms / 1000)


class RelayConnector:
    """Connects to several relays in turn, with backoff."""

    def __init__(self, addresses: Sequence[str], dial: Dial, rng: random.Random, *, who: str) -> None:
        self._addresses = addresses
        self._dial = dial
        self._rng = rng
        self._who = who
        self._turn = rng.randrange(len(addresses))
        self._failures = 0
        self._wait_s = 0.0

    async def connect(self) -> Link:
        """Wait for the backoff, then return a link to the next relay that accepts one."""
        while True:
            await asyncio.sleep(self._wait_s)
            address = self._addresses[self._turn % len(self._addresses)]
            self._turn += 1
            try:
                return await self._dial(address)
            except (LinkClosed, Busy) as error:
                self.lost(error)

    def welcomed(self) -> None:
        """Reset the backoff after the relay's Welcome."""
        self._failures = 0

    def lost(self, error: BaseException) -> None:
        """Compute the backoff after a failed or closed link."""
        if isinstance(error, Busy | GoAwayReceived):
            self._wait_s = error.retry_after_s * self._rng.uniform(1.0, 1.2)
        else:
            self._wait_s = self._rng.uniform(0.0, backoff_ceiling(self._failures, BACKOFF_FIRST_S, BACKOFF_LAST_S))
        self._failures += 1
        logger.info("%s not connected to a relay, next attempt in %.1f s: %s", self._who, self._wait_s, error)

"""Denials: each is counted and logged with its peer; the log handler samples them.

A denial is what an attack looks like from inside, so the log must show it. The handler of the process writes a few
lines of each peer and counts the others (`deploy.peer_log_sampler`), so a caller that is denied in a loop fills no
disk.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Denials:
    """Counts since the start: `unauthenticated` calls, and calls `denied` to a known principal."""

    def __init__(self) -> None:
        self.denied = 0
        self.unauthenticated = 0

    def count_denied(self, principal: str, reason: str) -> None:
        """A known principal called a method that it may not call."""
        self.denied += 1
        logger.warning("call denied", extra={"peer": principal, "reason": reason})

    def count_unauthenticated(self, peer: str, reason: str) -> None:
        """A caller has no valid certificate. `peer` is its address without the port."""
        self.unauthenticated += 1
        logger.warning("caller not authenticated", extra={"peer": peer, "reason": reason})

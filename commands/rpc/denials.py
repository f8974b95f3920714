"""Denials: counted, and told to the log with the peer that caused them, which the log samples.

A denial is what an attack looks like from inside, so the log must show it. The handler of the process writes a few
lines of each peer and counts the others (`deploy.peer_lines`), so a caller that is denied in a loop fills no disk.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Denials:
    """Counts since the start: `unauthenticated` callers, and those `denied` what they asked for."""

    def __init__(self) -> None:
        self.denied = 0
        self.unauthenticated = 0

    def count_denied(self, principal: str, reason: str) -> None:
        """A known principal asked for what it may not have."""
        self.denied += 1
        logger.warning("denied", extra={"peer": principal, "reason": reason})

    def count_unauthenticated(self, peer: str, reason: str) -> None:
        """A caller came without a certificate that names it. `peer` is its address without the port."""
        self.unauthenticated += 1
        logger.warning("turned away", extra={"peer": peer, "reason": reason})

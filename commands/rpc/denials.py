"""Counts denied calls, and logs each of them with its peer.

Denials can be signs of an attack, so the log must show them. The log handler of the process writes a few lines per peer
and counts the others (deploy/telemetry/peer_log_sampler), so a caller that is denied in a loop does not fill a disk.
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
        """Count a call by a known principal to a method that it may not call."""
        self.denied += 1
        logger.warning("call denied", extra={"peer": principal, "reason": reason})

    def count_unauthenticated(self, peer: str, reason: str) -> None:
        """Count a caller without a valid certificate. `peer` is its address without the port."""
        self.unauthenticated += 1
        logger.warning("caller not authenticated", extra={"peer": peer, "reason": reason})

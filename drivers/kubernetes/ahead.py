"""The objects of a kind that have a later position than the log, so that their status is not written.

For a moment this is normal: another replica has folded more. If it lasts, the objects are from a log that this plane
does not have, for example because it was started with a new log, or because a second plane writes to the cluster. The
plane does not decide which log is the right one: a person deletes the objects, and the plane creates them again.
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

LASTING_S = 60.0
"""Time after which an object counts as ahead of the log."""
_LOGGED = frozenset((1, 10, 100, 1_000, 10_000))


class ObjectsAhead:
    """Objects by name, each with the time since which it is ahead."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._lasting: set[str] = set()

    @property
    def count(self) -> int:
        """Number of objects that have been ahead of the log for LASTING_S."""
        return len(self._lasting)

    def add(self, name: str, now_s: float, about: dict[str, Any]) -> None:
        """Record that an object is ahead at this time. `about` are the fields of a warning."""
        if now_s < self._since_s.setdefault(name, now_s) + LASTING_S or name in self._lasting:
            return
        self._lasting.add(name)
        if self.count in _LOGGED:
            logger.warning(
                "status not written: the object has a later position than this plane's log; if no other plane writes to"
                " this cluster, delete the object, which is then created again (runbook: ObjectsAheadOfLog)",
                extra=about | {"objects": self.count},
            )

    def discard(self, name: str) -> None:
        """Record that an object does not exist, or is not ahead."""
        if self._since_s.pop(name, None) is not None:
            self._lasting.discard(name)

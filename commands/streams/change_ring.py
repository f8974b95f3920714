"""The last changes of one table, by position: what a watcher needs to continue. Pure, and of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from commands.rpc.errors import PositionExpired

Changes = Mapping[str, Any]
"""The changed keys. The value of a key is the row that was last removed under this key; None if no row was removed."""


class ChangeRing:
    """Changes since the position `begin`, with at most `most` keys. At this limit the oldest changes are dropped, and
    `begin` advances."""

    def __init__(self, begin: int, most: int) -> None:
        self.begin = self.end = begin
        self._most = most
        self._count = 0
        self._entries: deque[tuple[int, Changes]] = deque()

    def add(self, end: int, changes: Changes) -> None:
        """Add the changes of the records from position `self.end` to the new position `end` (exclusive)."""
        assert end >= self.end, "positions only grow"
        self.end = end
        if not changes:
            return
        self._entries.append((end, changes))
        self._count += len(changes)
        while self._count > self._most:
            self.begin, dropped = self._entries.popleft()
            self._count -= len(dropped)

    def since(self, position: int) -> dict[str, Any]:
        """The keys that changed at or after a position. Raises PositionExpired."""
        if position < self.begin:
            raise PositionExpired(
                f"position: {position} has expired, the changes are known from {self.begin} on; list again"
            )
        found: dict[str, Any] = {}
        for end, changes in reversed(self._entries):
            if end <= position:
                break
            found = {**changes, **found}
        return found

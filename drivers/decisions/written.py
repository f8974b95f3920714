"""The decisions that the decisions topic has, inferred from the newest ones of each source partition.

A writer has at most AT_ONCE appends in flight, and begins a batch only when the topic has every earlier decision of the
source. So gaps are possible only among the newest AT_ONCE decisions of a source in the topic, and all older decisions
of the source are written. It is therefore sufficient to remember a few offsets per source, and to begin to read
anywhere in the topic.
"""

from __future__ import annotations

import re
from heapq import heappush, heappushpop

from eventstore.log import Partition

AT_ONCE = 256
"""Maximum number of appends in flight. Appends in flight share a sync of the log. With fewer of them, the writer would
be slower than the fold."""

_KEY = re.compile(rb"([a-z]{1,32})/([0-9]{1,7})/([0-9]{1,19})")

REMEMBERED = 2 * AT_ONCE
"""Offsets that are remembered per source: twice what the inference needs."""


class Written:
    """The written decisions of one source partition."""

    def __init__(self) -> None:
        self.floor = 0
        """The decisions about all records below this offset are written."""
        self._heap: list[int] = []
        self._recent: set[int] = set()

    def add(self, offset: int) -> None:
        """Record that the topic has the decision about the record at this offset."""
        if offset in self:
            return
        self._recent.add(offset)
        if len(self._heap) < REMEMBERED:
            heappush(self._heap, offset)
            return
        lowest = heappushpop(self._heap, offset)
        self._recent.discard(lowest)
        self.floor = lowest + 1

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self._recent


def cause_of(key: bytes) -> tuple[Partition, int] | None:
    """The partition and offset of the record that a decision with this key is about; None for an invalid key."""
    place = _KEY.fullmatch(key)
    return None if place is None else (Partition(place[1].decode(), int(place[2])), int(place[3]))

"""Sampling of log lines that a peer can cause: one filter for all of them, on the process's log handler.

A line that a peer caused has a field `peer` (its principal, or its address without one). Each peer may cause a burst of
a few lines and then a few lines per minute; all peers together have a limit per second. The field `suppressed` of a
peer's next line is the number of its lines that were dropped before. Python's logging has no filter that samples.
One agent caused 820 kB of lines in 6 s, and a disk full of such lines stops the plane. Lines of libraries about
connections and calls name no peer; they are sampled by their text.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

AT_ONCE, EVERY_S = 5.0, 12.0
"""Maximum burst of lines of one peer, and the interval of further lines, in seconds."""
ALL_AT_ONCE, ALL_EVERY_S = 200.0, 0.2
"""Maximum burst and interval of all peers together."""
PEERS_MAX = 10_000
"""Maximum number of peers in memory; the least recently seen is dropped first."""
_LIBRARIES = ("aiohttp.", "asyncio", "grpc")


class _Bucket:
    """The lines that may still be written, and the number of dropped ones."""

    __slots__ = ("at_s", "suppressed", "tokens")

    def __init__(self, at_once: float, now_s: float) -> None:
        self.tokens = at_once
        self.at_s = now_s
        self.suppressed = 0

    def fill(self, at_once: float, every_s: float, now_s: float) -> bool:
        """Refill the bucket; returns whether a line may be written now."""
        self.tokens = min(at_once, self.tokens + max(0.0, now_s - self.at_s) / every_s)
        self.at_s = now_s
        return self.tokens >= 1.0


class PeerLogSampler(logging.Filter):
    """Admits every line of the plane, and a bounded number of lines that peers cause. `suppressed` counts dropped
    lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self.suppressed = 0
        self._all: _Bucket | None = None
        self._peers: OrderedDict[str, _Bucket] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        who = _who(record)
        if who is None:
            return True
        now_s = record.created
        mine = self._bucket(who, now_s)
        everybody = self._all = self._all or _Bucket(ALL_AT_ONCE, now_s)
        may = (mine.fill(AT_ONCE, EVERY_S, now_s), everybody.fill(ALL_AT_ONCE, ALL_EVERY_S, now_s))
        if not all(may):
            self.suppressed += 1
            mine.suppressed += 1
            return False
        mine.tokens -= 1.0
        everybody.tokens -= 1.0
        if mine.suppressed:
            record.suppressed = mine.suppressed
            mine.suppressed = 0
        return True

    def _bucket(self, who: str, now_s: float) -> _Bucket:
        found = self._peers.get(who)
        if found is None:
            found = self._peers[who] = _Bucket(AT_ONCE, now_s)
            if len(self._peers) > PEERS_MAX:
                self._peers.popitem(last=False)
        else:
            self._peers.move_to_end(who)
        return found


def suppressed_lines() -> int:
    """The number of lines that this process's filters dropped."""
    found = {each for handler in logging.getLogger().handlers for each in handler.filters}
    return sum(each.suppressed for each in found if isinstance(each, PeerLogSampler))


def _who(record: logging.LogRecord) -> str | None:
    """The peer that caused a line; None for a line of the plane."""
    peer = getattr(record, "peer", None)
    if peer is not None:
        return str(peer)
    if record.name.startswith(_LIBRARIES):
        return f"{record.name} {record.msg}"[:200]
    return None

"""Which of two incarnations of a node or pod is the newer one: the one that was created later.

A creation time comes from the clock of whoever stated it. No rule takes one that is more than a minute ahead of the
log. So a known creation time that is further ahead was taken while the clock of the log was fast, and the clock has
been put right since. Such a time decides nothing: then the statement that the log has later is the newer one. Otherwise
nothing that is created now could take the place of what was stated at the fast time, for as long as that was ahead.
"""

from __future__ import annotations

from projections.field_checks import MAX_AHEAD_MS


def is_older(created_ms: int, known_ms: int, now_ms: int) -> bool:
    """Whether an incarnation that was created then is older than a known one. `now_ms` is the time of the log."""
    return created_ms < known_ms <= now_ms + MAX_AHEAD_MS

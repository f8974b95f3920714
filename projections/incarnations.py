"""Order of the incarnations of a node or pod: the one that was created later is the newer one.

A creation time comes from the client's clock. A creation time that is more than a minute ahead of the log is refused.
So a stored creation time that is further ahead dates from a time when the log's clock was fast. Such a time is ignored:
the update that is later in the log wins. Otherwise no new incarnation could replace the stored one until the clock
reached the fast time.
"""

from __future__ import annotations

from projections.field_checks import MAX_AHEAD_MS


def is_older(created_ms: int, known_ms: int, now_ms: int) -> bool:
    """Whether an incarnation created at this time is older than the stored one. `now_ms` is the append time of the
    record."""
    return created_ms < known_ms <= now_ms + MAX_AHEAD_MS

"""The wall clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def utc_now() -> datetime:
    """The present time in UTC."""
    return datetime.now(UTC)

"""One thing that was decided, about one subject."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Item(NamedTuple):
    """What was decided, about whom, and what else there is to say of it, as text."""

    kind: str
    subject: str
    detail: dict[str, str]


@lru_cache(4_096)
def in_zone(zone: str) -> dict[str, str]:
    """A detail that thousands of items of a batch share. Nobody changes a detail."""
    return {"zone": zone}

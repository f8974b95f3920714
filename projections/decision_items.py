"""One thing that was decided, about one subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Item(NamedTuple):
    """What was decided, about whom, and what else there is to say of it, as text."""

    kind: str
    subject: str
    detail: Mapping[str, str]

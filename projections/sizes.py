"""Numbers of DPUs that users give as a number or as a percentage of the DPUs of a set."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_WAVES = 100
MAX_BAKE_MS = 30 * 86_400_000
_SIZE = re.compile(r"([0-9]{1,9})(%?)")


class Size(NamedTuple):
    """A number of DPUs, or a percentage of them."""

    number: int
    is_percentage: bool

    def of(self, total: int) -> int:
        """This many of `total` DPUs, rounded up, not limited to the total."""
        return -(-self.number * total // 100) if self.is_percentage else self.number


def read_size(text: str) -> Size | None:
    """The size in a text such as 5 or 10%; None if it is none."""
    found = _SIZE.fullmatch(text)
    if found is None or (found[2] and int(found[1]) > 100):
        return None
    return Size(int(found[1]), bool(found[2]))


def scaled_max_unavailable(text: str, total: int) -> int:
    """How many DPUs of a set may be unavailable: at least 1, at most all, as DPF scales it."""
    size = read_size(text) or Size(1, is_percentage=False)
    return max(1, min(total, size.of(total)))


def scaled_budget(text: str, total: int) -> int | None:
    """How many DPUs may fail before a rollout is held; None if any number may."""
    size = read_size(text)
    return None if size is None else size.of(total)

"""Retry budgets of a zone: how often a step of a DPU is tried, by kind of failure, before the DPU is in Error.

A transient failure (device unreachable, or no answer in time) is no evidence of a faulty device. A device failure was
reported by the device. An operator failure needs a person, so by default the first one ends in Error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tries(NamedTuple):
    """Attempts at one step, by the kind of failure that ends them. 0 is the default."""

    transient: int = 0
    device: int = 0
    operator: int = 0


FAILURE_KINDS = Tries._fields

DEFAULT_TRIES = Tries(12, 3, 1)
"""A BMC reboot takes up to 10 minutes. The 11 delays between 12 tries take at least 11 minutes (a test adds them)."""

MAX_TRIES_OF_KIND = 100
LEAVE_AS_IS = -1


def fault_of_tries(stated: Sequence[int]) -> str | None:
    """Why these retry limits are invalid, in one sentence; None if they are valid. A request with every field unset
    leaves the present limits unchanged."""
    if stated and len(stated) != len(FAILURE_KINDS):
        return f"tries: {len(stated)} numbers must be {len(FAILURE_KINDS)}, for {', '.join(FAILURE_KINDS)}"
    for kind, count in zip(FAILURE_KINDS, stated, strict=False):
        if not LEAVE_AS_IS <= count <= MAX_TRIES_OF_KIND:
            return f"{kind}_tries: {count} must be from {LEAVE_AS_IS} to {MAX_TRIES_OF_KIND}"
    return None


def with_stated(tries: Tries, stated: Sequence[int]) -> Tries:
    """The retry limits, with each field replaced that `stated` sets."""
    if not stated:
        return tries
    return Tries(*(old if new == LEAVE_AS_IS else new for old, new in zip(tries, stated, strict=True)))


def in_force(tries: Tries) -> Tries:
    """These tries, with defaults filled in."""
    return Tries(*(count or default for count, default in zip(tries, DEFAULT_TRIES, strict=True)))

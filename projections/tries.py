"""How often a step of a DPU is tried before the DPU is in Error, by kind of failure: the retry budgets of a zone.

A transient failure says nothing of the device: it was not reached, or did not answer in time. A device failure is one
that the device reported. An operator failure needs a person, so by default the first one ends in Error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tries(NamedTuple):
    """Tries at one step, by the kind of the failure that ends them. 0 is the default."""

    transient: int = 0
    device: int = 0
    operator: int = 0


FAILURE_KINDS = Tries._fields

DEFAULT_TRIES = Tries(12, 3, 1)
"""A BMC that reboots is away for up to 10 minutes. The 11 waits between 12 tries take 11 minutes at least (a test adds
them up)."""

MAX_TRIES_OF_KIND = 100
LEAVE_AS_IS = -1


def fault_of_tries(stated: Sequence[int]) -> str | None:
    """What is wrong with stated tries, in one sentence. None given at all leaves them as they are."""
    if stated and len(stated) != len(FAILURE_KINDS):
        return f"tries: {len(stated)} numbers must be {len(FAILURE_KINDS)}, for {', '.join(FAILURE_KINDS)}"
    for kind, count in zip(FAILURE_KINDS, stated, strict=False):
        if not LEAVE_AS_IS <= count <= MAX_TRIES_OF_KIND:
            return f"{kind}_tries: {count} must be from {LEAVE_AS_IS} to {MAX_TRIES_OF_KIND}"
    return None


def with_stated(tries: Tries, stated: Sequence[int]) -> Tries:
    """These tries, with those that were stated."""
    if not stated:
        return tries
    return Tries(*(old if new == LEAVE_AS_IS else new for old, new in zip(tries, stated, strict=True)))


def in_force(tries: Tries) -> Tries:
    """These tries, with the defaults where none are set."""
    return Tries(*(count or default for count, default in zip(tries, DEFAULT_TRIES, strict=True)))

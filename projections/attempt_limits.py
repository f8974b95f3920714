"""Limits of attempts in a zone: how often a step of a DPU may fail, by kind of failure, before the DPU is in Error.

A transient failure (device unreachable, or no answer in time) is no evidence of a faulty device. A device failure was
reported by the device. An operator failure needs a person, so by default the first one ends in Error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AttemptsByFailure(NamedTuple):
    """Attempts at one step, by the kind of failure that ends them. A limit of 0 means the default."""

    transient: int = 0
    device: int = 0
    operator: int = 0


FAILURE_KINDS = AttemptsByFailure._fields

DEFAULT_LIMITS = AttemptsByFailure(12, 3, 1)
"""The default limits. A BMC reboot takes up to 10 minutes, and the 11 delays between 12 attempts take at least 11
minutes (as tested)."""

MAX_ATTEMPT_LIMIT = 100
LEAVE_AS_IS = -1


def fault_of_limits(requested: Sequence[int]) -> str | None:
    """Why these limits are invalid, in one sentence; None if they are valid. A request with every field unset leaves
    the present limits unchanged."""
    if requested and len(requested) != len(FAILURE_KINDS):
        return f"attempt_limits: {len(requested)} numbers must be {len(FAILURE_KINDS)}, for {', '.join(FAILURE_KINDS)}"
    for kind, count in zip(FAILURE_KINDS, requested, strict=False):
        if not LEAVE_AS_IS <= count <= MAX_ATTEMPT_LIMIT:
            return f"{kind}_attempts: {count} must be from {LEAVE_AS_IS} to {MAX_ATTEMPT_LIMIT}"
    return None


def updated_limits(limits: AttemptsByFailure, requested: Sequence[int]) -> AttemptsByFailure:
    """These limits with the requested values; LEAVE_AS_IS leaves a value unchanged."""
    if not requested:
        return limits
    return AttemptsByFailure(*(old if new == LEAVE_AS_IS else new for old, new in zip(limits, requested, strict=True)))


def in_force(limits: AttemptsByFailure) -> AttemptsByFailure:
    """These limits, with defaults filled in."""
    return AttemptsByFailure(*(count or default for count, default in zip(limits, DEFAULT_LIMITS, strict=True)))

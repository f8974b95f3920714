"""What every partition may hold, whatever it is about: its first record, and the rules under which it is folded."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class LogCreated(msgspec.Struct, frozen=True, gc=False):
    """Record 0 of every partition of zones, cliques and fleet. The first one of fleet decides; the others copy it."""

    envelope: Envelope
    log_id: str
    generation: int
    partition_count: int
    parent: str


class FoldVersionUpgraded(msgspec.Struct, frozen=True, gc=False):
    """From the next record on, this partition is folded under the rules of `version`."""

    envelope: Envelope
    version: int

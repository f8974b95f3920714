"""Events of every topic: the first record of a partition, and the fold version of a partition."""

from __future__ import annotations

from schemas.envelope import Event


class LogCreated(Event, frozen=True, gc=False):
    """Record 0 of every partition of zones, cliques and fleet. The first one in fleet is authoritative; the others
    copy it."""

    schema_id = 1
    log_id: str
    generation: int
    partition_count: int
    parent: str


class FoldVersionUpgraded(Event, frozen=True, gc=False):
    """From the next record on, the rules of fold version `version` apply to this partition."""

    schema_id = 2
    version: int

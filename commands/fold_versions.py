"""Upgrades of the fold version of one partition, when the live replicas support it.

A replica that does not support the version halts at the record of the upgrade, so all live replicas are checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from commands.rpc.errors import PreconditionFailed
from eventstore.errors import TransientError
from eventstore.ids import internal_envelope
from eventstore.log import Partition
from eventstore.replicas.replica import Replica
from schemas.events import FoldVersionUpgraded

SupportedVersions = Callable[[], Mapping[str, Mapping[str, Sequence[int]]] | None]
"""The fold versions that each live replica supports, by its name and topic; None while liveness is unknown."""


class FoldVersions:
    """The fold versions that live replicas support. Without `supports`, this replica is the only one."""

    def __init__(self, replica: Replica, supports: SupportedVersions | None, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._supports = supports or (lambda: {replica.name: replica.supports()})
        self._now_ms = now_ms

    async def ensure(self, partition: Partition, version: int, actor: str, timeout_s: float) -> None:
        """Upgrade a partition that lacks the rules which a command needs. Raises PreconditionFailed if a live replica
        lacks them, TransientError if the log does not answer in time."""

        def has_rules() -> bool:
            return self._replica.folded(partition).version >= version

        if has_rules():
            return
        if fault := self.fault(partition, version):
            raise PreconditionFailed(fault)
        event = FoldVersionUpgraded(internal_envelope("fold", actor, self._now_ms()), version)
        await self._replica.append_event(partition, b"fold", event, timeout_s=timeout_s)
        if not await self._replica.fold_waits.wait_for(has_rules, partition, timeout_s=timeout_s):
            raise TransientError(f"{partition} has not folded its upgrade to version {version}; try again")

    def fault(self, partition: Partition, version: int) -> str:
        """Why this partition cannot be upgraded now; empty if it can."""
        folded = self._replica.folded(partition)
        if folded.halted:
            return f"partition: {partition} is halted on {self._replica.name}: {folded.halted}"
        living = self._supports()
        if living is None:
            return "replicas: this one receives too few beacons to know the live replicas; try again in a few seconds"
        for name, supports in sorted(living.items()):
            if lacks := first_missing_version(supports.get(partition.topic), folded.version, version):
                return f"replica: {name} does not support fold version {lacks} of {partition.topic}; upgrade it first"
        return ""


def first_missing_version(supported: Sequence[int] | None, version: int, wanted: int) -> int:
    """The first version above `version` and up to `wanted` that is not supported. 0 if there is none, or if the replica
    does not fold the topic."""
    if supported is None:
        return 0
    return next((step for step in range(version + 1, wanted + 1) if step not in supported), 0)

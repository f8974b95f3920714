"""Binds each command id to the partitions of its command, so that one id stands for one command.

A fold sees one partition, so no fold can see that an id is used for commands of two partitions. This server refuses the
second use before it appends anything: it knows the ids that it is appending now, and the ids that its folds remember.
Other servers learn of an id when they fold its event; the operations guide says what is guaranteed across servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from commands.rpc.errors import CommandIdInUse
from eventstore.folding.ledger import AHEAD_MS, LATE_MS
from eventstore.ids import issued_at_ms
from eventstore.log import Partition
from eventstore.replicas.replica import Replica

IDS_MAX = 100_000
"""Maximum number of ids with an unknown outcome, about 300 bytes each. The oldest are dropped first."""


class CommandIdBindings:
    """Ids whose outcome this server does not know yet, with the partitions of their commands."""

    def __init__(self, replica: Replica, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._now_ms = now_ms
        self._bound: dict[str, tuple[Partition, ...]] = {}

    def bind(self, command_id: str, partitions: tuple[Partition, ...]) -> None:
        """Bind the id to a command of these partitions. Raises CommandIdInUse if the id is bound to other
        partitions."""
        bound = self._bound.get(command_id, partitions)
        if bound != partitions:
            raise _in_use(command_id, bound)
        folded = tuple(answer.partition for answer in self._replica.outcomes(command_id))
        if folded and not set(folded) & set(partitions):
            raise _in_use(command_id, folded)
        self._forget_old()
        self._bound[command_id] = partitions

    def settle(self, command_id: str) -> None:
        """Remove an id whose outcome is known: the fold remembers it."""
        self._bound.pop(command_id, None)

    def _forget_old(self) -> None:
        """Drop the oldest ids over the limit, and all ids so old that a copy of their command can no longer take
        effect."""
        while self._bound:
            oldest = next(iter(self._bound))
            is_over = issued_at_ms(oldest) + LATE_MS + AHEAD_MS < self._now_ms()
            if not is_over and len(self._bound) < IDS_MAX:
                return
            del self._bound[oldest]


def _in_use(command_id: str, partitions: Collection[Partition]) -> CommandIdInUse:
    where = ", ".join(map(str, partitions))
    return CommandIdInUse(f"command_id: {command_id} is in use for another command, in {where}; nothing was appended")

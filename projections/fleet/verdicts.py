"""What became of commands in fleet, where that differs from what their zone decided.

A zone takes a leave or a statement of a node agent; only fleet knows whether a budget holds it, or whether another node
has the address. An open hold knows its command. This table remembers how the hold of a command was closed, and what a
node agent stated without effect. A closed hold of an edit is found by its number instead: each command that stated the
edit while it waited was answered with that number. Ledgers forget commands as well, so a bounded number is enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from eventstore.folding.fold import At, Code
from eventstore.folding.table import Table
from projections.fleet.withdrawals import Hold
from projections.names import shown

MAX_VERDICTS = 10_000
"""Commands and holds that are remembered; they take 5 MB."""


class Verdict(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of a command in fleet, decided at this offset. `hold` is -1 if there was none."""

    code: Code
    reason: str
    hold: int
    heard: int


def approved(hold: int, approvers: tuple[str, ...], at: At) -> Verdict:
    by = " and ".join(map(shown, approvers))
    return Verdict("done", f"hold {hold} was approved by {by}", hold, at.offset)


def rejected(hold: Hold, at: At) -> Verdict:
    reason = f"hold {hold.id} was rejected by {shown(hold.rejected_by)}: what it kept stays as it was"
    return Verdict("refused", reason, hold.id, at.offset)


def overtaken(hold: int, at: At) -> Verdict:
    reason = f"hold {hold} ended without approval: a later command stated the same policy, labels or budget"
    return Verdict("refused", reason, hold, at.offset)


class Verdicts(Table[Verdict]):
    """Verdicts by command, or by `hold_key` of an edit. The one that was decided first is forgotten first."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__("verdicts", Verdict)
        self._order: OrderedDict[str, None] = OrderedDict()

    def rederive(self) -> None:
        """Put the verdicts in the order in which they are forgotten."""
        order = sorted((row.heard, key) for key, row in self.rows.items())
        self._order = OrderedDict.fromkeys(key for _, key in order)

    def note(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember what one record of fleet decided, in the order in which `rederive` has it, or a replica that was
        restarted would forget others than the rest."""
        for key, verdict in sorted(verdicts.items()):
            if key:
                self.put(key, verdict)
                self._order[key] = None
                self._order.move_to_end(key)
        while len(self._order) > MAX_VERDICTS:
            self.remove(self._order.popitem(last=False)[0])

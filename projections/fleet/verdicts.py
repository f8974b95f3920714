"""What became of commands in fleet, where that differs from what their zone decided.

A zone takes a leave or a statement of a node agent; only fleet knows whether a budget holds it, or whether another node
has the address. An open hold knows its command. What is remembered here is how a hold of a command was closed, and what
a node agent stated without effect. The ledger of the zone forgets a command as well, so a bounded number is enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from eventstore.folding.fold import Code
from eventstore.folding.table import Table

MAX_VERDICTS = 10_000
"""Commands that are remembered; they take 5 MB."""


class Verdict(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of a command in fleet, decided at this offset. `hold` is -1 if there was none."""

    code: Code
    reason: str
    hold: int
    heard: int


class Verdicts(Table[Verdict]):
    """Verdicts by command. The one that was decided first is forgotten first."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__("verdicts", Verdict)
        self._order: OrderedDict[str, None] = OrderedDict()

    def rederive(self) -> None:
        """Put the commands in the order in which they are forgotten."""
        order = sorted((row.heard, command_id) for command_id, row in self.rows.items())
        self._order = OrderedDict.fromkeys(command_id for _, command_id in order)

    def note(self, verdicts: Mapping[str, Verdict]) -> None:
        """Remember what one record of fleet decided, in the order in which `rederive` has it, or a replica that was
        restarted would forget others than the rest."""
        for command_id, verdict in sorted(verdicts.items()):
            if command_id:
                self.put(command_id, verdict)
                self._order[command_id] = None
                self._order.move_to_end(command_id)
        while len(self._order) > MAX_VERDICTS:
            self.remove(self._order.popitem(last=False)[0])

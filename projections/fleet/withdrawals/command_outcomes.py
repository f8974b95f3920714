"""Outcomes of commands in fleet that differ from the outcome in their zone.

A zone accepts a leave, or an update by a node agent. Only fleet knows whether a budget holds the leave, or whether
another node has the address. While a hold is open, its row names the command. This table stores how the hold of a
command was closed, and the updates by node agents that had no effect. The ledger of the zone forgets commands too, so
the table is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from eventstore.folding.fold import OutcomeCode, RecordMetadata
from eventstore.folding.state_table import StateTable
from eventstore.reasons import Fault, Reason, joined
from projections.field_checks import quoted
from projections.fleet.withdrawals.budgets import Hold

MAX_OUTCOMES = 10_000
"""Maximum number of commands and holds with a stored outcome; the outcomes take 5 MB."""


class CommandOutcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of a command in fleet, decided at `offset`. `hold` is -1 if there was none."""

    code: OutcomeCode
    reason: str
    hold: int
    offset: int
    reason_code: str = ""
    reason_fields: dict[str, str] = {}


def approved(hold: int, approvers: tuple[str, ...], at: RecordMetadata) -> CommandOutcome:
    by = " and ".join(map(quoted, approvers))
    return CommandOutcome("done", f"hold {hold} was approved by {by}", hold, at.offset)


def rejected(hold: Hold, at: RecordMetadata) -> CommandOutcome:
    reason = f"hold {hold.id} was rejected by {quoted(hold.rejected_by)}: the rule tables keep the previous state"
    fault = Fault(reason, Reason.HOLD_REJECTED, hold=hold.id, rejected_by=hold.rejected_by)
    return _refused(fault, hold.id, at)


def overtaken(hold: int, at: RecordMetadata) -> CommandOutcome:
    reason = f"hold {hold} ended without approval: a later command stated the same policy, labels or budget"
    return _refused(Fault(reason, Reason.HOLD_SUPERSEDED, hold=hold), hold, at)


def contested(faults: Sequence[Fault], at: RecordMetadata) -> CommandOutcome:
    """The outcome of a node agent's command with these faults: the code and values of the first fault, and the
    sentences of all faults."""
    return _refused(joined(faults), -1, at)


def _refused(fault: Fault, hold: int, at: RecordMetadata) -> CommandOutcome:
    return CommandOutcome("refused", str(fault), hold, at.offset, str(fault.reason), fault.fields)


class CommandOutcomes(StateTable[CommandOutcome]):
    """Outcomes by command. The outcome that was decided first is evicted first."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__("command_outcomes", CommandOutcome)
        self._order: OrderedDict[str, None] = OrderedDict()

    def rederive(self) -> None:
        """Sort the rows in eviction order."""
        order = sorted((row.offset, key) for key, row in self.rows.items())
        self._order = OrderedDict.fromkeys(key for _, key in order)

    def note(self, verdicts: Mapping[str, CommandOutcome]) -> None:
        """Note the outcomes of one record of fleet. They are sorted by command, as in `rederive`, so that a restarted
        replica evicts the same outcomes as the others."""
        for key, verdict in sorted(verdicts.items()):
            if key:
                self.put(key, verdict)
                self._order[key] = None
                self._order.move_to_end(key)
        while len(self._order) > MAX_OUTCOMES:
            self.remove(self._order.popitem(last=False)[0])

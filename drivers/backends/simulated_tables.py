"""The tables of simulated devices: each distinct table is computed and stored once, and shared by all its devices.

A device's record names a table by number. A frame is applied to a table once, with all checks of a device. The result
is the same for every device with that table and with the same capacity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeAlias

from drivers.wire import relay_messages
from projections.rules import device_table
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, FrameRefused
from projections.rules.rule import Delta

Outcome: TypeAlias = int | FrameRefused
"""The number of the table after a frame, or its refusal."""

OUTCOMES_MAX = 1_024
MESSAGES_MAX = 64
NOTHING = 0
"""The number of the empty table."""


class SharedTables:
    """Numbered tables without duplicates."""

    def __init__(self) -> None:
        self.applied = 0
        self._tables: dict[int, DeviceTable] = {NOTHING: EMPTY_TABLE}
        self._numbers: dict[tuple[int, int, bytes], int] = {(0, 0, EMPTY_TABLE.digest): NOTHING}
        self._next = 1
        self._outcomes: OrderedDict[tuple[int, int, Delta, int], Outcome] = OrderedDict()
        self._messages: OrderedDict[bytes, relay_messages.ToAgent] = OrderedDict()

    def __getitem__(self, number: int) -> DeviceTable:
        return self._tables[number]

    def __len__(self) -> int:
        return len(self._tables)

    def decode(self, data: bytes) -> relay_messages.ToAgent:
        """Decode a relay's message; many zones receive the same one. Raises ProtocolError."""
        message = self._messages.get(data)
        if message is None:
            message = self._messages[data] = relay_messages.decode(data)
            if len(self._messages) > MESSAGES_MAX:
                self._messages.popitem(last=False)
        return message

    def apply(self, number: int, epoch: int, delta: Delta, capacity: int) -> Outcome:
        """The result of a frame on a device with this table."""
        key = (number, epoch, delta, capacity)
        outcome = self._outcomes.get(key)
        if outcome is None:
            self.applied += 1
            after = device_table.apply(self._tables[number], epoch, delta, capacity=capacity)
            outcome = after if isinstance(after, FrameRefused) else self._number(after)
            self._outcomes[key] = outcome
            if len(self._outcomes) > OUTCOMES_MAX:
                self._outcomes.popitem(last=False)
        return outcome

    def keep(self, numbers: Iterable[int]) -> None:
        """Drop all tables except these."""
        kept = {NOTHING, *numbers}
        self._tables = {number: table for number, table in self._tables.items() if number in kept}
        self._numbers = {key: number for key, number in self._numbers.items() if number in kept}
        self._outcomes.clear()

    def _number(self, table: DeviceTable) -> int:
        key = (table.epoch, table.version, table.digest)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._tables[number] = table
            self._next += 1
        return number

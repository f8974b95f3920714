"""What an agent asks of the thing that forwards packets: the one protocol behind which every kind of device stands.

The agent has already judged the frame and computed the table after it. The device gets the steps from the one to the
other, in the order in which they leave no gap, and says how far it got. It may be slow, fail, or lie: it is asked
again, and what it holds is read back. One that is done when it returns says so at once, and costs nobody a timer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from eventstore.errors import TransientError
from projections.rules.device_table import DeviceTable
from projections.rules.rule import SetStep


class DeviceFailed(TransientError):
    """The device did not take the steps; what it holds may be anything between before and after."""


class Device(Protocol):
    """One device's forwarding table."""

    @property
    def capacity(self) -> int:
        """Prefixes that it can hold at any moment."""
        ...

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        """Takes these steps, after which it holds `table`; whether that is in hardware already: at once, or in a while.
        Raises DeviceFailed, at once or then.

        Steps that were taken before may come again after a failure; they change nothing then.
        """
        ...

    async def read_back(self) -> bytes:
        """The digest of what it really holds. Raises DeviceFailed if it cannot say."""
        ...

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        """Makes what it holds, whatever that is, this table, without emptying it first; as `apply` otherwise."""
        ...

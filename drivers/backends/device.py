"""The protocol of a forwarding device, as its agent uses it. Every kind of device implements it.

The agent has validated the frame and computed the resulting table. The device receives the steps between the two
tables, in an order without a gap in protection, and returns the result. A device may be slow, fail, or report a false
success, so its table is read back. A call that finishes at once returns its result; a slow call returns an awaitable.
So the agent needs timers for slow calls only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from eventstore.errors import TransientError
from projections.rules.device_table import DeviceTable
from projections.rules.rule import SetStep


class DeviceFailed(TransientError):
    """The device did not take the steps; its table may be any state between the two tables."""


class DeviceNotReady(DeviceFailed):
    """The device has not been tried yet, as in the first moments of a process. This is no fault."""


class Device(Protocol):
    """The forwarding table of one device."""

    @property
    def capacity(self) -> int:
        """The largest number of prefixes that the device can hold at any moment."""
        ...

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        """Apply these steps, which lead to `table`. Returns whether the hardware holds the table: at once, or as an
        awaitable. Raises DeviceFailed, also from the awaitable.

        Steps may be repeated after a failure; a repeated step changes nothing.
        """
        ...

    async def read_back(self) -> bytes:
        """Read the digest of the device's actual table. Raises DeviceFailed if the device cannot report it."""
        ...

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        """Make the device hold `table`, whatever it holds now, without emptying it first. The result and the errors are
        those of `apply`."""
        ...

    async def run(self) -> None:
        """Keep what the device needs, such as a connection, until cancelled. Returns at once if it needs nothing."""
        ...


class Programmed(NamedTuple):
    """The network of a device as it reads it back: the digest of the document that is in effect, and the interfaces of
    that document whose ports do not exist yet."""

    digest: bytes
    unresolved: tuple[str, ...] = ()


class NetworkDevice(Protocol):
    """The interfaces and switches of one device, as a network document describes them."""

    async def program(self, document: bytes, digest: bytes) -> Programmed:
        """Make the device hold this document, whatever it holds now: new connections are made before old ones are
        broken. An interface without a port does not hold up the others; the device connects it once the port exists.
        Raises DeviceFailed if the device may hold neither document.
        """
        ...

    async def read_back(self) -> Programmed:
        """Read what the device holds. Raises DeviceFailed if the device cannot report it."""
        ...

    async def run(self) -> None:
        """Keep what the device needs, such as a connection, until cancelled. Returns at once if it needs nothing."""
        ...

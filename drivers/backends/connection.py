"""The connection of a device to its bridge: the present session, or why there is none. No I/O."""

from __future__ import annotations

from enum import Enum, auto
from typing import Generic, TypeVar

from drivers.backends.device import DeviceFailed, DeviceNotReady

S = TypeVar("S")


class ConnectionState(Enum):
    """Whether there is a session. NOT_TRIED is the state of the first moments of a process, which is no fault."""

    NOT_TRIED = auto()
    CONNECTED = auto()
    LOST = auto()


class Connection(Generic[S]):
    """The sessions of one device, one after the other."""

    def __init__(self) -> None:
        self.state = ConnectionState.NOT_TRIED
        self.fault = "no session yet"
        """Why there is no session; empty while there is one."""
        self.session: S | None = None
        self.count = 0
        """The number of sessions so far."""

    def opened(self, session: S) -> None:
        self.state, self.fault, self.session = ConnectionState.CONNECTED, "", session
        self.count += 1

    def lost(self, fault: str) -> bool:
        """There is no session, for this reason. Returns whether it is a new one."""
        is_new = self.fault != fault
        self.state, self.fault, self.session = ConnectionState.LOST, fault, None
        return is_new

    def required(self) -> S:
        """The present session. Raises DeviceFailed."""
        if self.session is None:
            failure = DeviceNotReady if self.state is ConnectionState.NOT_TRIED else DeviceFailed
            raise failure(f"the bridge is not connected: {self.fault}")
        return self.session

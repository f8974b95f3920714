"""The connection of a device to its bridge: the present session, or why there is none, and how long to wait for the
next one. No I/O.

The wait doubles with each session that fails or ends soon. A switch that accepts sessions and closes them at once would
be dialed in a loop if each new session began with the shortest wait.
"""

from __future__ import annotations

import random
from enum import Enum, auto
from typing import Generic, TypeVar

from drivers.backends.device import DeviceFailed, DeviceNotReady
from eventstore.backoff import backoff_ceiling

S = TypeVar("S")

RECONNECT_FIRST_S, RECONNECT_LAST_S = 0.1, 5.0
LASTING_S = RECONNECT_LAST_S
"""A session that is as old as this lasts: dials are no more frequent than with the longest wait."""


class ConnectionState(Enum):
    """Whether there is a session. NOT_TRIED is the state of the first moments of a process, which is no fault."""

    NOT_TRIED = auto()
    CONNECTED = auto()
    LOST = auto()


class Connection(Generic[S]):
    """The sessions of one device, one after the other. Times are of one clock, in seconds."""

    def __init__(self, rng: random.Random) -> None:
        self.state = ConnectionState.NOT_TRIED
        self.fault = "no session yet"
        """Why there is no session; empty while there is one."""
        self.session: S | None = None
        self.count = 0
        """The number of sessions so far."""
        self._rng = rng
        self._failures = 0
        self._opened_at = 0.0

    def opened(self, session: S, now: float) -> None:
        self.state, self.fault, self.session = ConnectionState.CONNECTED, "", session
        self.count += 1
        self._opened_at = now

    def lost(self, fault: str, now: float) -> bool:
        """There is no session, for this reason. Returns whether it is a new one."""
        has_lasted = self.session is not None and now >= self._opened_at + LASTING_S
        self._failures = 0 if has_lasted else self._failures + 1
        is_new = self.fault != fault
        self.state, self.fault, self.session = ConnectionState.LOST, fault, None
        return is_new

    def wait_s(self) -> float:
        """The wait before the next dial, with jitter: the sessions of all bridges of a switch end at once."""
        return backoff_ceiling(self._failures, RECONNECT_FIRST_S, RECONNECT_LAST_S) * self._rng.uniform(0.5, 1.0)

    def required(self) -> S:
        """The present session. Raises DeviceFailed."""
        if self.session is None:
            failure = DeviceNotReady if self.state is ConnectionState.NOT_TRIED else DeviceFailed
            raise failure(f"the bridge is not connected: {self.fault}")
        return self.session

"""The retries of one call: the order of the servers and the pauses between attempts.

A command may be sent again because it carries its id: it takes effect at most once. A client tries each server in turn,
and stays with the one that responded. Between rounds it pauses with full jitter, and a budget bounds the share of
retries, so that clients do not multiply the load of a plane that is slow. If the plane asks for a longer pause, the
client waits that long, up to a maximum. gRPC's own retries stay within one channel, so they cannot move to the next
server.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from commands.client.errors import CallFailed

PAUSE_S = 0.2
PAUSE_S_MAX = 5.0
RETRY_DELAY_S_MAX = 30.0
"""The longest pause that a plane can ask for."""
BUDGET_MAX = 50.0
EARNED = 0.1
"""Retries that one successful call adds to the budget: in the long term, a tenth of the calls may be repeated."""


class Retries:
    """The servers of a client, beginning with the one that responded last, and the budget of its retries."""

    def __init__(self, servers: Sequence[str], *, rounds: int, rng: random.Random) -> None:
        self.servers = list(servers)
        self._rounds = rounds
        self._rng = rng
        self._budget = BUDGET_MAX

    def begin(self) -> Attempts:
        """The attempts of one call."""
        return Attempts(self)

    def succeeded(self, server: str) -> None:
        """Stay with this server, and add a fraction of a retry to the budget."""
        self.servers.remove(server)
        self.servers.insert(0, server)
        self._budget = min(BUDGET_MAX, self._budget + EARNED)

    def rounds(self) -> Iterator[float]:
        """The pause in seconds before each round; ends when the rounds or the budget are used up."""
        yield 0.0
        for number in range(1, self._rounds):
            if self._budget < 1.0:
                return
            self._budget -= 1.0
            yield self._rng.uniform(0.0, min(PAUSE_S_MAX, PAUSE_S * 2**number))


class Attempts:
    """The attempts of one call: iterate over server and pause, and report each failure."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._failures: list[CallFailed] = []

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for pause_s in self._retries.rounds():
            asked_s = max((failure.retry_delay_s for failure in self._failures), default=0.0)
            for number, server in enumerate(list(self._retries.servers)):
                yield server, 0.0 if number else max(pause_s, min(asked_s, RETRY_DELAY_S_MAX))

    def failed(self, error: CallFailed) -> None:
        """Remember the failure of an attempt. Raises it if no other attempt may succeed."""
        if not error.is_retriable:
            raise error
        self._failures.append(error)

    def last_failure(self) -> CallFailed:
        """The most informative failure: an error of the plane, else the failure of a request that was sent, else the
        last."""
        from_plane = (error for error in self._failures if error.is_from_plane)
        sent = (error for error in self._failures if error.was_sent)
        return next(from_plane, None) or next(sent, None) or self._failures[-1]

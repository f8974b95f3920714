"""How many agents may open a link per second, and when the others should come back.

A relay that restarts is dialed by a thousand agents at once. Taking them all at once makes every handshake slow,
times some out, and they come back (Istio's herds took minutes). So they are taken at a steady rate, and each one sent
away is told a time of its own: the next free place in line, with jitter.

Every identity (a DPU's certificate, or else an address) has a share of that rate. Without shares, ten connections that
asked again and again, whatever they were told, kept another DPU out for 45 s: they took every free place, and each of
their refusals moved the end of the line. Now a request beyond the share of its identity takes no place, and an identity
that was told a time keeps that place and gets no second one. A DPU that comes back as told finds room that others
do not have: no more are told to come than the rate allows.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

ADVICE_S_MAX = 30.0
DPU_AT_ONCE, DPU_EVERY_S = 5.0, 2.0
"""Links that one DPU may open at once after a pause, and how often then: it needs one, and may lose it a few times."""
SHARED_IDENTITY_SHARE = 0.5
"""Share of the rate of one identity that may speak for many DPUs: an address without TLS, a simulator."""
IDENTITIES_MAX = 20_000
"""Identities remembered; the one not seen for longest is forgotten first."""


class _Identity:
    """The tokens of one identity, and the times at which it was told to come back."""

    __slots__ = ("at_s", "queue_end_s", "retry_at_s", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.at_s = now
        self.retry_at_s = 0.0
        """When it may come back, as far as the relay had no free place."""
        self.queue_end_s = 0.0
        """The end of its own queue: of the links that it asked for beyond its share."""

    def take(self, at_once: float, every_s: float, now: float) -> float:
        """0, and one of its share is taken; else the seconds until its own queue is served."""
        self.tokens = min(at_once, self.tokens + (now - self.at_s) / every_s)
        self.at_s = now
        if self.tokens >= 1.0 - 1e-9:  # sums of fractions
            self.tokens -= 1.0
            return 0.0
        free_s = now + (1.0 - self.tokens) * every_s
        self.queue_end_s = min(max(self.queue_end_s + every_s, free_s), now + ADVICE_S_MAX)
        return self.queue_end_s - now


class LinkAdmission:
    """A token bucket whose refusals are spread over the time that it takes to serve them, and one per identity."""

    def __init__(self, per_second: float, burst: int, *, now: Callable[[], float], rng: random.Random) -> None:
        self.refused = 0
        """Links that were told to come back later, for whatever reason."""
        self.over_share = 0
        """Those of them that were beyond the share of their identity."""
        self._interval_s = 1.0 / per_second
        self._burst_s = burst * self._interval_s
        self._shared_identity = (max(1.0, burst * SHARED_IDENTITY_SHARE), self._interval_s / SHARED_IDENTITY_SHARE)
        self._now = now
        self._rng = rng
        self._taken_until = 0.0
        self._advised_until = 0.0
        self._identities: OrderedDict[str, _Identity] = OrderedDict()

    def admit(self, who: str, *, is_one_dpu: bool) -> float:
        """0 for come in; else the seconds after which to come back."""
        now = self._now()
        at_once, every_s = (DPU_AT_ONCE, DPU_EVERY_S) if is_one_dpu else self._shared_identity
        identity = self._identity(who, at_once, now)
        if wait_s := identity.take(at_once, every_s, now):
            self.over_share += 1
            self.refused += 1
            return max(wait_s, identity.retry_at_s - now) * self._rng.uniform(1.0, 1.25)
        taken_until = max(self._taken_until, now) + self._interval_s
        returns = is_one_dpu and 0.0 < identity.retry_at_s <= now
        if taken_until - now <= self._burst_s * (2 if returns else 1) + 1e-9:
            self._taken_until = taken_until
            identity.retry_at_s = 0.0
            return 0.0
        self.refused += 1
        if is_one_dpu and identity.retry_at_s > now:
            return identity.retry_at_s - now
        self._advised_until = min(max(self._advised_until, taken_until) + self._interval_s, now + ADVICE_S_MAX)
        advice_s = (self._advised_until - now) * self._rng.uniform(0.75, 1.25)
        identity.retry_at_s = now + advice_s if is_one_dpu else 0.0
        return advice_s

    def _identity(self, who: str, at_once: float, now: float) -> _Identity:
        found = self._identities.get(who)
        if found is None:
            found = self._identities[who] = _Identity(at_once, now)
            if len(self._identities) > IDENTITIES_MAX:
                self._identities.popitem(last=False)
        else:
            self._identities.move_to_end(who)
        return found

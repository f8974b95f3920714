"""Admission control: the rate at which agents may open links, and the times at which refused agents should retry.

A restarted relay is dialed by a thousand agents at once. Accepting all of them at once makes every handshake slow; some
time out and are repeated (Istio had such reconnect storms for minutes). The relay therefore accepts links at a steady
rate, and gives each refused agent a time of its own: the next free place in the queue, with jitter.

Every identity (a DPU's certificate, or else an address) has a share of that rate. Without shares, ten connections that
ignored their retry times kept another DPU out for 45 s: they took every free place, and each of their refusals extended
the queue. A request beyond the share of its identity therefore takes no place in the queue. A refused DPU has one place
in the queue. If it returns before its retry time and is refused again, it gets no second place. A DPU that returns at
its retry time finds capacity reserved for it, since retry times are given at the admitted rate.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

ADVICE_S_MAX = 30.0
DPU_AT_ONCE, DPU_EVERY_S = 5.0, 2.0
"""The number of links that one DPU may open at once, and the seconds until each further one. A DPU needs one link, and
may lose a few."""
SHARED_IDENTITY_SHARE = 0.5
"""Share of the rate for an identity of many DPUs: an address without TLS, a simulator."""
IDENTITIES_MAX = 20_000
"""Maximum number of identities in memory; the least recently seen is dropped first."""


class _Identity:
    """The tokens of one identity, and the time at which it should retry."""

    __slots__ = ("at_s", "queue_end_s", "retry_at_s", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.at_s = now
        self.retry_at_s = 0.0
        """The retry time that the relay gave this identity; 0 for none."""
        self.queue_end_s = 0.0
        """End of the identity's own queue of retry times, for links beyond its share."""

    def take(self, at_once: float, every_s: float, now: float) -> float:
        """Take a token and return 0, or return the seconds until the identity's next token."""
        self.tokens = min(at_once, self.tokens + (now - self.at_s) / every_s)
        self.at_s = now
        if self.tokens >= 1.0 - 1e-9:  # tolerance for sums of fractions
            self.tokens -= 1.0
            return 0.0
        free_s = now + (1.0 - self.tokens) * every_s
        self.queue_end_s = min(max(self.queue_end_s + every_s, free_s), now + ADVICE_S_MAX)
        return self.queue_end_s - now


class LinkAdmission:
    """A token bucket for all links and one per identity. Retry times are spread over the time that the queue needs."""

    def __init__(self, per_second: float, burst: int, *, now: Callable[[], float], rng: random.Random) -> None:
        self.refused = 0
        """Number of refused links, for any reason."""
        self._interval_s = 1.0 / per_second
        self._burst_s = burst * self._interval_s
        self._shared_identity = (max(1.0, burst * SHARED_IDENTITY_SHARE), self._interval_s / SHARED_IDENTITY_SHARE)
        self._now = now
        self._rng = rng
        self._taken_until = 0.0
        self._advised_until = 0.0
        self._identities: OrderedDict[str, _Identity] = OrderedDict()

    def admit(self, who: str, *, is_one_dpu: bool) -> float:
        """Return 0 to admit a link, or the seconds until a retry."""
        now = self._now()
        at_once, every_s = (DPU_AT_ONCE, DPU_EVERY_S) if is_one_dpu else self._shared_identity
        identity = self._identity(who, at_once, now)
        if wait_s := identity.take(at_once, every_s, now):
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

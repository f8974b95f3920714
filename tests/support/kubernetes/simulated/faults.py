"""The ways in which the simulated API server fails when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias

from schemas.kubernetes.api import ApiError

Verb: TypeAlias = Literal["get", "watch", "create", "replace", "patch", "delete"]
WRITES: frozenset[Verb] = frozenset({"create", "replace", "patch", "delete"})
_REASONS = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class Refusal:
    """An error for requests to come. With `is_committed` the request takes effect all the same."""

    verbs: frozenset[Verb]
    status: int
    retry_after_s: float | None
    is_committed: bool
    times: int
    within: str

    def error(self) -> ApiError:
        reason = _REASONS.get(self.status, "")
        return ApiError(self.status, reason, f"injected: {reason or self.status}", retry_after_s=self.retry_after_s)


@dataclass
class Faults:
    """The faults in force. By default there are none."""

    is_down: bool = False
    """Requests do not reach the server; use SimulatedApi.go_down to end its watches too."""
    latency_s: float = 0.0
    """The time from a request to its effect."""
    has_bookmarks: bool = True
    """A real server has none for a quiet collection, unless etcd notifies it of its progress."""
    longest_watch_s: float | None = None
    """Watches end after this time, whatever the client asks for."""
    shown: Callable[[str, list[dict[str, Any]]], list[dict[str, Any]]] | None = None
    """The objects that a list at this path shows, of those that exist; None shows all."""
    disorder: Random | None = None
    """With a generator, watches repeat some earlier events, and swap some with the one before."""
    disorder_share: float = 0.3
    _refusals: list[Refusal] = field(default_factory=list)

    def clear(self) -> None:
        """End all faults. Open watches remain as they are."""
        vars(self).update(vars(Faults()))

    def refuse(
        self,
        status: int,
        *verbs: Verb,
        times: int = 1,
        retry_after_s: float | None = None,
        is_committed: bool = False,
        within: str = "",
    ) -> None:
        """Answer the next requests of these verbs (default: all), with `within` in their path or query, by an error."""
        chosen = frozenset(verbs) or WRITES | {"get", "watch"}
        self._refusals.append(Refusal(chosen, status, retry_after_s, is_committed, times, within))

    def take(self, verb: Verb, request: str) -> Refusal | None:
        """The refusal for a request, if one is due."""
        for refusal in self._refusals:
            if verb in refusal.verbs and refusal.within in request:
                refusal.times -= 1
                if not refusal.times:
                    self._refusals.remove(refusal)
                return refusal
        return None

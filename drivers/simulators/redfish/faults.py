"""Faults of a simulated BMC: of its next requests, of its next installations, and at random by a seed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from drivers.simulators.redfish.messages import Answer, Request, error_body

RequestFault: TypeAlias = Literal["hang", "cut", "mute", "busy", "in-progress", "error", "garbage", "ignore"]
"""`hang` keeps the socket and never answers; `cut` closes it before the request is handled, `mute` after. `busy` is 503
with Retry-After, `in-progress` 400 for an update, `error` 500, `garbage` a body that is not JSON, and `ignore` a
success without an effect."""


class Outcome(NamedTuple):
    """How an installation goes. A `lie` is reported as completed without an effect. `fail` and `stall` happen at
    `percent`; `text` is the reason of a failure."""

    kind: Literal["honest", "lie", "fail", "stall"] = "honest"
    percent: int = 50
    text: str = "writing the flash failed"


HONEST = Outcome()


class Shares(NamedTuple):
    """Faults at random: shares of requests, and of installations for `lie` and `fail`."""

    hang: float = 0.0
    cut: float = 0.0
    mute: float = 0.0
    busy: float = 0.0
    lie: float = 0.0
    fail: float = 0.0


NO_SHARES = Shares()


@dataclass
class Outcomes:
    """The outcomes of the next installations; later ones are honest but for those that chance decides."""

    rng: Random
    shares: Shares = NO_SHARES
    planned: deque[Outcome] = field(default_factory=deque)

    def next(self) -> Outcome:
        if self.planned:
            return self.planned.popleft()
        drawn = self.rng.random()
        if drawn < self.shares.lie:
            return Outcome("lie")
        return Outcome("fail") if drawn < self.shares.lie + self.shares.fail else HONEST


@dataclass
class Planned:
    """A fault of the next `times` requests with this method and with `within` in their path; empty texts fit all."""

    fault: RequestFault
    method: str = ""
    within: str = ""
    times: int = 1

    def concerns(self, request: Request) -> bool:
        return self.method in ("", request.method) and self.within in request.path


@dataclass
class RequestFaults:
    """Decides the fault of each request."""

    rng: Random
    shares: Shares = NO_SHARES
    planned: list[Planned] = field(default_factory=list)

    def plan(self, fault: RequestFault, *, method: str = "", within: str = "", times: int = 1) -> None:
        self.planned.append(Planned(fault, method, within, times))

    def of(self, request: Request) -> RequestFault | None:
        """The fault of a request; None if it has none."""
        for each in self.planned:
            if each.concerns(request):
                each.times -= 1
                if not each.times:
                    self.planned.remove(each)
                return each.fault
        if self.shares == NO_SHARES:
            return None
        drawn = self.rng.random()
        kinds: tuple[RequestFault, ...] = ("hang", "cut", "mute", "busy")
        for kind, share in zip(kinds, self.shares, strict=False):
            if drawn < share:
                return kind
            drawn -= share
        return None


def refusal(fault: RequestFault) -> Answer | None:
    """The answer that stands for a fault; None for a fault of the connection."""
    match fault:
        case "busy":
            text = "The service is temporarily unavailable. Retry in 1 seconds."
            return Answer(503, error_body("ServiceTemporarilyUnavailable", text), {"Retry-After": "1"})
        case "in-progress":
            return update_in_progress()
        case "error":
            return Answer(500, error_body("InternalError", "The request failed due to an internal service error."))
        case "garbage":
            return Answer(200, "<html>bmcweb: upstream connect error")
        case "ignore":
            return Answer(204)
        case _:
            return None


def update_in_progress() -> Answer:
    """The refusal of a second update, as BlueField's BMC phrases it."""
    return Answer(400, error_body("ResourceInUse", "An update is in progress."))

"""The faults of single answers that the faulting proxy injects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def error_body(status: int, message: str) -> dict[str, Any]:
    """A Status object as an API server sends it."""
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": status,
        "reason": REASONS[status],
        "message": message,
    }


@dataclass(frozen=True, kw_only=True)
class AnswerFault:
    """A fault of one answer. The server handles the request, after `request_delay_s`."""

    request_delay_s: float = 0.0
    delay_s: float = 0.0
    """Delay of the answer."""
    cut_after: float | None = None
    """Share of the answer after which the connection is reset; None if it is not."""

    def __str__(self) -> str:
        if self.cut_after is not None:
            return "cut answer"
        return "slow request" if self.request_delay_s else "slow answer"


@dataclass(frozen=True, kw_only=True)
class Refusal(AnswerFault):
    """An error as the answer. With `is_committed`, the server handles the request before."""

    status: int
    retry_after_s: int | None = None
    is_committed: bool = False

    def __str__(self) -> str:
        return f"{self.status} after commit" if self.is_committed else f"{self.status}"

    def response(self) -> web.Response:
        headers = {"Retry-After": str(self.retry_after_s)} if self.retry_after_s is not None else {}
        body = error_body(self.status, f"{REASONS[self.status]} (injected)")
        return web.json_response(body, status=self.status, headers=headers)


@dataclass
class Injected:
    """A fault for requests to come."""

    fault: AnswerFault
    methods: frozenset[str]
    within: str
    times: int

    def concerns(self, method: str, target: str) -> bool:
        return (not self.methods or method in self.methods) and self.within in target

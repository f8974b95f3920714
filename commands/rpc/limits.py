"""Limits of one principal on one server: call rate, concurrent calls, message size.

A token bucket per principal keeps one caller's loop from starving the others. A refused call has not reached its
handler, so the client may retry it later. gRPC limits connections and streams only. Libraries with token buckets
(aiolimiter) make callers wait instead of refusing them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from projections.field_checks import quoted


class LimitExceeded(Exception):
    """The principal exceeds a limit; the message says which. gRPC: RESOURCE_EXHAUSTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server; each protects the process from one kind of caller."""

    rate_per_s: float = 50_000.0
    """Maximum rate of one principal, on average: calls (and messages of streams) per second."""

    burst: float = 50_000.0
    """Maximum number of calls that one principal may make at once after a pause."""

    concurrent_calls: int = 5_000
    """Maximum number of concurrent calls of one principal."""

    concurrent_streams: int = 100
    """Maximum number of concurrent response streams of one principal. The data of a stream, such as a whole table,
    stays in memory until the client has read it."""

    lasting_streams: int = 50
    """Maximum number of concurrent streams of one server that follow the log. On Kafka each of them is a consumer."""

    deadline_s_max: float = 30.0
    """Maximum time that a call may wait for the log, whatever its own deadline says."""

    deadline_s_default: float = 10.0
    """The deadline of a call that has none."""

    message_bytes_max: int = 1024 * 1024
    """Maximum size of a request in bytes."""

    metadata_bytes_max: int = 8 * 1024
    """Maximum size of a call's metadata in bytes."""

    streams_per_connection: int = 1_000
    """Maximum number of concurrent calls on one connection. The limit is well above the calls of an honest client: the
    server counts a call until it is destroyed, so a client that always has exactly the advertised number of calls under
    way gets some calls reset (observed with 100).
    """

    connections: int = 2_000
    """Maximum number of open connections. gRPC has no limit by address."""

    handshake_s: float = 10.0
    """Maximum time for the TLS handshake and the first HTTP/2 frames of a new connection."""

    idle_s_max: float = 300.0
    """A connection without a call for this long is closed; honest clients reconnect automatically."""

    keepalive_s: float = 60.0
    """Interval of keepalive pings on a connection with calls under way."""

    keepalive_answer_s: float = 20.0
    """Maximum time to the answer of a keepalive ping before the connection is closed."""

    ping_s_min: float = 60.0
    """Minimum interval of a client's pings on a connection without calls; more frequent pings close it, after two
    warnings.
    """

    stream_in_flight: int = 32
    """Maximum number of concurrent requests of one stream of joins; reading the stream pauses at this number."""

    principals_max: int = 10_000
    """Maximum number of remembered principals; the least recently seen is forgotten first."""


DEFAULTS = Limits()


class _TokenBucket:
    """The token bucket of one principal and the count of its calls under way. Each call enters it as a context."""

    __slots__ = ("_admission", "answers", "calls", "filled_at_s", "tokens")

    def __init__(self, admission: Admission, tokens: float, now_s: float) -> None:
        self._admission = admission
        self.tokens = tokens
        self.filled_at_s = now_s
        self.calls = 0
        self.answers = 0

    def __enter__(self) -> None:
        self.calls += 1
        self._admission.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        self._admission.call_ended()


class Admission:
    """Admits calls by principal, and counts them. `now_s` is a monotonic clock."""

    def __init__(self, limits: Limits, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()
        self.refused = 0
        self.under_way = 0
        self._drained: asyncio.Event | None = None

    def admit(self, principal: str) -> AbstractContextManager[None]:
        """Take a token for a call. The returned context counts the call as under way. Raises LimitExceeded."""
        bucket = self._bucket(principal)
        if bucket.calls >= self._limits.concurrent_calls:
            self.refused += 1
            raise LimitExceeded(f"principal {quoted(principal)}: {bucket.calls} calls in progress are the limit")
        self._take(bucket, principal)
        return bucket

    @contextmanager
    def admit_stream(self, principal: str) -> Iterator[None]:
        """Like `admit`, for a call whose response is a stream. Raises LimitExceeded."""
        bucket = self._bucket(principal)
        if bucket.answers >= self._limits.concurrent_streams:
            self.refused += 1
            raise LimitExceeded(
                f"principal {quoted(principal)}: {bucket.answers} streamed responses in progress are the limit;"
                " read one to its end first"
            )
        with self.admit(principal):
            bucket.answers += 1
            try:
                yield
            finally:
                bucket.answers -= 1

    def call_ended(self) -> None:
        """Count a call as ended."""
        self.under_way -= 1
        if self._drained is not None and not self.under_way:
            self._drained.set()

    async def drained(self) -> None:
        """Wait until no call is under way. The server must already refuse new calls."""
        self._drained = asyncio.Event()
        if self.under_way:
            await self._drained.wait()

    async def wait_for_token(self, principal: str) -> None:
        """Take a token for one more message of a call under way; wait until there is one.

        This slows down the sender of a stream. A refused message would leave its command without an outcome.
        """
        while True:
            bucket = self._bucket(principal)
            self._fill(bucket)
            if bucket.tokens >= 1.0:
                bucket.tokens -= 1.0
                return
            await asyncio.sleep((1.0 - bucket.tokens) / self._limits.rate_per_s)

    def _bucket(self, principal: str) -> _TokenBucket:
        bucket = self._buckets.get(principal)
        if bucket is None:
            bucket = self._buckets[principal] = _TokenBucket(self, self._limits.burst, self._now_s())
            self._forget_one()
        else:
            self._buckets.move_to_end(principal)
        return bucket

    def _forget_one(self) -> None:
        if len(self._buckets) > self._limits.principals_max:
            idle = next((name for name, bucket in self._buckets.items() if bucket.calls == 0), None)
            if idle is not None:
                del self._buckets[idle]

    def _fill(self, bucket: _TokenBucket) -> None:
        now_s = self._now_s()
        filled = bucket.tokens + (now_s - bucket.filled_at_s) * self._limits.rate_per_s
        bucket.tokens = min(filled, self._limits.burst)
        bucket.filled_at_s = now_s

    def _take(self, bucket: _TokenBucket, principal: str) -> None:
        self._fill(bucket)
        if bucket.tokens < 1.0:
            self.refused += 1
            raise LimitExceeded(
                f"principal {quoted(principal)}: the limit is {self._limits.rate_per_s:g} calls per second"
            )
        bucket.tokens -= 1.0

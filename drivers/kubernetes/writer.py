"""Writes to an API server: a queue with one entry per object, and the handling of every failure.

An entry has a name but no body. Its request is planned when it is due, from the folds and the object as last seen. So
an object has at most one pending write, the newest state wins, and a write that is no longer needed is not made.

- Conflict (409), absence (404) or a refusal (422): the object is read again, and the request planned again.
- No answer, or an error of the server (5xx): the write may have taken effect, so the object is read before the next.
- With `catch_up`, a request is planned from folds that have all that was in the log when the object was last seen. A
  replica that was stopped for a while therefore takes back nothing that another one wrote.
- Too many requests (429), or no server: all requests wait for a backoff with jitter, or longer if the server asks.
- Each object has a budget of attempts. After the last one, the object waits for its next change or for a slow retry. If
  the server was the cause, the object waits no longer than until the server has recovered (`paused.py`).

A client library that repeats a request after a timeout doubles the load of a server that is slow already. Here a read,
which changes nothing, follows a write of unknown outcome, and the pause grows with the failures.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from drivers.kubernetes.paused import PausedObjects
from drivers.kubernetes.request_budget import RequestBudget
from eventstore.backoff import backoff_ceiling
from projections.kubernetes.resources.manifests import FIELD_MANAGER
from schemas.kubernetes.api import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

logger = logging.getLogger(__name__)

RETRY_S = 0.5
RETRY_S_MAX = 30.0
ATTEMPTS = 6
"""Consecutive failed writes of an object after which its next attempt waits for SLOW_RETRY_S."""
SLOW_RETRY_S = 300.0
"""Wait, with jitter, of an object without remaining attempts, or after the server has refused its write."""
PROBE_S = 30.0
"""Wait, with jitter, of one object of a target whose objects wait because of the server: it shows a recovery."""
RECOVERY_S = 10.0
"""Time over which the objects of a target are tried again once the server has recovered."""
URGENT_S = 3_600.0
"""Head start of an urgent object in the queue. At the request limit, other objects may wait this long behind urgent
ones."""
BEHIND_S = 0.5
"""Wait, with jitter, after the folds could not catch up with the log."""
CONFIRMED_S = 5.0
"""Maximum time between the question for the end of the log and the write that relies on it. It is exceeded by a process
that was stopped in between."""
CONCURRENT = 4
"""Maximum concurrent requests; each request occupies a seat of the server's priority level."""
POSITION_REFUSED = "logPosition must not go back"
"""The message of the CEL rule by which the server refuses an older status."""
_APPLY = {"fieldManager": FIELD_MANAGER, "force": "true"}
_BAD_REQUEST = 400
_TOO_LARGE = 413
_INVALID = 422
_UNAVAILABLE = 503
_STALE_MAX = 64
"""The queue is rebuilt when its outdated entries outnumber its other entries by more than this number."""
_LOGGED = frozenset((1, 10, 100, 1_000))
_OF_OBJECT = frozenset((CONFLICT, _BAD_REQUEST, _TOO_LARGE, _INVALID))
"""Responses that concern one object: the success of another object says nothing about it."""


class Request(NamedTuple):
    """A write of one object. `path` may name a subresource. A patch is a JSON patch; a delete has the object's uid as
    body. To apply means server-side apply of a manifest: fields of the plane are its own, whoever changed them. With
    `is_takeover`, the object is read first, because another replica may have written it unseen."""

    verb: Literal["create", "replace", "patch", "apply", "delete"]
    path: str
    body: Any
    is_takeover: bool = False


class Wait(NamedTuple):
    """Nothing to write before this time has passed."""

    seconds: float


Plan: TypeAlias = Request | Wait | None


CatchUp: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns True once the folds have every record that was in the log at the time of the call, and everything that
follows is derived. Returns False if that takes too long."""


class Target(Protocol):
    """Plans the writes of the objects of one kind, and records the observed objects. Its methods return immediately."""

    def plan(self, name: str) -> Plan:
        """The next write of an object; None if no write is needed."""
        ...

    def path(self, name: str) -> str | None:
        """The path of an object; None if the target does not know the object any more."""
        ...

    def version(self, name: str) -> int:
        """The recorded version of an object, or of its deletion; -1 for an unknown name."""
        ...

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        """Record an object that the server returned. `sent_at` is the object's recorded version at the time of the
        request. Raises msgspec.DecodeError."""
        ...

    def saw_none(self, name: str) -> None:
        """Record that the server has no such object."""
        ...

    def wrote(self, name: str) -> None:
        """Record that the server confirmed a write of the object."""
        ...


@dataclass
class WriteCounts:
    """Counts since the start."""

    writes: int = 0
    """Writes that the server confirmed."""
    reads: int = 0
    conflicts: int = 0
    unknown: int = 0
    """Writes without an answer, or with an error of the server: they may have taken effect."""
    throttled: int = 0
    behind: int = 0
    """Statuses that the server refused because it has a newer one: another replica is ahead."""
    refused: int = 0
    given_up: int = 0
    """Objects whose attempts were used up."""


Key: TypeAlias = tuple[Target, str]


class Writer:
    """Serves marked objects while `run` runs. The queue has at most one entry per object. Targets whose objects show no
    position of the log need `catch_up`."""

    def __init__(
        self,
        api: KubernetesApi,
        budget: RequestBudget,
        *,
        rng: Random,
        source: str = "",
        catch_up: CatchUp | None = None,
    ) -> None:
        self.counts = WriteCounts()
        self.source = source
        self._api = api
        self._rng = rng
        self._budget = budget
        self._catch_up = catch_up
        self._due_s: dict[Key, float] = {}
        self._order: list[tuple[float, int, Key]] = []
        self._pushed = 0
        self._busy: set[Key] = set()
        self._failed: dict[Key, int] = {}
        self._paused: PausedObjects[Target] = PausedObjects(least_s=PROBE_S, most_s=SLOW_RETRY_S)
        self._unread: set[Key] = set()
        """Objects that must be read before they are written again."""
        self._server_failed = 0
        self._blocked_until_s = 0.0
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._changed = asyncio.Event()

    @property
    def pending(self) -> int:
        """Objects in the queue."""
        return len(self._due_s)

    def mark(self, target: Target, name: str, *, is_urgent: bool = False, delay_s: float = 0.0) -> None:
        """Serve an object after a delay, before others if it is urgent. An object whose last attempts failed keeps its
        pause. An object without remaining attempts gets new ones."""
        key = (target, name)
        failed = self._failed.get(key, 0)
        if failed >= ATTEMPTS:
            del self._failed[key]
            self._paused.discard(key)
        elif failed:
            return
        self._put(key, -URGENT_S if is_urgent else delay_s)

    def recovered(self, target: Target) -> None:
        """Try the objects of a target again that wait because the server failed: the server has recovered."""
        for name in self._paused.release(target, _now_s()):
            key = (target, name)
            self._failed[key] = ATTEMPTS - 1
            self._put(key, self._rng.uniform(0.0, RECOVERY_S))
        self._keep_probe(target)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._slots.acquire()
                tasks.create_task(self._serve(await self._next()))

    # -- the queue

    def _put(self, key: Key, delay_s: float, *, is_pause: bool = False) -> None:
        """Enter an object into the queue. An earlier entry stays, unless this is a pause after a failure."""
        due_s = _now_s() + delay_s
        if not is_pause and self._due_s.get(key, due_s + 1) <= due_s:
            return
        self._due_s[key] = due_s
        self._push(key)

    def _push(self, key: Key) -> None:
        if len(self._order) > 2 * len(self._due_s) + _STALE_MAX:
            self._order = [entry for entry in self._order if self._due_s.get(entry[2]) == entry[0]]
            heapq.heapify(self._order)
        self._pushed += 1
        heapq.heappush(self._order, (self._due_s[key], self._pushed, key))
        self._changed.set()

    async def _next(self) -> Key:
        """Wait for the object that is due first, and take it out of the queue."""
        while True:
            self._changed.clear()
            due_s = self._first_due_s()
            if due_s is not None and due_s <= _now_s():
                _, _, key = heapq.heappop(self._order)
                del self._due_s[key]
                self._busy.add(key)
                return key
            try:
                async with asyncio.timeout_at(due_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _first_due_s(self) -> float | None:
        """The due time of the first valid entry. Drops outdated entries and those of objects in service before it."""
        while self._order:
            due_s, _, key = self._order[0]
            if key not in self._busy and self._due_s.get(key) == due_s:
                return max(due_s, self._blocked_until_s)
            heapq.heappop(self._order)
        return None

    # -- requests

    async def _serve(self, key: Key) -> None:
        try:
            await self._advance(key)
        except ApiError as error:
            self._failure(key, error)
        finally:
            self._busy.discard(key)
            self._slots.release()
            if key in self._due_s:
                self._push(key)

    async def _advance(self, key: Key) -> None:
        """Make the next request for an object, if it needs one. Raises ApiError."""
        target, name = key
        if key in self._unread:
            await self._read(key)
        plan = target.plan(name)
        if isinstance(plan, Request) and plan.is_takeover:
            await self._read(key)
            plan = target.plan(name)
        if isinstance(plan, Request):
            await self._budget.take()
            plan = await self._confirmed(target, name)
        match plan:
            case None:
                self._succeeded(key)
            case Wait(seconds):
                self._put(key, seconds)
            case Request():
                await self._write(key, plan)
                self._put(key, 0.0)

    async def _confirmed(self, target: Target, name: str) -> Plan:
        """The next write of an object by folds that are not older than its last write by any replica: whoever wrote it
        had read no more of the log than there was when we saw the result. The request names this version of the object,
        so the server refuses it after a later write."""
        if self._catch_up is None:
            return target.plan(name)
        seen, until_s = target.version(name), _now_s() + CONFIRMED_S
        if not await self._catch_up():
            return Wait(BEHIND_S * self._rng.uniform(0.5, 1.0))
        is_confirmed = target.version(name) == seen and _now_s() < until_s
        return target.plan(name) if is_confirmed else Wait(0.0)

    async def _write(self, key: Key, request: Request) -> None:
        target, name = key
        sent_at = target.version(name)
        try:
            match request.verb:
                case "create":
                    answer = await self._api.create(request.path, request.body)
                case "replace":
                    answer = await self._api.replace(request.path, request.body)
                case "patch":
                    answer = await self._api.patch(request.path, request.body, "json")
                case "apply":
                    answer = await self._api.patch(request.path, request.body, "apply", _APPLY)
                case "delete":
                    await self._api.delete(request.path, uid=request.body)
        except ApiError as error:
            if error.status != TOO_MANY_REQUESTS:
                self._unread.add(key)
            raise
        self._answered()
        self.counts.writes += 1
        self._succeeded(key)
        self.recovered(target)
        target.wrote(name)
        if request.verb == "delete":
            target.saw_none(name)
        else:
            self._unread.add(key)
            _record(target, name, answer, sent_at)
            self._unread.discard(key)

    async def _read(self, key: Key) -> None:
        target, name = key
        path = target.path(name)
        if path is None:
            self._unread.discard(key)
            return
        await self._budget.take()
        self.counts.reads += 1
        sent_at = target.version(name)
        try:
            _record(target, name, await self._api.get(path), sent_at)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            target.saw_none(name)
        self._answered()
        self._unread.discard(key)

    def _answered(self) -> None:
        self._server_failed = 0

    def _succeeded(self, key: Key) -> None:
        self._failed.pop(key, None)
        self._paused.discard(key, is_written=True)
        self._keep_probe(key[0])

    def _keep_probe(self, target: Target) -> None:
        """Try one paused object of a target soon, if there is one."""
        name = self._paused.new_probe(target)
        if name is not None:
            self._put((target, name), PROBE_S * self._rng.uniform(0.8, 1.2))

    # -- failures

    def _failure(self, key: Key, error: ApiError) -> None:
        counts = self.counts
        counts.unknown += error.may_have_taken_effect
        if error.status in (0, TOO_MANY_REQUESTS, _UNAVAILABLE):
            counts.throttled += error.status == TOO_MANY_REQUESTS
            self._block(error)
            self._put(key, 0.0, is_pause=True)
            return
        self._answered()
        is_retried = error.may_have_taken_effect or error.status in (CONFLICT, NOT_FOUND, _INVALID)
        counts.conflicts += error.status == CONFLICT
        counts.behind += POSITION_REFUSED in str(error)
        counts.refused += not is_retried
        failed = self._failed.get(key, 0) + 1 if is_retried else ATTEMPTS
        if failed >= ATTEMPTS and key in self._due_s:
            failed = 1  # the object has changed during its last attempt, which gives it new ones
        self._failed[key] = failed
        self._paused.discard(key)
        pause_s = self._rng.uniform(0.0, backoff_ceiling(failed - 1, RETRY_S, RETRY_S_MAX))
        if error.status == CONFLICT and failed == 1:
            pause_s = 0.0  # the read that follows shows what the other writer wrote
        if failed >= ATTEMPTS:
            counts.given_up += 1
            pause_s = SLOW_RETRY_S * self._rng.uniform(0.8, 1.2)
            if counts.given_up in _LOGGED:
                about = {"object": key[0].path(key[1]), "status": error.status, "pause_s": round(pause_s)}
                about["source"] = self.source
                logger.warning("object not written, retrying later: %s", error, extra=about)
        self._put(key, pause_s, is_pause=True)
        if failed >= ATTEMPTS and error.status not in _OF_OBJECT:
            self._paused.add(key, _now_s())
        self._keep_probe(key[0])

    def _block(self, error: ApiError) -> None:
        """Delay all requests: the server is overloaded or unreachable."""
        ceiling_s = backoff_ceiling(self._server_failed, RETRY_S, RETRY_S_MAX)
        pause_s = max(self._rng.uniform(0.0, ceiling_s), error.retry_after_s or 0.0)
        self._server_failed += 1
        self._blocked_until_s = max(self._blocked_until_s, _now_s() + pause_s)
        self._budget.pause(pause_s)
        if self._server_failed in _LOGGED:
            about = {"status": error.status, "reason": error.reason, "pause_s": round(pause_s, 1)}
            about["source"] = self.source
            logger.warning("write to the API server failed, retrying: %s", error, extra=about)


def _record(target: Target, name: str, answer: bytes, sent_at: int) -> None:
    try:
        target.saw(name, answer, sent_at=sent_at)
    except msgspec.DecodeError as error:
        raise ApiError(0, "Malformed", f"the answer is no object: {error}") from error


def _now_s() -> float:
    return asyncio.get_running_loop().time()

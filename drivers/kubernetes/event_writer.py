"""Writes Kubernetes Events about objects, behind every other write of the edge.

Events inform people, and no part of the plane reads them. So their requests are sent one at a time, and only while the
budget is not needed for other requests. If the API server fails, only the Events wait. The writer needs the rights to
create and to patch Events, but not to read them. If another process, or an earlier run of this one, has written an
Event, the writer sends an empty patch, whose response contains the Event.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from random import Random

import msgspec

from drivers.kubernetes.request_budget import RequestBudget
from eventstore.backoff import backoff_ceiling
from projections.kubernetes.event_queue import EventQueue, Tally
from projections.kubernetes.object_events import collection_path, document, repetition
from schemas.kubernetes.api import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

logger = logging.getLogger(__name__)

RETRY_S = 0.5
RETRY_S_MAX = 30.0
_UNAVAILABLE = 503
_LOGGED = frozenset((1, 10, 100, 1_000))


class _Found(msgspec.Struct, frozen=True):
    """The part of an existing Event that a repetition changes: its count."""

    count: int = 1


_found = msgspec.json.Decoder(_Found)


@dataclass
class EventCounts:
    """Counts since the start."""

    created: int = 0
    updated: int = 0
    found: int = 0
    """Events that the API server had already when this process reported them first."""
    failed: int = 0
    """Requests without success; most of them are repeated."""
    given_up: int = 0
    """Events that the API server refused, or whose attempts were used up."""


class EventWriter:
    """Writes the Events of a queue while `run` runs."""

    def __init__(
        self, api: KubernetesApi, budget: RequestBudget, queue: EventQueue, *, rng: Random, source: str = ""
    ) -> None:
        self.counts = EventCounts()
        self._source = source
        self._api = api
        self._budget = budget
        self._queue = queue
        self._rng = rng
        self._failed = 0
        """Consecutive failures of the server."""
        self._work = asyncio.Event()
        queue.on_put = self._work.set
        self._work.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue.pending:
                await self._budget.take_spare()
                tally = self._queue.take()
                if tally is not None:
                    await self._serve(tally)

    async def _serve(self, tally: Tally) -> None:
        try:
            await (self._update(tally) if tally.written else self._create(tally))
            self._failed = 0
        except ApiError as error:
            await self._failure(tally, error)

    async def _create(self, tally: Tally) -> None:
        count, path = tally.count, collection_path(tally.event)
        body = document(tally.event, count=count, first_ms=tally.first_ms, last_ms=tally.last_ms)
        try:
            await self._api.create(path, body)
        except ApiError as error:
            if error.status != CONFLICT:
                tally.tried = count
                raise
        else:
            self.counts.created += 1
            self._queue.wrote(tally, count)
            return
        await self._budget.take_spare()
        answer = await self._api.patch(f"{path}/{tally.event.name}", {}, "merge")
        self.counts.found += 1
        self._queue.found(tally, max(1, _count_of(answer)))

    async def _update(self, tally: Tally) -> None:
        count, path = tally.count, f"{collection_path(tally.event)}/{tally.event.name}"
        try:
            await self._api.patch(path, repetition(tally.event, count, tally.last_ms), "merge")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            self._queue.vanished(tally)
        else:
            self.counts.updated += 1
            self._queue.wrote(tally, count)

    async def _failure(self, tally: Tally, error: ApiError) -> None:
        """Repeat a write that may succeed later, after a pause. Give up a write that the server refused."""
        counts = self.counts
        counts.failed += 1
        is_server = error.status in (0, TOO_MANY_REQUESTS, _UNAVAILABLE)
        if is_server or error.may_have_taken_effect or error.status in (CONFLICT, NOT_FOUND):
            is_kept = self._queue.retry(tally, is_counted=not is_server)
        else:
            self._queue.give_up(tally)
            is_kept = False
        counts.given_up += not is_kept
        if not is_kept and counts.given_up in _LOGGED:
            about = {"object": tally.event.regarding.name, "reason": tally.event.reason, "status": error.status}
            logger.warning("Kubernetes Event not written: %s", error, extra=about | {"source": self._source})
        ceiling_s = backoff_ceiling(self._failed, RETRY_S, RETRY_S_MAX)
        self._failed += is_kept
        pause_s = max(self._rng.uniform(0.0, ceiling_s), error.retry_after_s or 0.0)
        if error.status == TOO_MANY_REQUESTS:
            self._budget.pause(pause_s)
        await asyncio.sleep(pause_s)


def _count_of(answer: bytes) -> int:
    try:
        return _found.decode(answer).count
    except msgspec.DecodeError as error:
        raise ApiError(0, "Malformed", f"the answer is no Event: {error}") from error

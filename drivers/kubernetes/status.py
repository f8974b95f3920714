"""The statuses of the plane's own objects in one cluster, computed from the folds and the cluster's objects.

Each kind has an actor. It computes the status of its objects when a fold or an object changes, and marks the objects
that differ for the writer. A pass over all objects takes long in a large fleet: 0.7 s for 2,000 zones. Passes are
therefore at least a second apart, and take at most a tenth of the time. Every replica computes every object, although
it writes only a part of them: it must know the need of a write before its turn comes, and it reports Events.

Replicas act in order of rank: each replica waits one turn longer than the previous one, and writes only the differences
that remain then. A replica that is not the first reads the object before it writes, because its watch may be late. A
flipped condition is written at once, another change of a status at most every 15 s, and a change of the position alone
never. If the conditions of an object flip too often, each waits its 15 s too: another controller that writes the status
would otherwise be answered as fast as it writes. However fast it writes, a wait ends after a minute. Two writers do no
harm: the API server refuses a status whose position goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from drivers.internal_events import TURN_S
from drivers.kubernetes.ahead import ObjectsAhead
from drivers.kubernetes.flip_limit import WINDOW_S, FlipLimit
from drivers.kubernetes.holds import HoldObjects
from drivers.kubernetes.observed import Observed, ObservedObjects
from drivers.kubernetes.policies import PolicyObjects
from drivers.kubernetes.racks import RackObjects
from drivers.kubernetes.writer import Plan, Request, Wait, Writer
from eventstore.log import Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import KUBERNETES
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import Report, ignore
from projections.kubernetes.object_names import OWN_LABELS
from projections.kubernetes.statements import StatementTable
from projections.kubernetes.status_body import Difference, StatusBody, difference, position_of, stamped
from projections.kubernetes.zone_notices import ZoneNotices
from schemas.kubernetes.objects import Custom
from schemas.resources.kinds import Kind

logger = logging.getLogger(__name__)

EVERY_S = 15.0
"""Minimum time between two writes of a status, unless a condition flips."""
PASS_S = 1.0
"""Minimum pause after a pass over the objects of a kind. If passes are short, a flipped condition waits no longer."""
RECHECK_S = 15.0
"""Maximum wait for a change of the folds before the next pass, because some statuses also depend on the clock."""
UNWATCHED_S = 1.0
"""Wait before the next attempt while the watch of the objects is interrupted. Another replica may have written in the
meantime: after an outage, each replica would otherwise write every status."""
REWATCHED_S = 5.0
"""Time after such a wait in which an object is read before it is written: the watch still delivers what it missed."""
AHEAD_S = 5.0
"""Wait before the next attempt if an object has a later position than our folds."""
LINGER_S = 0.02
SLICE = 10
"""Statuses computed before other tasks get the event loop."""


_custom = msgspec.json.Decoder(Custom)


class Objects(Protocol):
    """Computes the objects of one kind from the folds. All methods except `begin_pass` return immediately."""

    @property
    def kind(self) -> Kind: ...

    @property
    def topics(self) -> tuple[str, ...]: ...

    async def begin_pass(self, changed: set[Partition] | None, found: Mapping[str, Observed]) -> Iterable[str]:
        """The names of the objects to check, including missing ones. If `changed` is None, all may have changed."""
        ...

    def new(self, name: str) -> Mapping[str, Any] | None:
        """The spec of a missing object; None if the object is not needed."""
        ...

    def status(self, name: str, found: Observed) -> StatusBody | None: ...

    def is_over(self, name: str, found: Observed) -> bool:
        """Whether an object must be deleted."""
        ...


class _Need(NamedTuple):
    """Reasons for a write. A pass marks an object again only if they change, so it does not repeat a refused write."""

    is_missing: bool
    is_over: bool
    content: Mapping[str, Any] | None


class StatusActor:
    """Keeps the objects of one kind equal to the folds while `run` runs. A list-watch fills the cache."""

    def __init__(
        self, objects: Objects, cache: ObjectCache[Custom], replica: Replica, ranks: Ranks, writer: Writer
    ) -> None:
        self.passes = 0
        self.ahead = ObjectsAhead()
        self.observed = ObservedObjects(cache, _now_s)
        self.observed.on_change = self.recompute
        self.is_watching: Callable[[], bool] = lambda: True
        """Whether the list-watch of the objects is connected."""
        self._unsure_until_s = 0.0
        self._flips = FlipLimit()
        self._objects = objects
        self._cache = cache
        self._listed = asyncio.Event()
        cache.subscribe(lambda item: None, self._on_list)
        self._replica = replica
        self._ranks = ranks
        self._writer = writer
        self._wanted: dict[str, StatusBody] = {}
        self._needs: dict[str, _Need] = {}
        self._needed_s: dict[str, float] = {}
        self._delayed_s: dict[str, float] = {}
        """The time of the first need of a write, until a write of ours succeeds, by the object's name."""
        self._seen: set[str] = set()
        self._any_seen = asyncio.Event()

    @property
    def kind(self) -> Kind:
        return self._objects.kind

    async def run(self) -> None:
        """Follow folds and objects until cancelled."""
        await self._replica.ready()
        await self._listed.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_folds())
            tasks.create_task(self._follow_objects())

    # -- changes

    def _on_list(self) -> None:
        self._listed.set()
        self._writer.recovered(self)  # the definition of the kind may have been missing

    def recompute(self, name: str) -> None:
        """Compute the status of an object again: the object, or the result of its spec, has changed."""
        self._seen.add(name)
        self._any_seen.set()

    async def _follow_folds(self) -> None:
        loop = asyncio.get_running_loop()
        with self._replica.watch(*self._objects.topics) as watch:
            changed: set[Partition] | None = None
            while True:
                began_s = loop.time()
                names = await self._objects.begin_pass(changed, self.observed.objects)
                async for name in _sliced(names):
                    self._compute(name, is_seen=False)
                self.passes += 1
                await asyncio.sleep(max(PASS_S, 9 * (loop.time() - began_s)))
                try:
                    async with asyncio.timeout(RECHECK_S):
                        changed = await watch.changed()
                except TimeoutError:
                    changed = None

    async def _follow_objects(self) -> None:
        while True:
            await self._any_seen.wait()
            await asyncio.sleep(LINGER_S)
            self._any_seen.clear()
            seen, self._seen = self._seen, set()
            async for name in _sliced(seen):
                self._compute(name, is_seen=True)

    def _compute(self, name: str, *, is_seen: bool) -> None:
        """Compute the status of an object, and mark the object if it may need a write."""
        found = self.observed.objects.get(name)
        body = self._objects.status(name, found) if found is not None else None
        if body is not None:
            self._wanted[name] = body
        else:
            self._wanted.pop(name, None)
        is_over = found is not None and self._objects.is_over(name, found)
        need = _Need(found is None, is_over, body.content if body is not None else None)
        if need != self._needs.get(name) or is_seen:
            has_flipped = (
                body is not None and found is not None and difference(body, found.status) is Difference.CONDITION
            )
            self._writer.mark(self, name, is_urgent=has_flipped)
        if found is None and self._objects.new(name) is None:
            self._needs.pop(name, None)
        else:
            self._needs[name] = need

    # -- the target of the writer

    def path(self, name: str) -> str:
        return self.kind.path(name=name)

    def version(self, name: str) -> int:
        return self._cache.version(name)

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        self._cache.put(_custom.decode(answer), sent_at=sent_at)

    def saw_none(self, name: str) -> None:
        self._cache.forget(name)

    def wrote(self, name: str) -> None:
        self._delayed_s.pop(name, None)

    def plan(self, name: str) -> Plan:
        """The next write of an object: creation, deletion or status."""
        found = self.observed.objects.get(name)
        plan = self._missing(name) if found is None else self._present(name, found)
        if plan is None:
            self._needed_s.pop(name, None)
            self._delayed_s.pop(name, None)
        if found is None or plan is None:
            self.ahead.discard(name)
        if isinstance(plan, Request) and not self.is_watching():
            self._unsure_until_s = _now_s() + UNWATCHED_S + REWATCHED_S
            return Wait(UNWATCHED_S)
        return self._in_turn(name, plan) if isinstance(plan, Request) else plan

    def _missing(self, name: str) -> Plan:
        spec = self._objects.new(name)
        if spec is None:
            return None
        kind = self.kind
        head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, "labels": OWN_LABELS}}
        return Request("create", kind.path(), {**head, "spec": dict(spec)})

    def _present(self, name: str, found: Observed) -> Plan:
        if self._objects.is_over(name, found):
            return Request("delete", self.path(name), found.uid)
        body = self._wanted.get(name)
        change = difference(body, found.status) if body is not None else Difference.NONE
        if body is None or change is Difference.NONE:
            return None
        if body.position.is_refused_after(position_of(found.status)):
            about = {"source": self._writer.source, "object": self.path(name), "position": body.position}
            self.ahead.add(name, _now_s(), about)
            return Wait(AHEAD_S)
        self.ahead.discard(name)
        early_s = self._wait_s(name, found)
        if early_s > 0 and (change is Difference.CONTENT or not self._is_flip_allowed(name)):
            return Wait(early_s)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": found.uid},
            {"op": "add", "path": "/status", "value": stamped(body, found.status)},
        ]
        return Request("patch", self.kind.path(name=name, subresource="status"), operations)

    def _wait_s(self, name: str, found: Observed) -> float:
        """Remaining time before a change of a status that is not urgent. Each write of another controller would begin
        it anew, so it ends WINDOW_S after our first need of a write at the latest."""
        now_s = _now_s()
        since_s = self._delayed_s.setdefault(name, now_s)
        return min(found.status_s + EVERY_S, since_s + WINDOW_S) - now_s

    def _is_flip_allowed(self, name: str) -> bool:
        """Whether flipped conditions of an object may be written at once."""
        if self._flips.take(name, self._cache.version(name), _now_s()):
            return True
        if self._flips.is_first_refusal(name):
            logger.warning(
                "conditions of a status flip too often, writing them at most every %.0f s: another controller may write"
                " the status, or the spec changes all the time",
                EVERY_S,
                extra={"source": self._writer.source, "object": self.path(name)},
            )
        return False

    def _in_turn(self, name: str, request: Request) -> Plan:
        """The request if it is our turn, or else the remaining wait. Turns count from the first need of a write."""
        now_s, rank = _now_s(), self._ranks.rank(f"{self.kind.plural}/{name}", KUBERNETES)
        left_s = self._needed_s.setdefault(name, now_s) + rank * TURN_S - now_s
        is_takeover = rank > 0 or now_s < self._unsure_until_s
        return Wait(left_s) if left_s > 0 else request._replace(is_takeover=is_takeover)


class StatusEdge:
    """Computes all statuses of one cluster while `run` runs, and marks the objects that differ for the writer."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        writer: Writer,
        caches: Mapping[Kind, ObjectCache[Custom]],
        *,
        statements: StatementTable | None = None,
        notices: ZoneNotices | None = None,
        report: Report = ignore,
        now_ms: Callable[[], int],
    ) -> None:
        table, notices = statements or StatementTable(), notices or ZoneNotices()
        self._racks = RackObjects(replica, table, notices=notices, now_ms=now_ms, report=report)
        objects: Sequence[Objects] = (
            self._racks,
            PolicyObjects(replica, table),
            HoldObjects(replica, table, now_ms=now_ms, report=report),
        )
        self.actors = tuple(StatusActor(each, caches[each.kind], replica, ranks, writer) for each in objects)
        table.listeners |= {actor.kind.plural: actor.recompute for actor in self.actors}
        notices.on_change = self._recompute_zone

    def _recompute_zone(self, zone: str) -> None:
        for name in self._racks.objects_of(zone):
            for actor in self.actors:
                if actor.kind is self._racks.kind:
                    actor.recompute(name)

    def objects_ahead(self) -> dict[str, int]:
        """Number of objects with a later position than the log, by the plural of their kind."""
        return {actor.kind.plural: actor.ahead.count for actor in self.actors}

    def follow(self, plural: str, is_watching: Callable[[], bool]) -> None:
        """Write objects of a kind only while their list-watch is connected."""
        for actor in self.actors:
            if actor.kind.plural == plural:
                actor.is_watching = is_watching

    async def run(self) -> None:
        """Follow the folds and the objects until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for actor in self.actors:
                tasks.create_task(actor.run())


async def _sliced(names: Iterable[str]) -> AsyncIterator[str]:
    """Yield the sorted names, and give other tasks the event loop after each slice."""
    for place, name in enumerate(sorted(names)):
        if place and place % SLICE == 0:
            await asyncio.sleep(0)
        yield name


def _now_s() -> float:
    return asyncio.get_running_loop().time()

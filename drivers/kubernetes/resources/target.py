"""The objects of one kind in one cluster, as a target of the writer.

Replicas act in order of rank, and only while their watch is connected: after an outage, each of them would otherwise
write what the first one has written. A replica that is not the first reads the object before it writes. A field that
others change again and again is restored at most ten times a minute.

Definitions of DPF have no field for a position of the log. A replica that lags behind could therefore set an object
back, and delete one that is wanted meanwhile. So a write is planned by folds that have caught up with the log
(`Writer`), and names the version of the object that it replaces.

An object that is written only if no other one has its name is read before it is made: the watch sees only objects of
ours. One of others is left alone, reported, and read again every five minutes, as no watch says when it has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from drivers.internal_events import TURN_S
from drivers.kubernetes.flip_limit import FLIPS_MAX, WINDOW_S, FlipLimit
from drivers.kubernetes.writer import Plan, Request, Wait
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.role_names import KUBERNETES
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent, Regarding, Report
from projections.kubernetes.resources.api_kinds import ApiKind
from projections.kubernetes.resources.goals import Goals, key_of
from projections.kubernetes.resources.live_object import LiveObject
from projections.kubernetes.resources.writes import STATUS, Write, content_digest, next_write
from projections.resources.state import object_id

logger = logging.getLogger(__name__)

FOREIGN_S = 300.0
"""Time after which an object of others in the place of a wanted one is read again."""
UNWATCHED_S = 1.0
"""Wait before the next attempt while the watch of the objects is interrupted."""
REWATCHED_S = 5.0
"""Time after such a wait in which an object is read before it is written: the watch still delivers what it missed."""
INCONSISTENT_S = 0.05
"""Wait while what is wanted is being derived."""
NAMESPACE_S = 0.5
"""Wait for the namespace of an object."""
_RESTORED_MAX = 5
"""Maximum number of fields that an Event names."""

_live = msgspec.json.Decoder(LiveObject)


class ResourceTarget:
    """Plans the writes of the objects of a kind in a cluster. `schema` is that of the kind on the server."""

    def __init__(
        self,
        source: str,
        kind: ApiKind,
        cache: ObjectCache[LiveObject],
        goals: Goals,
        ranks: Ranks,
        *,
        report: Report,
        now_ms: Callable[[], int],
    ) -> None:
        self.kind = kind
        self.cache = cache
        self.schema: Mapping[str, Any] | None = None
        self.is_watching: Callable[[], bool] = lambda: True
        self.has_namespace: Callable[[str], bool] = lambda namespace: True
        """Whether a namespace exists. It is created if not."""
        self.is_watched = True
        """Whether a watch fills the cache. Otherwise each object is read before its first write."""
        self._source = source
        self._goals = goals
        self._ranks = ranks
        self._report = report
        self._now_ms = now_ms
        self._needed_s: dict[str, float] = {}
        self._unsure_until_s = 0.0
        self._limit = FlipLimit()
        self._sent: dict[str, Write] = {}
        """The write that was planned last, by the object's name."""
        self._confirmed: set[str] = set()
        """Objects of which the answer to a write is expected."""
        self._foreign: dict[str, tuple[str, float]] = {}
        """The uid of an object of others in the place of a wanted one, by name, and when it is read again."""
        self._read: set[str] = set()
        """The objects that were read, if there is no watch."""
        self._deleted: dict[str, str] = {}
        """The uids of objects that were deleted, by name, until the watch says so. An object with a finalizer stays."""
        self._settled: dict[tuple[str, str], tuple[str, str]] = {}
        """The digests of a write and of the object after it, by the object's name and the verb: the server may change
        what it stores, and the write need not be repeated."""

    def key(self, name: str) -> str:
        """The key of an object by its name."""
        return key_of(self._source, self.kind.key, name)

    def is_due(self, name: str) -> bool:
        """Whether an object needs a write."""
        return self._next(name) is not None

    # -- the target of the writer

    def path(self, name: str) -> str:
        at = object_id(self.key(name))
        return self.kind.path(at.namespace, at.name)

    def version(self, name: str) -> int:
        return self.cache.version(name)

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        self._read.add(name)
        found = _live.decode(answer)
        if name in self._confirmed:
            self._confirmed.discard(name)
            sent = self._sent.pop(name, None)
            if sent is not None and sent.digest:
                self._settled[name, sent.verb] = (sent.digest, _digest(sent.verb, found))
        self.cache.put(found, sent_at=sent_at)

    def saw_none(self, name: str) -> None:
        self._read.add(name)
        if name in self._confirmed:
            self._confirmed.discard(name)
            if self.is_watched:  # a deletion was confirmed, but a finalizer may keep the object
                return
        self.cache.forget(name)

    def wrote(self, name: str) -> None:
        sent = self._sent.get(name)
        self._confirmed.add(name)
        live = self.cache.objects.get(name)
        if sent is not None and sent.verb == "delete":
            self._deleted[name] = sent.body
        if sent is not None and sent.restored and live is not None:
            self._report(self._restoration(live, sent))

    def plan(self, name: str) -> Plan:
        """The next write of an object."""
        if not self._goals.is_consistent():
            return Wait(INCONSISTENT_S)
        pause_s = self._foreign_pause_s(name)
        if pause_s is not None:
            return Wait(pause_s)
        write = self._next(name)
        if write is None:
            self._needed_s.pop(name, None)
            return None
        if not self.is_watching():
            self._unsure_until_s = _now_s() + UNWATCHED_S + REWATCHED_S
            return Wait(UNWATCHED_S)
        namespace = object_id(self.key(name)).namespace
        if name not in self.cache.objects and namespace and not self.has_namespace(namespace):
            return Wait(NAMESPACE_S)
        if write.restored and not self._limit.take(name, self.cache.version(name), _now_s()):
            return Wait(WINDOW_S / FLIPS_MAX)
        return self._in_turn(name, write)

    def _next(self, name: str) -> Write | None:
        live, key = self.cache.objects.get(name), self.key(name)
        goal = self._goals.goal(key, live)
        write = next_write(object_id(key), goal, live, self.schema, self._now_ms())
        if write is None or live is None:
            self._deleted.pop(name, None)
            return write
        if write.verb == "delete" and self._deleted.get(name) == write.body:
            return None
        settled = self._settled.get((name, write.verb))
        if settled is not None and settled == (write.digest, _digest(write.verb, live)):
            return None
        return write

    def _foreign_pause_s(self, name: str) -> float | None:
        """The time for which an object of others is left alone; None if there is none. After that time it is forgotten,
        and the next plan reads it."""
        live, now_s = self.cache.objects.get(name), _now_s()
        if live is None:
            return None
        if not self._goals.is_foreign(self.key(name), live):
            self._foreign.pop(name, None)
            return None
        uid, until_s = self._foreign.get(name, ("", 0.0))
        if uid == live.metadata.uid and now_s < until_s:
            return until_s - now_s
        self._foreign[name] = (live.metadata.uid, now_s + FOREIGN_S)
        if uid == live.metadata.uid:
            self.cache.forget(name)
            return 0.0
        self._report_foreign(name)
        return FOREIGN_S

    def _report_foreign(self, name: str) -> None:
        about = {"object": self.key(name)}
        logger.warning("object not written: one of others has its name, and is left alone", extra=about)
        event = self._goals.event_of_foreign(self.key(name))
        if event is not None:
            self._report(event)

    def _in_turn(self, name: str, write: Write) -> Plan:
        """The request if it is our turn, or else the remaining wait. Turns count from the first need of a write."""
        now_s, rank = _now_s(), self._ranks.rank(f"{self._source}/{self.kind.plural}/{name}", KUBERNETES)
        left_s = self._needed_s.setdefault(name, now_s) + rank * TURN_S - now_s
        if left_s > 0:
            return Wait(left_s)
        self._sent[name] = write
        is_unsure = now_s < self._unsure_until_s or (not self.is_watched and name not in self._read)
        if name not in self.cache.objects and self._goals.is_exclusive(self.key(name)):
            is_unsure = True
        return self._request(name, write)._replace(is_takeover=rank > 0 or is_unsure)

    def _request(self, name: str, write: Write) -> Request:
        path = self.path(name)
        match write.verb:
            case "apply":
                return Request("apply", path, self._versioned(name, write.body))
            case "create":
                return Request("create", path.rpartition("/")[0], write.body)
            case "status":
                return Request("apply", f"{path}/{STATUS}", self._versioned(name, write.body))
            case "release":
                return Request("patch", path, write.body)
            case "delete":
                return Request("delete", path, write.body)

    def _versioned(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A manifest that is applied only to the version of the object that it was made for."""
        live = self.cache.objects.get(name)
        if live is None:
            return body
        return {**body, "metadata": {**body["metadata"], "resourceVersion": live.metadata.resource_version}}

    def _restoration(self, live: LiveObject, write: Write) -> ObjectEvent:
        about = live.metadata
        regarding = Regarding(self.kind.api_version, self.kind.name, about.name, about.uid, about.namespace)
        managers = sorted({each for found in write.restored for each in found.managers})
        fields = [found.path for found in write.restored]
        shown = ", ".join(fields[:_RESTORED_MAX]) + (
            f" and {len(fields) - _RESTORED_MAX} more" if len(fields) > _RESTORED_MAX else ""
        )
        message = f"{shown}: changed by {', '.join(managers)}, and restored, because dpuplane owns the field"
        return ObjectEvent(regarding, "FieldRestored", message)


def _digest(verb: str, live: LiveObject) -> str:
    """A digest of the part of an object that a write changes."""
    return content_digest(live.status_document() if verb == "status" else live.document())


def _now_s() -> float:
    return asyncio.get_running_loop().time()

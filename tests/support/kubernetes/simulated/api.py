"""An API server in memory, which implements KubernetesApi: the semantics that the contract tests hold the real one to.

Time is the running loop's, so it runs on the virtual clock; uids come from a generator. No two runs of a seed differ.
Everything that is refused is refused with the status and reason of the real server.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias

import msgspec

from schemas.kubernetes.api import CONFLICT, GONE, NOT_FOUND, ApiError, PatchType, WatchEvent
from tests.support.kubernetes.simulated.faults import Faults, Verb
from tests.support.kubernetes.simulated.kinds import NOWHERE, Collection, Object, Paths, Place, defined, selector
from tests.support.kubernetes.simulated.patches import applied, json_patched, merged, updated_owners
from tests.support.kubernetes.simulated.store import Change, Saved, Store
from tests.support.kubernetes.simulated.structure import check, settled
from tests.support.kubernetes.simulated.watches import Watcher, expired

EPOCH_S = 1_790_000_000
"""The wall-clock time at loop time 0, by default."""
UPDATER = "client"
"""The field manager of requests that name none."""
OnWrite: TypeAlias = Callable[[Collection, Object | None, Object | None], None]
"""Called after each successful write with the object before and after it. A write without an effect has the same object
twice."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_EXPIRED_CONTINUE = "The provided continue parameter is too old to display a consistent list result."


class SimulatedApi:
    """An API server with the namespace `default`, the built-in kinds, and those whose definitions are created."""

    def __init__(self, rng: Random, *, epoch_s: int = EPOCH_S) -> None:
        self.faults = Faults()
        self.on_write: OnWrite = lambda collection, before, after: None
        self._epoch_s = epoch_s
        self.requests: Counter[tuple[Verb, int]] = Counter()
        """Requests by verb and status; 0 is no answer."""
        self.written_bytes = 0
        """The sum of all committed objects' sizes."""
        self._rng = rng
        self._watchers: dict[Watcher, None] = {}
        self._paths = Paths()
        self._store = Store(self._on_change)
        self._create(self._paths.place("/api/v1/namespaces"), {"metadata": {"name": "default"}})

    # -- what a test does to the server

    def go_down(self) -> None:
        """Answer nothing until `faults.is_down` is reset."""
        self.faults.is_down = True
        self.end_watches(ApiError(0, "Unreachable", "the server is down"))

    def end_watches(self, error: ApiError) -> None:
        for watcher in self._watchers:
            watcher.fail(error)

    def stall_watches(self) -> None:
        """Nothing comes out of the open watches any more; later ones work."""
        for watcher in self._watchers:
            watcher.stall()

    def compact(self) -> None:
        """Forget history: watches from an earlier version and open continue tokens are answered by 410."""
        self._store.compact()

    def objects(self, path: str) -> dict[str, Object]:
        """The objects of a collection by name, or by namespace and name."""
        return self._store.at(self._paths.place(path).collection, self._store.version)

    def expire_watches(self) -> None:
        """End all watches by 410, and refuse to continue them from any version so far."""
        self._store.version += 1
        self._store.compact()
        self.end_watches(expired(0, self._store.version))

    def save(self) -> Saved:
        return self._store.save()

    def restore(self, saved: Saved, *, ends_watches: bool = True) -> None:
        """Go back to an earlier state, as by an etcd backup. A proxy may keep the connections of watches open."""
        self._store.restore(saved)
        if ends_watches:
            self.end_watches(ApiError(0, "Unreachable", "the server was restarted"))

    @property
    def version(self) -> int:
        return self._store.version

    @property
    def watch_count(self) -> int:
        return len(self._watchers)

    # -- KubernetesApi

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if (about := self._paths.about(path)) is not None:
            return await self._serve("get", path, {}, lambda place: about, at=NOWHERE)
        return await self._serve("get", path, query or {}, lambda place: self._get(path, place, query or {}))

    def watch(
        self, path: str, query: Mapping[str, str], *, idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._watch(path, query, idle_s)

    async def create(self, path: str, body: Any) -> bytes:
        return await self._serve("create", path, {}, lambda place: self._create(place, _copied(body)))

    async def replace(self, path: str, body: Any) -> bytes:
        return await self._serve("replace", path, {}, lambda place: self._replace(place, _copied(body)))

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        found = dict(query or {})
        return await self._serve("patch", path, found, lambda place: self._patch(place, _copied(body), kind, found))

    async def delete(self, path: str, *, uid: str) -> bytes:
        return await self._serve("delete", path, {}, lambda place: self._delete(place, uid))

    # -- requests

    async def _serve(
        self, verb: Verb, path: str, query: Mapping[str, str], act: Any, *, at: Place | None = None
    ) -> bytes:
        await asyncio.sleep(self.faults.latency_s)
        try:
            refusal = self._arrive(verb, path, query)
            if refusal and not refusal.is_committed:
                raise refusal.error()
            answer = msgspec.json.encode(act(at or self._paths.place(path)))
            if refusal:
                raise refusal.error()
        except ApiError as error:
            self.requests[verb, error.status] += 1
            raise
        self.requests[verb, 201 if verb == "create" else 200] += 1
        return answer

    def _arrive(self, verb: Verb, path: str, query: Mapping[str, str]) -> Any:
        if self.faults.is_down:
            raise ApiError(0, "Unreachable", "the server is down")
        return self.faults.take(verb, f"{path}?{query}")

    def _on_change(self, change: Change) -> None:
        if change.after is not None:
            self.written_bytes += len(msgspec.json.encode(change.after))
        self.on_write(change.collection, change.before, change.after)
        for watcher in self._watchers:
            watcher.see(change)

    def _get(self, path: str, place: Place, query: Mapping[str, str]) -> Object:
        if place.name:
            return _kinded(place, self._present(place))
        return self._list(path, place, query)

    def _list(self, path: str, place: Place, query: Mapping[str, str]) -> Object:
        version, start = self._store.version, ""
        if token := query.get("continue"):
            version, start = _read_token(token)
            if version < self._store.floor:
                raise ApiError(GONE, "Expired", _EXPIRED_CONTINUE)
        selects, found = selector(query), self._store.at(place.collection, version)
        chosen = [
            (key, found[key])
            for key in sorted(found)
            if key > start and (not place.namespace or key.startswith(f"{place.namespace}/")) and selects(found[key])
        ]
        limit = int(query.get("limit", "0")) or len(chosen)
        about: dict[str, Any] = {"resourceVersion": str(version)}
        if len(chosen) > limit:
            about["continue"] = _token(version, chosen[limit - 1][0])
            if "labelSelector" not in query and "fieldSelector" not in query:
                about["remainingItemCount"] = len(chosen) - limit
        items = [item for _, item in chosen[:limit]]
        if self.faults.shown:
            items = self.faults.shown(path, items)
        head = {"kind": f"{place.collection.kind}List", "apiVersion": place.collection.api_version}
        return {**head, "metadata": about, "items": items}

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], idle_s: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        await self._serve("watch", path, query, lambda place: {})
        place, floor = self._paths.place(path), self._store.floor
        version = int(query.get("resourceVersion", "0")) or self._store.version
        watcher = Watcher(
            place.collection, place.namespace, selector(query), self.faults, version, lambda: self._store.version
        )
        if version < floor:
            watcher.fail(expired(version, floor))
        for change in self._store.history:
            watcher.see(change)
        self._watchers[watcher] = None
        try:
            yield watcher.events(query, idle_s)
        finally:
            del self._watchers[watcher]

    # -- writes

    def _create(self, place: Place, body: Object) -> Object:
        about = body.setdefault("metadata", {})
        if "generateName" in about and not about.get("name"):
            about["name"] = about["generateName"] + f"{self._rng.getrandbits(25):05x}"
        name = about.get("name", "")
        place = place._replace(name=name)
        if place.collection.is_namespaced:
            about["namespace"] = place.namespace
            self._present(self._paths.place(f"/api/v1/namespaces/{place.namespace}"))
        if not _NAME.fullmatch(name) or len(name) > 253:
            raise self._invalid(place, f"metadata.name: Invalid value: {name!r}: a lowercase RFC 1123 subdomain")
        if self._store.get(place.collection, place.key):
            raise ApiError(CONFLICT, "AlreadyExists", f'{place.collection.full_name} "{name}" already exists')
        about |= {"uid": self._uid(), "creationTimestamp": self._now()}
        about.pop("resourceVersion", None)
        if place.collection.schema is not None:
            about["generation"] = 1
            if place.collection.has_status:
                body.pop("status", None)
        body = self._checked(place, body, None)
        owners = self._store.owners(place.collection, place.name and place.key, "")
        updated_owners({}, _fields(body), place.collection.schema or {}, owners, UPDATER)
        if place.collection.plural == "customresourcedefinitions":
            for collection in defined(body):
                self._paths.add(collection)
        return _kinded(place, self._store.commit(place.collection, place.key, body))

    def _replace(self, place: Place, body: Object) -> Object:
        live, about = self._present(place), body.get("metadata", {})
        if about.get("name") != place.name:
            raise ApiError(400, "BadRequest", "the name of the object does not match the name on the URL")
        version = about.get("resourceVersion")
        if not version and place.collection.schema is not None:
            raise self._invalid(place, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
        self._check_version(place, live, about)
        return self._update(place, live, body, UPDATER)

    def _patch(self, place: Place, body: Any, kind: PatchType, query: Mapping[str, str]) -> Object:
        if kind == "apply":
            return self._apply(place, body, query)
        live = self._present(place)
        found = merged(live, body) if kind == "merge" else json_patched(live, body)
        self._check_version(place, live, found["metadata"])
        return self._update(place, live, found, query.get("fieldManager", UPDATER))

    def _apply(self, place: Place, intent: Object, query: Mapping[str, str]) -> Object:
        manager = query.get("fieldManager")
        if not manager:
            raise ApiError(400, "BadRequest", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        live = self._store.get(place.collection, place.key)
        if live is None:
            if place.subresource:
                raise self._absent(place)
            created = self._create(place, _copied(intent))
            owners = self._store.owners(place.collection, place.key, "")
            owners[manager] = owners.pop(UPDATER, set())
            return created
        self._check_version(place, live, intent.get("metadata", {}))
        owners = self._store.owners(place.collection, place.key, place.subresource)
        own = (lambda item: {"status": item.get("status", {})}) if place.subresource else _fields
        trial = {name: set(paths) for name, paths in owners.items()}
        schema = place.collection.schema or {}
        forced = query.get("force") == "true"
        fields = applied(own(live), own(intent), schema, trial, manager=manager, is_forced=forced)
        body = {**live, **{name: part for name, part in fields.items() if name != "metadata"}}
        body["metadata"] = {**live["metadata"], **fields.get("metadata", {})}
        done = self._update(place, live, body, manager, is_applied=True)
        owners.clear()
        owners.update(trial)
        return done

    def _update(self, place: Place, live: Object, body: Object, manager: str, *, is_applied: bool = False) -> Object:
        """Commit a changed object: only the part that the path names, and nothing if it is the same."""
        collection, about = place.collection, live["metadata"]
        if place.subresource == "status":
            body = {**live, "status": body.get("status", {})}
        else:
            kept = {name: about[name] for name in _SET_BY_SERVER if name in about}
            given = {name: part for name, part in body["metadata"].items() if name not in _SET_BY_SERVER}
            body = {**body, "metadata": {**given, **kept}}
            if collection.has_status and (collection.schema is not None or "status" in live):
                body.pop("status", None)
                body |= {"status": live["status"]} if "status" in live else {}
        body = self._checked(place, body, live)
        if collection.counts_generations and _spec(body) != _spec(live):
            body["metadata"]["generation"] = about["generation"] + 1
        if body == live:
            self.on_write(collection, live, live)
            return _kinded(place, live)
        if not is_applied:
            owners = self._store.owners(collection, place.key, place.subresource)
            updated_owners(_fields(live), _fields(body), collection.schema or {}, owners, manager)
        stored = self._store.commit(collection, place.key, body)
        if about.get("deletionTimestamp") and not stored["metadata"].get("finalizers"):
            stored = self._store.commit(collection, place.key, None)
        return _kinded(place, stored)

    def _delete(self, place: Place, uid: str) -> Object:
        live = self._present(place)
        about = live["metadata"]
        if about["uid"] != uid:
            text = f"the UID in the precondition ({uid}) does not match the UID in record ({about['uid']})"
            raise self._conflict(place, f"{text}. The object might have been deleted and then recreated")
        if about.get("finalizers"):
            marked = {**about, "deletionTimestamp": about.get("deletionTimestamp", self._now())}
            if "deletionTimestamp" not in about:
                marked |= {"generation": about["generation"] + 1} if "generation" in about else {}
                self._store.commit(place.collection, place.key, {**live, "metadata": marked})
        else:
            self._store.commit(place.collection, place.key, None)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    # -- checks

    def _present(self, place: Place) -> Object:
        if (found := self._store.get(place.collection, place.key)) is None:
            raise self._absent(place)
        return found

    def _checked(self, place: Place, body: Object, live: Object | None) -> Object:
        """The object as it is stored. Raises ApiError 422."""
        head = {"apiVersion": place.collection.api_version, "kind": place.collection.kind}
        for name, expected in head.items():
            if body.get(name, expected) != expected:
                raise ApiError(400, "BadRequest", f"{name}: {body[name]!r} does not match the path, {expected!r}")
        schema = place.collection.schema
        if schema is not None:
            fields = {name: part for name, part in body.items() if name not in ("metadata", *head)}
            fields = settled(schema, fields)
            check(schema, {**head, "metadata": {}, **fields}, live, place.collection.kind, place.name)
            body = {**fields, "metadata": body["metadata"]}
        return {**body, **head}

    def _check_version(self, place: Place, live: Object, about: Mapping[str, Any]) -> None:
        if about.get("uid", live["metadata"]["uid"]) != live["metadata"]["uid"]:
            raise self._conflict(place, "Precondition failed: UID in precondition")
        if about.get("resourceVersion") not in (None, "", live["metadata"]["resourceVersion"]):
            raise self._conflict(
                place, "the object has been modified; please apply your changes to the latest version and try again"
            )

    def _absent(self, place: Place) -> ApiError:
        return ApiError(NOT_FOUND, "NotFound", f'{place.collection.full_name} "{place.name}" not found')

    def _invalid(self, place: Place, text: str) -> ApiError:
        return ApiError(422, "Invalid", f'{place.collection.kind} "{place.name}" is invalid: {text}')

    def _conflict(self, place: Place, text: str) -> ApiError:
        about = f'{place.collection.full_name} "{place.name}"'
        return ApiError(CONFLICT, "Conflict", f"Operation cannot be fulfilled on {about}: {text}")

    def _uid(self) -> str:
        number = self._rng.getrandbits(128) & ~(0xF << 76 | 3 << 62) | 4 << 76 | 2 << 62  # a UUIDv4
        digits = f"{number:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _now(self) -> str:
        try:
            passed_s = asyncio.get_running_loop().time()
        except RuntimeError:  # made before its loop runs
            passed_s = 0.0
        return datetime.fromtimestamp(self._epoch_s + int(passed_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_SET_BY_SERVER = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp", "namespace", "name")


def _copied(body: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))


def _kinded(place: Place, item: Object) -> Object:
    return {"apiVersion": place.collection.api_version, "kind": place.collection.kind, **item}


def _spec(item: Object) -> Object:
    """The part of an object that its generation counts."""
    return {name: part for name, part in item.items() if name not in ("metadata", "status")}


def _fields(item: Object) -> Object:
    """The fields that managers own."""
    about = {name: part for name, part in item.get("metadata", {}).items() if name in ("labels", "annotations")}
    found = {name: part for name, part in item.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    return found | ({"metadata": about} if about else {})


def _token(version: int, start: str) -> str:
    """A continue token, in the form of the real server's."""
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{start}\0"}
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(found["rv"]), str(found["start"]).rstrip("\0")
    except (binascii.Error, msgspec.DecodeError, KeyError, ValueError) as error:
        raise ApiError(400, "BadRequest", "continue key is not valid") from error

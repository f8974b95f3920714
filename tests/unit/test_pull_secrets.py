"""Copies of pull secrets: which are wanted, what is left alone, and which namespaces are watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.pull_secrets import KINDS, PullSecretWatches
from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.resources.target import FOREIGN_S, ResourceTarget
from drivers.kubernetes.writer import Writer
from projections.kubernetes.foreign.secrets import observe
from projections.kubernetes.object_events import ObjectEvent
from projections.kubernetes.object_names import OWN_LABELS
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.foreign_objects import REASON, dpu_cluster
from projections.kubernetes.resources.goals import Goals, LiveObjects
from projections.kubernetes.resources.live_object import LiveMetadata, LiveObject
from projections.kubernetes.resources.manifests import OWN_SELECTOR
from projections.kubernetes.resources.writes import Goal, next_write
from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.conditions.world import World
from projections.resources.state import ObjectId, object_id
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.dpf.names import IMAGE_PULL_SECRET
from tests.support.derivations import NAMESPACE, SOURCE, Derived, content, full, key, row
from tests.support.kubernetes.custom import custom
from tests.support.kubernetes.requests import create, create_namespace, get
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.memory_plane import Plane, plane
from tests.unit.test_applications import CHART, CONFIG, SERVICE, C, D, objects
from tests.unit.test_observation_edge import observed, started

SECRET, OTHER = key(kinds.SECRET, "mine"), key(kinds.SECRET, "mine", "other")
PATH = API_KINDS[kinds.SECRET].path(NAMESPACE)
LABELS = {IMAGE_PULL_SECRET: ""}


def copies(derived: Derived) -> dict[str, str]:
    """The version of the Secret of each wanted copy, by key."""
    wanted = derived.derivation.in_clusters.claims.winners.items()
    return {name: each.secret.version for name, each in wanted if each.secret and each.secret.form == "copy"}


def copy_in(cluster: str, secret: str = SECRET) -> str:
    return object_id(secret)._replace(source=cluster_source(cluster)).key


def test_a_labelled_secret_is_copied_where_services_of_its_namespace_run() -> None:
    rows = objects(svc={"dpuClusterSelector": {"matchLabels": {"x": "1"}}})
    rows[key(kinds.DPU_SERVICE, "svc", "other")] = rows.pop(SERVICE)
    derived = Derived(rows)
    assert derived.observe(OTHER, ready=True, version="1")
    assert copies(derived) == {copy_in(C, OTHER): "1"}, "the service selects one cluster"
    derived.observe(SECRET, ready=True, version="1")
    assert copies(derived) | {copy_in(C): "1", copy_in(D): "1"} == copies(derived), "the operator has services"
    assert derived.observe(SECRET, ready=True, version="2")
    assert copies(derived)[copy_in(C)] == "2"
    derived.observe(SECRET)
    assert copy_in(C) not in copies(derived)
    derived.apply({key(kinds.DPU_SERVICE, "svc", "other"): None})
    assert copies(derived) == {}, "the last service of the namespace is gone"


def test_services_that_share_a_copy_want_the_same_one_and_do_not_own_it() -> None:
    derived = Derived(objects(svc={}, second={}))
    derived.observe(SECRET, ready=True, version="1")
    before = derived.derivation.in_clusters.claims.winners[copy_in(C)]
    assert before.owner == SECRET
    assert copy_in(C) not in derived.apply({SERVICE: None}), "the copy is as before"
    assert derived.derivation.in_clusters.claims.winners[copy_in(C)] == before
    derived.apply({CONFIG: row({"imagePullSecrets": ["mine"]})})
    assert {each: version for each, version in copies(derived).items() if "mine" in each} == {
        copy_in(C): "1",
        copy_in(D): "1",
    }
    assert content(full(derived.state)) == content(derived.derivation)


def test_the_observation_has_the_version_of_a_secret_and_nothing_of_it() -> None:
    assert observe(custom("mine", version=7)) == {"ready": True, "version": "uid-mine/7"}
    assert observe(custom("mine", deleted_s=1)) is None


def live(labels: Mapping[str, str] | None = None, kind: str = "Opaque") -> LiveObject:
    return LiveObject(LiveMetadata("mine", NAMESPACE, uid="u", labels=dict(labels or {})), type=kind)


@pytest.mark.parametrize(("labels", "is_left_alone"), [({}, True), (LABELS, False), (OWN_LABELS, False)])
def test_a_secret_of_others_is_left_alone_and_a_copy_of_dpf_is_taken_over(
    labels: dict[str, str], is_left_alone: bool
) -> None:
    derived = Derived(objects(svc={}))
    derived.observe(SECRET, ready=True, version="1")
    goals = Goals(SOURCE, LiveObjects(), lambda: World.of(derived.state, derived.derivation))
    goals.content = lambda wanted: {"type": "Opaque", "data": {}}
    assert (goals.goal(copy_in(C), live(labels)).manifest is None) == is_left_alone
    assert goals.goal(copy_in(C), None).manifest is not None


def test_a_secret_of_another_type_is_made_again() -> None:
    manifest = {"metadata": {"name": "mine"}, "type": "kubernetes.io/tls", "data": {}}
    at = object_id(copy_in(C))
    write = next_write(at, Goal(manifest=manifest), live(OWN_LABELS), None, 1)
    assert write is not None and (write.verb, write.body) == ("delete", "u")
    assert next_write(at, Goal(manifest=manifest), live(OWN_LABELS, "kubernetes.io/tls"), None, 1) is None


def test_the_source_of_a_dpu_cluster_names_it() -> None:
    assert dpu_cluster(cluster_source(C), SOURCE).key == C


class Copying:
    """A DPU cluster, and the part of a driver that writes the copy of a Secret into it."""

    def __init__(self, made: Plane) -> None:
        self.api = SimulatedApi(made.rng())
        self.events: list[ObjectEvent] = []
        self._made = made
        self._derived = Derived(objects(svc={}))
        self._derived.observe(SECRET, ready=True, version="1")
        self._live = LiveObjects()
        cluster = LiveObject(LiveMetadata("c", NAMESPACE, uid="cluster", resource_version="1"))
        self._live.add(SOURCE, kinds.DPU_CLUSTER).put(cluster)

    async def start(self) -> None:
        await create_namespace(self.api, NAMESPACE)
        source, kind, rng = cluster_source(C), API_KINDS[kinds.SECRET], self._made.rng()
        goals = Goals(SOURCE, self._live, lambda: World.of(self._derived.state, self._derived.derivation))
        goals.content = lambda wanted: {"type": "Opaque", "data": {"key": "bWluZQ=="}}
        cache = self._live.add(source, kinds.SECRET)
        target = ResourceTarget(
            source,
            kind,
            cache,
            goals,
            self._made.ranks("p1"),
            report=self.events.append,
            now_ms=self._made.now_ms,
        )
        writer = Writer(self.api, RequestBudget(100.0), rng=rng)
        watch = ListWatch(self.api, kind.path(), LiveObject, cache, rng=rng, label_selector=OWN_SELECTOR)
        cache.subscribe(lambda item: writer.mark(target, f"{NAMESPACE}/mine"))
        self._made.spawn("p1", writer.run())
        self._made.spawn("p1", watch.run())
        writer.mark(target, f"{NAMESPACE}/mine", delay_s=1.0)

    async def data(self) -> dict[str, str] | None:
        try:
            found: dict[str, str] = (await get(self.api, f"{PATH}/mine"))["data"]
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return found


@pytest.mark.virtual_clock
async def test_a_secret_of_others_is_reported_once_and_replaced_when_it_is_gone() -> None:
    async with plane() as made:
        await made.start("p1", "api", "kubernetes", acts=False)
        copying = Copying(made)
        await create_namespace(copying.api, NAMESPACE)
        other = await create(copying.api, PATH, {"metadata": {"name": "mine"}, "data": {"key": "b3RoZXI="}})
        await copying.start()
        await asyncio.sleep(3 * FOREIGN_S)
        assert await copying.data() == {"key": "b3RoZXI="}
        (event,) = copying.events
        assert (event.reason, event.regarding.name, event.regarding.uid) == (REASON, "c", "cluster")
        await copying.api.delete(f"{PATH}/mine", uid=other["metadata"]["uid"])
        await asyncio.sleep(FOREIGN_S + 60)
        assert await copying.data() == {"key": "bWluZQ=="}
        ours = (await get(copying.api, f"{PATH}/mine"))["metadata"]["uid"]
        await copying.api.delete(f"{PATH}/mine", uid=ours)
        await create(copying.api, PATH, {"metadata": {"name": "mine"}, "data": {"key": "b3RoZXI="}})
        await asyncio.sleep(60)
        assert await copying.data() == {"key": "b3RoZXI="}, "another one has taken the place of the copy"
        assert len(copying.events) == 2


class Stated:
    """The objects with services in a source, which a test states."""

    source = SOURCE

    def __init__(self) -> None:
        self.namespaces: dict[str, None] = {}
        self.is_complete = False
        self._listeners: list[Callable[[], None]] = []

    def objects(self, kind: str) -> Mapping[str, Any]:
        class Facts:
            def __init__(self, namespace: str) -> None:
                self.at = ObjectId(SOURCE, kind, namespace, "svc")

        return {each: Facts(each) for each in self.namespaces} if kind == kinds.DPU_SERVICE else {}

    def is_listed(self, kind: str) -> bool:
        assert kind in KINDS
        return self.is_complete

    def subscribe(self, kind: str, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def change(self, *namespaces: str) -> None:
        self.namespaces = dict.fromkeys(namespaces)
        for listener in self._listeners:
            listener()


async def _secret(api: KubernetesApi, namespace: str, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    path = API_KINDS[kinds.SECRET].path(namespace)
    return await create(api, path, {"metadata": {"name": name, "labels": dict(labels)}, "data": {"key": "bWluZQ=="}})


@pytest.mark.virtual_clock
async def test_only_namespaces_with_services_are_watched() -> None:
    async with plane() as made:
        edge, api, stated = await started(made), SimulatedApi(made.rng()), Stated()
        for namespace in ("a", "b"):
            await create_namespace(api, namespace)
            await _secret(api, namespace, f"of-{namespace}", LABELS)
            await _secret(api, namespace, f"plain-{namespace}", {})
        stated.change("a")
        watches = PullSecretWatches(api, stated, edge, rng=Random(1))
        made.spawn("r1", watches.run())
        await made.until(lambda: set(observed(made)) == {"of-a"})
        assert set(watches.watches) == {"a"}
        stated.change("a", "b")
        await made.until(lambda: set(observed(made)) == {"of-a", "of-b"})
        path = f"{API_KINDS[kinds.SECRET].path('a')}/of-a"
        before = observed(made)["of-a"]
        await api.patch(path, {"data": {"key": "bmV3"}}, "merge")
        await made.until(lambda: observed(made)["of-a"] != before)
        assert "bmV3" not in observed(made)["of-a"]
        await api.patch(path, {"metadata": {"labels": {IMAGE_PULL_SECRET: None}}}, "merge")
        await made.until(lambda: set(observed(made)) == {"of-b"})
        await api.patch(path, {"metadata": {"labels": LABELS}}, "merge")
        await made.until(lambda: set(observed(made)) == {"of-a", "of-b"})
        stated.change("a")
        await asyncio.sleep(30)
        assert set(observed(made)) == {"of-a", "of-b"}, "another list may have a service there"
        stated.is_complete = True
        stated.change("a")
        await made.until(lambda: set(observed(made)) == {"of-a"})
        assert set(watches.watches) == {"a"}


def test_a_service_in_the_cluster_of_the_hosts_copies_nothing() -> None:
    rows = {
        CONFIG: row(),
        C: row(),
        key(kinds.DPU_SERVICE, "svc", "other"): row({"helmChart": CHART, "deployInCluster": True}),
    }
    derived = Derived(rows)
    derived.observe(OTHER, ready=True, version="1")
    assert copies(derived) == {}

"""Observations of objects that others own, and the discovery of their kinds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from commands.kubernetes.kind_watches import SEARCH_S, SEARCH_S_MAX, KindWatches, WatchedKind
from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.observation_edge import ForeignHandler, ObservationEdge
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES
from projections.kubernetes.foreign.applications import APPLICATION
from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.resources.state import ObjectId
from schemas.events import ResourcesObserved
from schemas.kubernetes.api import ApiError
from schemas.kubernetes.objects import Custom
from schemas.resources.crds import definition
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.images import BFB_KIND
from schemas.resources.kinds import Kind
from tests.support.kubernetes.custom import custom, list_of
from tests.support.kubernetes.requests import DEFINITIONS
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

SOURCE = "east"
CLUSTER = "east.dpf.dpus"


async def started(made: Plane, name: str = "r1") -> ObservationEdge:
    await made.start(name, "api", "kubernetes", acts=False)
    edge = ObservationEdge(made.replicas[name], made.ranks(name), SOURCE, now_ms=made.now_ms, rng=made.rng())
    made.spawn(name, edge.run())
    return edge


def observed(made: Plane) -> dict[str, str]:
    """The observation of each object by name."""
    replica = next(iter(made.replicas.values()))
    rows = replica.state(replica.partition_for(RESOURCES, SOURCE)).observed.rows
    return {key.rsplit("/", 1)[1]: row.observation for key, row in rows.items()}


def records(made: Plane) -> int:
    partitions = next(iter(made.replicas.values())).partitions(RESOURCES)
    return sum(made.count(partition, ResourcesObserved) for partition in partitions)


def application(name: str, health: str, *, version: int = 1, uid: str = "", **fields: Any) -> Custom:
    status = {"health": {"status": health}, "sync": {"status": "Synced"}, **fields}
    return custom(name, status=status, version=version, uid=uid)


def handler(edge: ObservationEdge, source: str = SOURCE) -> ForeignHandler:
    return ForeignHandler(edge, source, APPLICATION.name, APPLICATION.observe)


async def test_only_changes_of_fields_that_count_are_stated() -> None:
    async with plane() as made:
        found = handler(await started(made))
        list_of(found, application("a", "Progressing"), application("b", "Healthy"))
        await made.until(lambda: set(observed(made)) == {"a", "b"})
        found.present(application("b", "Healthy", reconciledAt="later"))
        await asyncio.sleep(5)
        assert records(made) == 1
        found.present(application("a", "Healthy"))
        await made.until(lambda: '"ready":true' in observed(made)["a"])
        assert records(made) == 2


async def test_a_restart_states_only_what_changed_and_what_is_gone() -> None:
    async with plane() as made:
        list_of(handler(await started(made)), *(application(name, "Healthy") for name in "abc"))
        await made.until(lambda: set(observed(made)) == {"a", "b", "c"})
        made.kill("r1")
        found = handler(await started(made))
        found.list_began()
        found.present(application("a", "Healthy"))
        await asyncio.sleep(20)
        assert set(observed(made)) == {"a", "b", "c"}
        found.present(application("b", "Healthy"))
        found.list_completed(went_back=False)
        await made.until(lambda: set(observed(made)) == {"a", "b"})
        assert records(made) == 2


async def test_objects_of_dpu_clusters_have_a_source_of_their_own() -> None:
    async with plane() as made:
        edge = await started(made)
        nodes = ForeignHandler(edge, CLUSTER, CLUSTER_NODE.name, CLUSTER_NODE.observe)
        list_of(nodes, custom("dpu-1", namespace=""))
        list_of(handler(edge), application("a", "Healthy"))
        await made.until(lambda: set(observed(made)) == {"dpu-1", "a"})
        assert edge.sources() == [SOURCE, CLUSTER]
        assert nodes.count == 1
        nodes.deleted(custom("dpu-1", namespace=""))
        await made.until(lambda: set(observed(made)) == {"a"})
        list_of(nodes, custom("dpu-2", namespace=""))
        await made.until(lambda: set(observed(made)) == {"dpu-2", "a"})
        edge.remove_all(CLUSTER)
        await made.until(lambda: set(observed(made)) == {"a"})


async def test_two_edges_state_an_observation_once() -> None:
    async with plane() as made:
        first, second = await started(made, "r1"), await started(made, "r2")
        for edge in (second, first):
            list_of(handler(edge), *(application(f"a{number}", "Healthy") for number in range(500)))
        await made.until(lambda: len(observed(made)) == 500)
        await asyncio.sleep(30)
        assert records(made) <= 2


async def test_an_observation_that_comes_and_goes_is_not_stated() -> None:
    async with plane() as made:
        edge = await started(made)
        at = ObjectId(SOURCE, APPLICATION.name, "dpf", "a")
        edge.put(at, "", {"ready": False})
        edge.remove(at)
        edge.remove(ObjectId(SOURCE, APPLICATION.name, "dpf", "never"))
        await asyncio.sleep(5)
        assert not records(made)


class _Lists:
    """A handler that counts complete lists."""

    def __init__(self, counts: Counter[str], plural: str) -> None:
        self._counts = counts
        self._plural = plural

    def list_began(self) -> None: ...

    def present(self, item: Custom) -> None: ...

    def deleted(self, item: Custom) -> None: ...

    def list_completed(self, *, went_back: bool) -> None:
        self._counts[self._plural] += 1


class _Counted:
    """Kinds to watch, with the number of their complete lists."""

    def __init__(self) -> None:
        self.lists: Counter[str] = Counter()

    def make(self, api: Any, kind: Kind) -> WatchedKind:
        lists = _Lists(self.lists, kind.plural)
        watch = partial(ListWatch, api, kind.path(), Custom, lists, rng=Random(1))
        return WatchedKind(kind.api_version, kind.plural, watch)


class _Served:
    """An API server with discovery: the kinds whose definitions were created."""

    def __init__(self) -> None:
        self.inner = SimulatedApi(Random(1))
        self.plurals: Mapping[str, list[str]] = {}
        self.discoveries = 0

    def watch(self, *args: Any, **options: Any) -> Any:
        return self.inner.watch(*args, **options)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if path.count("/") > 3:
            return await self.inner.get(path, query)
        self.discoveries += 1
        names = self.plurals.get(path.removeprefix("/apis/"))
        if names is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return json.dumps({"resources": [{"name": name} for name in names]}).encode()


async def test_missing_kinds_are_looked_for_less_and_less_often_and_then_no_more() -> None:
    server, counted = _Served(), _Counted()
    api: Any = server
    watches = KindWatches(api, [counted.make(api, kind) for kind in (BFB_KIND, DPU_SET)], source="east", rng=Random(1))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watches.run())
        await asyncio.sleep(3_600)
        assert server.discoveries <= 4 + 3_600 / (SEARCH_S_MAX * 0.8) + 3
        assert len(watches.missing) == 2
        await server.inner.create(DEFINITIONS, definition(BFB_KIND))
        server.plurals = {BFB_KIND.api_version: [BFB_KIND.plural, f"{BFB_KIND.plural}/status"]}
        await asyncio.sleep(SEARCH_S_MAX * 1.5)
        assert [kind.plural for kind in watches.missing] == [DPU_SET.plural]
        assert counted.lists == {BFB_KIND.plural: 1}
        await server.inner.create(DEFINITIONS, definition(DPU_SET))
        server.plurals = {BFB_KIND.api_version: [BFB_KIND.plural, DPU_SET.plural]}
        await asyncio.sleep(SEARCH_S_MAX * 1.5)
        assert not watches.missing
        asked = server.discoveries
        await asyncio.sleep(3_000)
        assert server.discoveries == asked
        running.cancel()


async def test_a_kind_that_is_installed_is_watched_at_once() -> None:
    server, counted = _Served(), _Counted()
    api: Any = server
    await server.inner.create(DEFINITIONS, definition(BFB_KIND))
    server.plurals = {BFB_KIND.api_version: [BFB_KIND.plural]}
    watches = KindWatches(api, [counted.make(api, BFB_KIND)], source="east", rng=Random(1))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watches.run())
        await asyncio.sleep(SEARCH_S / 10)
        assert counted.lists == {BFB_KIND.plural: 1}
        running.cancel()


async def test_an_edge_whose_watch_lags_behind_sets_no_observation_back() -> None:
    async with plane() as made:
        ahead, behind = handler(await started(made, "r1")), handler(await started(made, "r2"))
        list_of(ahead, application("a", "Progressing", version=5), application("b", "Healthy", version=6))
        await made.until(lambda: set(observed(made)) == {"a", "b"})
        ahead.present(application("a", "Healthy", version=8))
        await made.until(lambda: '"ready":true' in observed(made)["a"])
        found, before = observed(made), records(made)
        behind.present(application("a", "Degraded", version=7))
        behind.deleted(application("b", "Healthy", version=5))
        await asyncio.sleep(60)
        assert (observed(made), records(made)) == (found, before)
        behind.present(application("a", "Degraded", version=9))
        await made.until(lambda: '"ready":false' in observed(made)["a"])


async def test_an_observation_that_was_late_on_its_way_to_the_log_changes_nothing() -> None:
    async with plane() as made:
        edge = await started(made)
        list_of(handler(edge), application("a", "Healthy", version=8))
        await made.until(lambda: set(observed(made)) == {"a"})
        late = ResourcesObserved(
            envelope(SOURCE, "test", uuid7(made.now_ms(), made.rng())),
            *(SOURCE, [APPLICATION.name], ["dpf"], ["a"], [""], ['{"ready":false}']),
            resource_versions=[7],
        )
        replica = made.replicas["r1"]
        outcome = await replica.submit(replica.partition_for(RESOURCES, SOURCE), b"", late, timeout_s=10)
        assert outcome.outcome.code == "unchanged"
        assert '"ready":true' in observed(made)["a"]


async def test_after_a_restore_from_a_backup_older_versions_replace_newer_ones() -> None:
    async with plane() as made:
        found = handler(await started(made))
        healthy = [application(name, "Healthy", version=90) for name in "abc"]
        list_of(found, *healthy)
        await made.until(lambda: set(observed(made)) == {"a", "b", "c"})
        made.kill("r1")
        found = handler(await started(made))
        assert found.last_version() == 90
        found.record_version(50)
        list_of(
            found, application("a", "Healthy", version=40), application("b", "Degraded", version=41), went_back=True
        )
        await made.until(lambda: set(observed(made)) == {"a", "b"} and '"ready":false' in observed(made)["b"])
        assert found.last_version() == 0
        found.present(application("a", "Degraded", version=51))
        await made.until(lambda: '"ready":false' in observed(made)["a"])


async def test_a_list_that_is_older_than_what_was_observed_before_it_replaces_that() -> None:
    async with plane() as made:
        list_of(handler(await started(made)), application("a", "Healthy", version=90))
        await made.until(lambda: set(observed(made)) == {"a"})
        made.kill("r1")
        found = handler(await started(made))
        found.record_version(1_000)  # the restored server counts on from a higher version than before
        list_of(found, application("a", "Degraded", version=40))
        await made.until(lambda: '"ready":false' in observed(made)["a"])
        await asyncio.sleep(5)
        list_of(found, application("a", "Healthy", version=30, uid="of another cluster"))
        await made.until(lambda: '"ready":true' in observed(made)["a"])


async def test_what_another_edge_stated_last_and_wrongly_is_mended_by_the_next_list() -> None:
    async with plane() as made:
        first, second = handler(await started(made, "r1")), handler(await started(made, "r2"))
        list_of(first, application("a", "Healthy", version=5))
        await made.until(lambda: set(observed(made)) == {"a"})
        first.present(application("a", "Degraded", version=6))
        first.present(application("a", "Healthy", version=7))
        await asyncio.sleep(5)
        second.present(application("a", "Degraded", version=6))
        await made.until(lambda: '"ready":false' in observed(made)["a"])
        made.kill("r2")
        list_of(first, application("a", "Healthy", version=7))
        await made.until(lambda: '"ready":true' in observed(made)["a"])


async def test_only_observations_from_before_a_restore_are_replaced_by_older_ones() -> None:
    async with plane() as made:
        first, second = handler(await started(made, "r1")), handler(await started(made, "r2"))
        list_of(first, application("a", "Healthy", version=90))
        await made.until(lambda: set(observed(made)) == {"a"})
        for each in (first, second):
            each.record_version(50)
            list_of(each, application("a", "Degraded", version=40), went_back=True)
        await made.until(lambda: '"ready":false' in observed(made)["a"])
        second.present(application("a", "Healthy", version=55))
        await made.until(lambda: '"ready":true' in observed(made)["a"])
        first.present(application("a", "Progressing", version=53))
        await asyncio.sleep(60)
        assert '"ready":true' in observed(made)["a"]

"""The edge that states objects of DPF's kinds: what the fold lacks is stated once, and no deletion is a guess."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from commands.kubernetes.differences import LATE_S, RANK_S
from commands.kubernetes.observation_edge import ObservationEdge
from commands.kubernetes.resource_edge import STATED_KINDS, ResourceEdge, key_kind
from eventstore.errors import AppendUnknown, LogUnavailable
from eventstore.log import RESOURCES
from projections.kubernetes.object_events import ObjectEvent
from projections.kubernetes.object_names import OWN_LABELS
from projections.resources.state import ObjectId, Resource, ResourcesState
from schemas.events import ResourcesApplied, ResourcesDeleted
from schemas.kubernetes.objects import Custom, Metadata, Node
from schemas.resources.dpf.device import DPU_DEVICE
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.images import BFB_KIND
from schemas.resources.dpf.names import OWNING_DEPLOYMENT
from schemas.resources.dpf.service import DPU_SERVICE
from schemas.resources.kinds import Kind
from tests.support.kubernetes.custom import CREATED_S, custom, list_of
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

SOURCE = "east"


class Edges:
    """Edges of one source over a plane in memory."""

    def __init__(self, made: Plane) -> None:
        self.plane = made
        self.reported: list[ObjectEvent] = []

    async def start(self, name: str = "r1") -> ResourceEdge:
        """A process with an edge."""
        await self.plane.start(name, "api", "kubernetes", acts=False)
        replica = self.plane.replicas[name]
        clock: dict[str, Any] = {"now_ms": self.plane.now_ms, "rng": self.plane.rng()}
        ranks = self.plane.ranks(name)
        observations = ObservationEdge(replica, ranks, SOURCE, **clock)
        edge = ResourceEdge(replica, ranks, observations, **clock, report=self.reported.append)
        self.plane.spawn(name, observations.run())
        self.plane.spawn(name, edge.run())
        return edge

    @property
    def state(self) -> ResourcesState:
        replica = next(iter(self.plane.replicas.values()))
        found: ResourcesState = replica.state(replica.partition_for(RESOURCES, SOURCE))
        return found

    def row(self, kind: Kind, name: str, namespace: str = "dpf") -> Resource | None:
        return self.state.objects.rows.get(ObjectId(SOURCE, key_kind(kind), namespace, name).key)

    def rows(self) -> dict[str, int]:
        """The generation of each object by name."""
        return {key.rsplit("/", 1)[1]: row.generation for key, row in self.state.objects.rows.items()}

    def records(self) -> int:
        """Number of records of the topic."""
        partitions = next(iter(self.plane.replicas.values())).partitions(RESOURCES)
        kinds = (ResourcesApplied, ResourcesDeleted)
        return sum(self.plane.count(partition, kind) for partition in partitions for kind in kinds)

    async def until(self, *names: str) -> None:
        await self.plane.until(lambda: set(self.rows()) == set(names))


async def test_objects_are_stated_in_few_records_and_once() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        items = [custom(f"dpu-{number}", {"pf0Name": "p0"}) for number in range(2_500)]
        list_of(edge.handler(DPU_DEVICE), *items)
        await made.until(lambda: len(edges.rows()) == 2_500)
        assert edges.records() == 5
        list_of(edge.handler(DPU_DEVICE), *items)
        await asyncio.sleep(5)
        assert edges.records() == 5


async def test_a_restarted_edge_states_only_what_changed_meanwhile() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        list_of(edge.handler(BFB_KIND), custom("a", {"url": "http://x/a"}), custom("b"), custom("c"))
        await edges.until("a", "b", "c")
        made.kill("r1")
        edge = await edges.start()
        list_of(edge.handler(BFB_KIND), custom("a", {"url": "http://x/b"}, generation=2), custom("c"), custom("d"))
        await edges.until("a", "c", "d")
        assert edges.rows()["a"] == 2
        assert edges.records() == 3
        await asyncio.sleep(2 * LATE_S)
        assert edges.records() == 3


async def test_an_object_with_a_finalizer_is_deleting_before_it_is_gone() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        handler = edge.handler(DPU_SET)
        list_of(handler, custom("set"))
        await edges.until("set")
        handler.present(custom("set", generation=2, deleted_s=CREATED_S + 60))
        await made.until(lambda: bool((row := edges.row(DPU_SET, "set")) and row.deleted_ms))
        row = edges.row(DPU_SET, "set")
        assert row is not None
        assert row.deleted_ms == (CREATED_S + 60) * 1000
        handler.deleted(custom("set", generation=2, deleted_s=CREATED_S + 60))
        await edges.until()


async def test_a_recreated_object_is_not_removed_by_the_deletion_of_the_first_one() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        handler = edge.handler(DPU_SET)
        list_of(handler, custom("set", uid="u1"))
        await edges.until("set")
        handler.deleted(custom("set", uid="u1"))
        handler.present(custom("set", uid="u2", created_s=CREATED_S + 5))
        await made.until(lambda: (row := edges.row(DPU_SET, "set")) is not None and row.uid == "u2")


async def test_nothing_is_deleted_before_a_complete_list() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        list_of(edge.handler(BFB_KIND), custom("a"), custom("b"))
        await edges.until("a", "b")
        made.kill("r1")
        edge = await edges.start()
        handler = edge.handler(BFB_KIND)
        handler.list_began()
        handler.present(custom("a"))
        list_of(edge.handler(DPU_SET))  # a complete list of another kind says nothing about images
        await asyncio.sleep(60)
        await edges.until("a", "b")
        handler.list_completed(went_back=False)
        await edges.until("a")


async def test_what_the_plane_wrote_itself_is_not_a_wish_of_a_user() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        list_of(edge.handler(DPU_SERVICE), custom("theirs"), custom("ours", labels=OWN_LABELS))
        list_of(edge.handler(DPU_DEVICE), custom("found", labels=OWN_LABELS))  # discovered, then labelled by a person
        await edges.until("theirs", "found")
        edge.handler(DPU_SERVICE).present(custom("theirs", labels=OWN_LABELS))  # the plane adopted it
        await edges.until("found")


async def test_the_copy_that_kubectl_keeps_is_no_change() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        handler = edge.handler(BFB_KIND)
        list_of(
            handler, custom("a", annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "1"})
        )
        await edges.until("a")
        handler.present(custom("a", annotations={"kubectl.kubernetes.io/last-applied-configuration": "x", "note": "1"}))
        await asyncio.sleep(5)
        assert edges.records() == 1
        row = edges.row(BFB_KIND, "a")
        assert row is not None
        assert row.annotations == {"note": "1"}
        handler.present(custom("a", annotations={"note": "2"}))
        await made.until(lambda: (row := edges.row(BFB_KIND, "a")) is not None and row.annotations == {"note": "2"})


async def test_an_object_that_the_fold_refuses_stops_no_other() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        handler = edge.handler(BFB_KIND)
        list_of(handler, custom("bad", {"x": "y" * 300_000}), custom("good"))
        await edges.until("good")
        (fault,) = edge.faults.values()
        assert "characters are more than" in fault
        assert [event.regarding.name for event in edges.reported] == ["bad"]
        handler.present(custom("bad", generation=2))
        await edges.until("bad", "good")
        assert not edge.faults


async def test_two_edges_state_everything_once() -> None:
    async with plane() as made:
        edges = Edges(made)
        first, second = await edges.start("r1"), await edges.start("r2")
        items = [custom(f"d{number}") for number in range(3_000)]
        list_of(second.handler(DPU_DEVICE), *items)
        list_of(first.handler(DPU_DEVICE), *items)
        await made.until(lambda: len(edges.rows()) == 3_000)
        await asyncio.sleep(30)
        assert edges.records() == 6
        made.kill("r1")
        second.handler(DPU_DEVICE).present(custom("d1", {"pf0Name": "p1"}, generation=2))
        took_s = await made.until(lambda: edges.rows().get("d1") == 2)
        assert took_s < 10 * RANK_S


async def test_an_edge_that_lags_behind_brings_no_older_state_back() -> None:
    async with plane() as made:
        edges = Edges(made)
        first, second = await edges.start("r1"), await edges.start("r2")
        for edge in (first, second):
            list_of(edge.handler(DPU_SET), custom("set", version=10), custom("other", version=11))
        await edges.until("set", "other")
        first.handler(DPU_SET).present(custom("set", generation=3, version=14))
        first.handler(DPU_SET).present(custom("other", labels={"a": "2"}, version=16))
        await made.until(lambda: edges.rows()["set"] == 3)
        records = edges.records()
        second.handler(DPU_SET).present(custom("set", generation=2, version=13))
        second.handler(DPU_SET).present(custom("other", labels={"a": "1"}, version=15))
        await asyncio.sleep(30)
        assert edges.rows()["set"] == 3
        row = edges.row(DPU_SET, "other")
        assert row is not None
        assert row.labels == {"a": "2"}
        assert edges.records() == records


async def test_an_edge_that_lags_behind_does_not_revive_a_deleted_object() -> None:
    async with plane() as made:
        edges = Edges(made)
        first, second = await edges.start("r1"), await edges.start("r2")
        for edge in (first, second):
            list_of(edge.handler(DPU_SET), custom("set", version=10))
        await edges.until("set")
        await asyncio.sleep(5)
        first.handler(DPU_SET).deleted(custom("set", version=12))
        await edges.until()
        second.handler(DPU_SET).present(custom("set", labels={"a": "1"}, version=11))
        await asyncio.sleep(30)
        assert not edges.rows()


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "down"])
async def test_after_a_restore_objects_are_as_in_the_backup_and_none_is_deleted(is_running: bool) -> None:
    """Also if the plane was down, and after it was started again."""

    def list_after_restore(edge: ResourceEdge, *more: Custom, version: int = 50) -> None:
        handler = edge.handler(BFB_KIND)
        went_back = handler.last_version() > version
        handler.list_began()
        for item in (custom("a", {"url": "http://x/old"}, generation=3, version=30), *more):
            handler.present(item)
        handler.record_version(version)
        handler.list_completed(went_back=went_back)

    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        now = custom("a", {"url": "http://x/new"}, generation=7, version=90)
        list_of(edge.handler(BFB_KIND), now, custom("later", version=99))
        await edges.until("a", "later")
        if not is_running:
            made.kill("r1")
            edge = await edges.start()
        list_after_restore(edge)
        await made.until(lambda: edges.rows()["a"] == 3)
        row = edges.row(BFB_KIND, "a")
        assert row is not None
        assert row.spec == '{"url":"http://x/old"}'
        await asyncio.sleep(30)
        made.kill("r1")
        edge = await edges.start()
        list_after_restore(edge, version=200)  # long after the restore
        await asyncio.sleep(30)
        assert set(edges.rows()) == {"a", "later"}
        assert {len(keys) for keys in edge.retained.values()} == {1}
        edge.handler(BFB_KIND).present(custom("later", uid="again", created_s=CREATED_S + 9, version=201))
        edge.handler(BFB_KIND).deleted(custom("later", uid="again", created_s=CREATED_S + 9, version=202))
        edge.handler(BFB_KIND).present(custom("new", version=203))
        await made.until(lambda: "new" in edges.rows())
        list_after_restore(edge, version=300)
        await made.until(lambda: "new" not in edges.rows())


@pytest.mark.parametrize("error", [LogUnavailable("away"), AppendUnknown("no answer")])
async def test_a_lost_append_is_repeated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        replica, calls = made.replicas["r1"], 0
        submit = replica.submit

        async def lossy(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise error
            return await submit(*args, **options)

        monkeypatch.setattr(replica, "submit", lossy)
        list_of(edge.handler(BFB_KIND), custom("a"))
        await edges.until("a")


async def test_of_nodes_only_hosts_with_dpus_are_stated() -> None:
    pci = "feature.node.kubernetes.io/dpu-0-pci-address"

    def node(name: str, **labels: str) -> Node:
        found = custom(name, namespace="").metadata
        return Node(Metadata(name=name, uid=found.uid, creation_timestamp=found.creation_timestamp, labels=labels))

    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        handler = edge.node_handler()
        list_of(handler, node("plain"), node("host", **{pci: "0000-03-00"}))
        await edges.until("host")
        handler.present(node("plain", **{pci: "0000-03-00"}))
        handler.present(node("host"))
        await edges.until("plain")


def test_every_kind_of_dpf_but_those_of_dpu_clusters_is_stated() -> None:
    assert len(STATED_KINDS) == 21
    assert not {"ServiceChainSet", "ServiceInterfaceSet"} & {kind.name for kind in STATED_KINDS}


async def test_children_of_deployments_are_stated_and_dpus_of_the_plane_are_not() -> None:
    labels = OWN_LABELS | {OWNING_DEPLOYMENT: "dpf_edge"}
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        list_of(edge.handler(DPU_SET), custom("edge-all", labels=labels))
        list_of(edge.handler(DPU_KIND), custom("h1-d1", labels=labels))
        await edges.until("edge-all")
        await asyncio.sleep(LATE_S)
        assert set(edges.rows()) == {"edge-all"}, "an older revision has effect until it is deleted"

"""DPUs whose objects users delete in Kubernetes: each is released to its wanted image, once for each object."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from commands.kubernetes.resource_edge import NOT_INSTALLED_AGAIN, ResourceEdge
from eventstore.log import RESOURCES
from projections.kubernetes.object_names import OWN_LABELS
from projections.resources import kinds
from projections.resources.rollouts.rows import DpuRollout
from projections.resources.state import ObjectId
from schemas.kubernetes.objects import Custom
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.dpu_set import DPU_SET
from tests.support.kubernetes.custom import CREATED_S, custom, list_of
from tests.support.memory_plane import plane
from tests.support.resources import EAST, NAMESPACE, DeliveredResources
from tests.support.rollouts import dpu_plan, plan_in_kubernetes, set_spec
from tests.unit.test_resource_edge import SOURCE, Edges

DPU = ObjectId(EAST, kinds.DPU, NAMESPACE, "d").key


def outdated() -> DeliveredResources:
    """A DPU of Kubernetes that is installed with image one, and shall have image two once it is deleted."""
    log = DeliveredResources()
    plan_in_kubernetes(log, "one/1")
    log.observe(kinds.DPU, "d", '{"ready":true,"installed":"one/1"}', source=EAST)
    plan_in_kubernetes(log, "two/1")
    return log


def row(log: DeliveredResources) -> DpuRollout:
    return log.state.dpu_rollouts.rows[DPU]


def test_the_deletion_of_an_object_releases_its_dpu_once() -> None:
    log = outdated()
    assert row(log).released == "one/1"
    assert log.delete(kinds.DPU, "d", uid="first", source=EAST).code == "done"
    assert (row(log).released, row(log).deleted_uid) == ("two/1", "first")
    plan_in_kubernetes(log, "three/1")
    assert log.delete(kinds.DPU, "d", uid="first", source=EAST).code == "unchanged"
    assert row(log).released == "two/1"
    assert log.delete(kinds.DPU, "d", uid="second", source=EAST).code == "done"
    assert row(log).released == "three/1"


def test_the_deletion_of_an_object_with_the_wanted_image_is_known_and_changes_nothing_else() -> None:
    log = DeliveredResources()
    plan_in_kubernetes(log, "one/1")
    before = row(log)
    assert log.delete(kinds.DPU, "d", uid="first", source=EAST).code == "done"
    assert row(log) == replace(before, deleted_uid="first")
    log.observe(kinds.DPU, "d", '{"ready":true,"installed":"one/1"}', source=EAST)
    plan_in_kubernetes(log, "two/1")
    log.delete(kinds.DPU, "d", uid="first", source=EAST)
    assert row(log).released == "one/1"


@pytest.mark.virtual_clock
async def test_the_edge_states_a_deletion_once_on_every_replica_and_after_a_restart() -> None:
    async with plane() as made:
        edges = Edges(made)
        first, second = await edges.start("r1"), await edges.start("r2")
        await _plan(edges, first)
        before = edges.records()
        for edge in (first, second):
            list_of(edge.handler(DPU_KIND), _own("d", deleted=True), _own("e", deleted=False))
        await made.until(lambda: edges.state.dpu_rollouts.rows[DPU].deleted_uid == "uid-d")
        third = await edges.start("r3")
        list_of(third.handler(DPU_KIND), _own("d", deleted=True))
        await asyncio.sleep(30)
        assert edges.records() == before + 1
        assert {each.reason for each in edges.reported} == {NOT_INSTALLED_AGAIN}


@pytest.mark.virtual_clock
async def test_the_edge_states_the_deletion_of_a_dpu_that_gets_its_plan_later() -> None:
    async with plane() as made:
        edges = Edges(made)
        edge = await edges.start()
        list_of(edge.handler(DPU_KIND), _own("d", deleted=True))
        await asyncio.sleep(5)
        await _plan(edges, edge)
        await made.until(lambda: edges.state.dpu_rollouts.rows[DPU].deleted_uid == "uid-d")


def _own(name: str, *, deleted: bool) -> Custom:
    """The object of a DPU that the plane wrote."""
    return custom(name, {}, labels=OWN_LABELS, deleted_s=CREATED_S + 5 if deleted else 0)


async def _plan(edges: Edges, edge: ResourceEdge) -> None:
    """A DPUSet with a plan for one DPU."""
    list_of(edge.handler(DPU_SET), custom("set", json.loads(set_spec(strategy={"type": "OnDelete"}))))
    await edges.until("set")
    replica = next(iter(edges.plane.replicas.values()))
    partition = replica.partition_for(RESOURCES, SOURCE)
    planned = dpu_plan("one/1", replica.position(partition))
    await replica.append_event(partition, SOURCE.encode(), planned, timeout_s=5)
    await edges.plane.until(lambda: DPU in edges.state.dpu_rollouts.rows)

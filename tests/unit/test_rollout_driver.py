"""Rollouts on whole processes: plans are stated, waves follow each other, and DPUs get a DPU cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from commands.queries.fold_reader import FoldReader
from commands.queries.position_waiter import PositionWaiter
from drivers.resource_worlds import ResourceWorlds
from eventstore.log import RESOURCES
from projections.resources import kinds
from projections.resources.derivation import Derivation
from projections.resources.rollouts.planned import Planning
from projections.resources.rollouts.released import cluster_of
from projections.resources.rollouts.rows import Rollout
from projections.resources.state import ObjectId
from projections.zones.dpus.phases import DELETING, NODE_EFFECT, READY
from schemas.events import DpusAllocated, Event, RolloutAdvanced, RolloutPlanned, RolloutRequested
from tests.support.call_counts import calls_of
from tests.support.memory_plane import Plane, plane
from tests.unit.test_handover import NAMESPACE, READY_IMAGE, SOURCE, Fleet, key, started

pytestmark = pytest.mark.virtual_clock

HOSTS = ("h1", "h2", "h3")
SET = key(kinds.DPU_SET, "set")


async def wanted(fleet: Fleet, image: str, **annotations: str) -> None:
    """A DPUSet for all devices with an image, which is downloaded."""
    await fleet.apply(kinds.BFB, {image: {"url": f"http://images/{image}"}})
    await fleet.observe(kinds.BFB, image, READY_IMAGE)
    template = {"spec": {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    given = {f"dpuplane.io/rollout-{name.replace('_', '-')}": text for name, text in annotations.items()}
    spec: dict[str, Any] = {"strategy": strategy, "dpuTemplate": template}
    await fleet.apply(kinds.DPU_SET, {"set": spec}, annotations={"set": given})


async def installed(on: Plane, *names: str, **annotations: str) -> Fleet:
    """A fleet of three DPUs with image one."""
    fleet = await started(on, *names)
    await fleet.hosts(HOSTS)
    await fleet.apply(kinds.DPU_FLAVOR, {"flavor": {}})
    await wanted(fleet, "one", **annotations)
    await fleet.install(*(f"{name}-d{name}" for name in HOSTS))
    await on.until(lambda: all(fleet.seen(f"{name}-d{name}").get("ready") for name in HOSTS))
    return fleet


def rollout(fleet: Fleet) -> Rollout | None:
    return fleet.state.rollouts.rows.get(SET)


def installing(fleet: Fleet) -> list[str]:
    """The hosts whose DPUs are being installed."""
    return [name for name in HOSTS if fleet.phase(f"{name}-d{name}") != READY]


def records(on: Plane, event: type[Event]) -> int:
    """The number of records of a kind about the objects."""
    return on.count(next(iter(on.replicas.values())).partition_for(RESOURCES, SOURCE), event)


def length(on: Plane) -> int:
    """The number of records in the log."""
    return sum(map(len, on.contents.records.values()))


async def test_waves_follow_each_other_and_a_failure_holds_the_rollout_until_it_is_undone() -> None:
    async with plane() as on:
        fleet = await installed(on, waves="1", bake_time="1m")
        await wanted(fleet, "two", waves="1", bake_time="1m")
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        assert installing(fleet) == ["h1"]
        await fleet.install("h1-dh1")
        waited_s = await on.until(lambda: len(installing(fleet)) == 2, timeout_s=120)
        assert 59 < waited_s < 65
        await fleet.step("h2-dh2", fails=True)
        await on.until(lambda: bool((row := rollout(fleet)) and row.held))
        await fleet.install("h3-dh3")
        replica = next(iter(on.replicas.values()))
        partition = replica.partition_for(RESOURCES, SOURCE)
        event = RolloutRequested(on.command(SOURCE), SOURCE, kinds.DPU_SET, NAMESPACE, "set", "undo", 0)
        await replica.submit(partition, SOURCE.encode(), event, timeout_s=5.0)
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        await fleet.install("h1-dh1")
        await on.until(lambda: "h2" in installing(fleet) and "h3" in installing(fleet), timeout_s=120)
        await fleet.install("h2-dh2", "h3-dh3")
        await on.until(lambda: all(fleet.seen(f"{n}-d{n}").get("installed", "").startswith("one/") for n in HOSTS))


async def test_several_replicas_state_a_plan_once() -> None:
    async with plane() as on:
        fleet = await installed(on, "a", "b", "c")
        await on.until(lambda: rollout(fleet) is not None)
        assert records(on, RolloutPlanned) == 1
        before = records(on, RolloutAdvanced)
        await wanted(fleet, "two")
        await on.until(lambda: len(installing(fleet)) == 2)
        assert records(on, RolloutPlanned) == 2
        assert records(on, RolloutAdvanced) <= before + 2


async def test_a_settled_plane_appends_nothing() -> None:
    async with plane() as on:
        await installed(on)
        await asyncio.sleep(30)
        count = length(on)
        await asyncio.sleep(300)
        assert length(on) == count


async def test_dpus_get_the_fullest_ready_cluster_that_has_room() -> None:
    async with plane() as on:
        fleet = await started(on)
        await fleet.apply(
            kinds.DPU_CLUSTER,
            {"big": {"type": "static", "maxNodes": 10}, "small": {"type": "static", "maxNodes": 2}},
        )
        for name in ("big", "small"):
            await fleet.observe(kinds.DPU_CLUSTER, name, '{"ready":false}')
        await fleet.hosts(HOSTS)
        await fleet.want()
        await on.until(lambda: rollout(fleet) is not None)
        assert not fleet.state.allocations.rows
        for name in ("big", "small"):
            await fleet.observe(kinds.DPU_CLUSTER, name, READY_IMAGE)
        await on.until(lambda: len(fleet.state.allocations.rows) == 3)
        clusters = [cluster_of(fleet.state, key(kinds.DPU, f"{name}-d{name}")) for name in HOSTS]
        of = [ObjectId(*str(each).split("/")).name for each in clusters]
        assert of in (["big", "big", "big"], ["small", "small", "big"], ["big", "small", "small"])
        assert records(on, DpusAllocated) <= 2
        await fleet.delete(kinds.DPU_DEVICE, "dh2")
        await fleet.until_phase("h2-dh2", DELETING)
        assert len(fleet.state.allocations.rows) == 3, "its node is still in the cluster"
        await fleet.step("h2-dh2")
        await on.until(lambda: len(fleet.state.allocations.rows) == 2, timeout_s=60)


async def test_a_plan_is_derived_again_for_a_host_only_if_its_failure_domain_changes() -> None:
    async with plane() as on:
        fleet = await installed(on, failure_domain="row")
        await asyncio.sleep(10)
        labels = {"topology.kubernetes.io/rack": "z1"}
        for changed, derives in (({"note": "x"}, False), ({"note": "x", "row": "1"}, True), ({"row": "1"}, False)):
            with calls_of(Planning.__init__.__code__) as plans:
                await fleet.apply(kinds.DPU_NODE, {"h1": {}}, labels={"h1": labels | changed})
                await asyncio.sleep(10)
                assert bool(plans()) == derives, changed
        row = fleet.state.dpu_rollouts.rows[key(kinds.DPU, "h1-dh1")]
        assert row.group == 1, "a host with a row comes after those without one"


async def test_the_actors_and_the_queries_of_a_process_share_one_derivation() -> None:
    async with plane() as on:
        with calls_of(Derivation.__init__.__code__) as derivations:
            fleet = await installed(on)
            replica = on.replicas["a"]
            partition = replica.partition_for(RESOURCES, SOURCE)
            reader = FoldReader(replica, PositionWaiter(replica))
            shown = (await reader.derive_resources([partition.number]))[partition.number]
            acted_on = await ResourceWorlds(replica).world(partition)
            assert shown.derivation is acted_on.derivation and len(shown.derivation.dpus.winners) == len(HOSTS)
            made = derivations()
            await fleet.apply(kinds.DPU_NODE, {"h1": {}})
            await asyncio.sleep(10)
            assert derivations() == made <= 2 * len(replica.partitions(RESOURCES)), (
                "one, and one when it was read first"
            )

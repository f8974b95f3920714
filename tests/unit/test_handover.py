"""Wanted DPUs are handed to their zones, and their phases come back, with several replicas, losses and moves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from eventstore.log import RESOURCES, ZONES, Partition
from projections.fold_states import FoldStates
from projections.resources import kinds
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.handover import BMC_ADDRESS, ZONE_LABEL
from projections.resources.state import ObjectId, ResourcesState
from projections.zones.dpus.phases import DELETING, ERROR, NODE_EFFECT, READY
from schemas.events import (
    DpuRegistered,
    DpusPlaced,
    DpusWanted,
    LifecycleRequested,
    ResourcesApplied,
    ResourcesDeleted,
    ResourcesObserved,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

SOURCE, NAMESPACE = "local", "dpf"
IMAGE = {"url": "http://images/1"}
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
READY_IMAGE = '{"ready":true}'
ROLLING = {"type": "RollingUpdate"}


def key(kind: str, name: str) -> str:
    return ObjectId(SOURCE, kind, NAMESPACE, name).key


class Fleet:
    """The objects of a fleet on a plane. `state` and `dpu` read the folds of the first process."""

    def __init__(self, on: Plane) -> None:
        self.plane = on

    @property
    def state(self) -> ResourcesState:
        return FoldStates(next(iter(self.plane.replicas.values()))).resources(SOURCE)

    async def apply(
        self,
        kind: str,
        specs: Mapping[str, Mapping[str, Any]],
        labels: Mapping[str, dict[str, str]] | None = None,
        annotations: Mapping[str, dict[str, str]] | None = None,
    ) -> None:
        """Apply objects of a kind by name."""
        columns: dict[str, Any] = {name: [] for name in ("uids", "generations", "created_ms", "deleted_ms")}
        event = ResourcesApplied(
            self.plane.command(SOURCE),
            SOURCE,
            [kind],
            [NAMESPACE],
            [*specs],
            labels=[(labels or {}).get(name, {}) for name in specs],
            annotations=[(annotations or {}).get(name, {}) for name in specs],
            specs=[json.dumps(spec) for spec in specs.values()],
            expected_generations=[],
            **columns,
        )
        await self._submit(event)

    async def delete(self, kind: str, *names: str) -> None:
        await self._submit(ResourcesDeleted(self.plane.command(SOURCE), SOURCE, [kind], [NAMESPACE], [*names], []))

    async def observe(self, kind: str, name: str, text: str) -> None:
        said = self.plane.command(SOURCE)
        await self._submit(ResourcesObserved(said, SOURCE, [kind], [NAMESPACE], [name], [], [text]))

    async def _submit(self, event: Any) -> None:
        replica = next(iter(self.plane.replicas.values()))
        partition = replica.partition_for(RESOURCES, SOURCE)
        answer = await replica.submit(partition, SOURCE.encode(), event, timeout_s=5.0)
        assert answer.outcome.code != "refused", answer

    async def hosts(self, names: Iterable[str], zone: str = "z1") -> None:
        """Hosts with one DPU each, named `<host>-d<host>`."""
        named = [*names]
        await self.apply(kinds.DPU_NODE, {n: {} for n in named}, labels={n: {ZONE_LABEL: zone} for n in named})
        await self.apply(
            kinds.DPU_DEVICE,
            {f"d{n}": {"serialNumber": ""} for n in named},
            labels={f"d{n}": {DPU_NODE_NAME: n} for n in named},
            annotations={f"d{n}": {BMC_ADDRESS: f"simulated:{n}"} for n in named},
        )

    async def want(self, image: str = "image", **spec: Any) -> None:
        """A DPUSet for all devices, and its image, downloaded."""
        await self.apply(kinds.BFB, {image: {"url": f"http://images/{image}"}})
        await self.observe(kinds.BFB, image, READY_IMAGE)
        await self.apply(kinds.DPU_FLAVOR, {"flavor": {}})
        template = {"spec": {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}} | spec}
        await self.apply(kinds.DPU_SET, {"set": {"dpuTemplate": template, "strategy": ROLLING}})

    def seen(self, name: str) -> dict[str, Any]:
        """The observation of a DPU; empty without one."""
        found = self.state.seen.get(key(kinds.DPU, name))
        return found.fields if found is not None else {}

    def phase(self, name: str, zone: str = "z1") -> str:
        """The phase of a DPU in its zone; empty if it is not there."""
        row = self.plane.zone(zone).dpus.rows.get(name)
        return row.phase if row is not None and row.zone == zone else ""

    async def until_phase(self, name: str, phase: str, zone: str = "z1") -> None:
        await self.plane.until(lambda: self.phase(name, zone) == phase)

    async def step(self, name: str, zone: str = "z1", *, fails: bool = False) -> None:
        """Begin and end one step of a DPU."""
        row = self.plane.dpu(name, zone)
        about = (zone, name, row.phase, row.attempt + 1)
        await self.plane.submit(zone, StepStarted(self.plane.command(name), *about, "p1"))
        if fails:
            await self.plane.submit(zone, StepFailed(self.plane.command(name), *about, "operator", "cable"))
        else:
            await self.plane.submit(zone, StepSucceeded(self.plane.command(name), *about, {}))

    async def install(self, *names: str, zone: str = "z1") -> None:
        """Lead DPUs through all steps to Ready."""
        for name in names:
            await self.plane.until(partial(self._is_installing, name, zone))
            while self.phase(name, zone) != READY:
                await self.step(name, zone)

    def _is_installing(self, name: str, zone: str) -> bool:
        return self.phase(name, zone) not in ("", "Initializing")


async def started(on: Plane, *names: str) -> Fleet:
    for name in names or ("a",):
        await on.start(name, "api")
    return Fleet(on)


async def test_a_wanted_dpu_is_installed_in_its_zone_and_its_phases_come_back() -> None:
    async with plane() as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        await on.until(lambda: fleet.seen("h1-dh1").get("phase") == NODE_EFFECT)
        await fleet.install("h1-dh1")
        assert await on.until(lambda: fleet.seen("h1-dh1").get("ready") is True) < 2
        seen, row = fleet.seen("h1-dh1"), on.dpu("h1-dh1")
        assert seen["installed"] == row.installed == seen["image"]
        assert (row.node, row.bmc_address) == ("h1", "simulated:h1")
        derivation = Derivation()
        derivation.update(fleet.state, fleet.state.objects.rows)
        world = World.of(fleet.state, derivation)
        assert [each.status for each in conditions_of(key(kinds.DPU_SET, "set"), world)][:1] == ["True"]


async def test_an_image_that_is_not_downloaded_drains_no_host() -> None:
    async with plane() as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.install("h1-dh1")
        await fleet.apply(kinds.BFB, {"next": {"url": "http://images/next"}})
        await fleet.observe(kinds.BFB, "next", '{"ready":false,"phase":"Downloading"}')
        template = {"spec": {"bfb": {"name": "next"}, "dpuFlavor": "flavor"}}
        await fleet.apply(kinds.DPU_SET, {"set": {"strategy": ROLLING, "dpuTemplate": template}})
        with pytest.raises(TimeoutError):
            await on.until(lambda: fleet.phase("h1-dh1") != READY, timeout_s=20)
        await fleet.observe(kinds.BFB, "next", READY_IMAGE)
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        await fleet.install("h1-dh1")
        await on.until(lambda: fleet.seen("h1-dh1").get("installed", "").startswith("next/"))


async def test_a_failed_dpu_is_reported_and_another_image_leads_out_of_the_error() -> None:
    async with plane() as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        await fleet.step("h1-dh1", fails=True)
        await on.until(lambda: fleet.seen("h1-dh1").get("phase") == ERROR)
        assert fleet.seen("h1-dh1")["message"] == "cable"
        await fleet.want("other")
        await fleet.until_phase("h1-dh1", NODE_EFFECT)


async def test_dpus_of_a_deleted_set_leave_nothing_behind() -> None:
    async with plane() as on:
        fleet = await started(on)
        await fleet.hosts(["h1", "h2"])
        await fleet.want()
        await fleet.install("h1-dh1", "h2-dh2")
        await fleet.delete(kinds.DPU_SET, "set")
        for name in ("h1-dh1", "h2-dh2"):
            await fleet.until_phase(name, DELETING)
            await fleet.step(name)
        await on.until(lambda: not fleet.state.placements.rows)
        assert not fleet.seen("h1-dh1")
        assert not on.zone("z1").wanted.rows
        assert not on.zone("z1").dpus.rows


async def test_a_dpu_moves_to_another_zone_only_after_it_is_gone_from_the_first() -> None:
    async with plane(12) as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.install("h1-dh1")
        await fleet.hosts(["h1"], zone="z2")
        await fleet.until_phase("h1-dh1", DELETING)
        with pytest.raises(TimeoutError):
            await on.until(lambda: fleet.phase("h1-dh1", "z2") != "", timeout_s=20)
        await fleet.step("h1-dh1")
        await fleet.until_phase("h1-dh1", NODE_EFFECT, "z2")
        assert fleet.phase("h1-dh1") == ""
        await on.until(lambda: fleet.seen("h1-dh1").get("zone") == "z2")


async def test_a_dpu_whose_deletion_failed_stays_in_its_zone_until_an_operator_ends_it() -> None:
    async with plane(12) as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.install("h1-dh1")
        await fleet.hosts(["h1"], zone="z2")
        await fleet.until_phase("h1-dh1", DELETING)
        await fleet.step("h1-dh1", fails=True)
        await on.until(lambda: fleet.seen("h1-dh1").get("message") == "cable")
        with pytest.raises(TimeoutError):
            await on.until(lambda: fleet.phase("h1-dh1", "z2") != "", timeout_s=20)
        await on.submit("z1", LifecycleRequested(on.command("h1-dh1"), "z1", "h1-dh1", "retry", ""))
        await fleet.until_phase("h1-dh1", DELETING)
        await fleet.step("h1-dh1")
        await fleet.until_phase("h1-dh1", NODE_EFFECT, "z2")


async def test_a_label_that_returns_at_once_takes_the_end_of_the_placement_back() -> None:
    async with plane(12) as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.install("h1-dh1")
        await fleet.hosts(["h1"], zone="z2")
        await fleet.until_phase("h1-dh1", DELETING)
        await fleet.hosts(["h1"], zone="z1")
        await on.until(lambda: "h1-dh1" in on.zone("z1").wanted.rows)
        await fleet.step("h1-dh1")
        await fleet.install("h1-dh1")
        assert fleet.phase("h1-dh1", "z2") == ""


async def test_the_dpu_of_an_operator_stays_and_the_object_says_so() -> None:
    async with plane() as on:
        fleet = await started(on)
        await on.register("h1-dh1")
        await fleet.hosts(["h1"])
        await fleet.want()
        await on.until(lambda: "another DPU of this name" in fleet.seen("h1-dh1").get("message", ""))
        assert fleet.phase("h1-dh1") == "Initializing"
        await on.submit("z1", LifecycleRequested(on.command("z1"), "z1", "h1-dh1", "delete", ""))
        await fleet.step("h1-dh1")
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        assert on.count(on.partition("z1"), DpuRegistered) == 1


async def test_a_crowd_is_handed_over_in_few_records() -> None:
    async with plane() as on:
        fleet = await started(on)
        names = [f"h{number}" for number in range(1_000)]
        await fleet.hosts(names)
        await fleet.want()
        took_s = await on.until(lambda: len(on.zone("z1").wanted.rows) == len(names))
        await on.until(lambda: len(fleet.state.seen) == len(names) + 1)
        assert took_s < 5
        partition = next(iter(on.replicas.values())).partition_for(RESOURCES, SOURCE)
        assert on.count(partition, DpusPlaced) <= 10
        assert on.count(on.partition("z1"), DpusWanted) <= 20
        assert on.count(partition, ResourcesObserved) <= 25


async def test_another_replica_takes_over_and_two_do_no_harm() -> None:
    async with plane() as on:
        fleet = await started(on, "a", "b")
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        on.kill("a")
        fleet = Fleet(on)
        await fleet.want("other")
        await on.until(lambda: on.dpu("h1-dh1").image.startswith("other/"))
        await fleet.install("h1-dh1")
        await on.until(lambda: fleet.seen("h1-dh1").get("ready") is True)
        await on.start("a", "api")
        before = on.count(on.partition("z1"), DpusWanted)
        with pytest.raises(TimeoutError):
            await on.until(lambda: on.count(on.partition("z1"), DpusWanted) > before, timeout_s=20)


async def test_zones_are_upgraded_only_where_dpus_are_wanted() -> None:
    async with plane(12) as on:
        fleet = await started(on)
        await fleet.hosts(["h1"])
        await fleet.want()
        await fleet.until_phase("h1-dh1", NODE_EFFECT)
        replica = next(iter(on.replicas.values()))
        found = {part.number: replica.folded(part).version for part in replica.partitions(ZONES)}
        here: Partition = on.partition("z1")
        assert found == {number: 2 if number == here.number else 1 for number in found}

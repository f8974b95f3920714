"""The Events about the object of a zone: what each one is about, and that a state is reported once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from commands.kubernetes.node_edge import NodeEdge
from eventstore.log import ZONES, Partition
from projections.kubernetes.object_events import ObjectEvent, Regarding
from projections.kubernetes.rack_events import MAX_STUCK, RackFacts, rack_events
from projections.kubernetes.zone_notices import ZoneNotices
from projections.zones.dpus.phases import ERROR
from schemas.events import NodesLeft
from schemas.resources.dpu_rack import DPU_RACK
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.statuses import Statuses, joined
from tests.support.memory_plane import plane
from tests.unit.test_node_edge import RULES, list_of, node
from tests.unit.test_rack_status import dpu, zone_of

pytestmark = pytest.mark.virtual_clock


@asynccontextmanager
async def statuses(*, notices: ZoneNotices | None = None) -> AsyncIterator[Statuses]:
    async with plane(12) as made:
        found = Statuses(made, SimulatedApi(Random(1)))
        await found.install()
        await found.start("r1", notices=notices)
        yield found


def about(made: Statuses, reason: str) -> list[tuple[str, str]]:
    """The object of a zone and the message of each reported Event with this reason."""
    racks = (each for each in made.reported if each.regarding.kind == DPU_RACK.name)
    return [(each.regarding.name, each.message) for each in racks if each.reason == reason]


def of_zone(*stuck: str, quarantined: int = 0) -> Sequence[ObjectEvent]:
    state = zone_of({name: dpu(place, ERROR, message="no power") for place, name in enumerate(stuck)})
    partition = Partition(ZONES, 3)
    return list(rack_events("z", "u", RackFacts("z", state, partition, quarantined, (), None)))


def test_each_dpu_that_needs_an_operator_has_an_event_up_to_a_maximum() -> None:
    found = of_zone("d1", "d2")
    assert [each.message for each in found] == [
        f"DPU {name} needs an operator: Error: no power" for name in ("d1", "d2")
    ]
    assert {each.regarding for each in found} == {Regarding(DPU_RACK.api_version, "DPURack", "z", "u")}
    assert len({each.name for each in found}) == 2
    assert len(of_zone(*(f"d{number}" for number in range(50)))) == MAX_STUCK


def test_quarantined_records_of_the_partition_are_one_event() -> None:
    one, many = of_zone(quarantined=1)[0], of_zone(quarantined=7)[0]
    assert one.message.startswith("1 record of zones/3, the partition of this zone, cannot be decoded")
    assert many.message.startswith("7 records of zones/3") and one.name == many.name


async def test_a_stuck_dpu_is_reported_once_and_again_when_it_is_stuck_again() -> None:
    async with statuses() as made:
        await made.plane.register("d1")
        await made.plane.request("d1", "pause")
        await asyncio.sleep(60)
        assert [name for name, _ in about(made, "DPUNeedsOperator")] == ["z1"]
        await made.plane.request("d1", "resume")
        await asyncio.sleep(60)
        await made.plane.request("d1", "pause")
        await asyncio.sleep(60)
        assert len(about(made, "DPUNeedsOperator")) == 2
        assert len({each.name for each in made.reported}) == 1


async def test_a_hold_is_reported_on_the_zones_of_its_nodes_only() -> None:
    async with statuses() as made:
        for first in range(0, 400, 200):
            await made.plane.submit("z1", joined(made.plane.command("z1"), first))
        await made.plane.join("z2", "other")
        await asyncio.sleep(60)
        names = [f"c{number}" for number in range(390)]
        await made.plane.submit("z1", NodesLeft(made.plane.command("z1"), "z1", names, [], [], False, b""))
        await made.plane.until(lambda: bool(made.plane.fleet().holds.rows))
        await asyncio.sleep(60)
        ((name, message),) = about(made, "WaitsForApproval")
        assert name == "z1"
        assert message.startswith("hold-1: a change of members exceeds the budget denied-by-leave, and waits")


async def test_nodes_that_stay_without_evidence_are_reported_on_their_zone() -> None:
    notices = ZoneNotices()
    async with statuses(notices=notices) as made:
        replica = made.plane.replicas["r1"]
        edge = NodeEdge(replica, RULES, now_ms=made.plane.now_ms, rng=made.plane.rng(), notices=notices)
        made.plane.spawn("r1", edge.run())
        list_of(edge, node("n1", "z1"), node("n2", "z2"), node("n3", "z2"))
        await asyncio.sleep(60)
        assert not made.reported
        list_of(edge)
        await asyncio.sleep(5)
        assert {name for name, _ in about(made, "NodesRetained")} == {"z1", "z2"}
        list_of(edge, node("n1", "z1"), node("n3", "z2"), went_back=True)
        await asyncio.sleep(5)
        ((name, message),) = about(made, "RestoredFromBackup")
        assert (name, message) == (
            "z2",
            "1 node of source east stay, but the API server lists them no more: the API server was restored from an "
            "older backup; `dpuplane nodes leave` removes them",
        )
        reported = len(made.reported)
        list_of(edge, node("n1", "z1"), node("n2", "z2"), node("n3", "z2"))
        await asyncio.sleep(60)
        assert len(made.reported) == reported and edge.retained == 0

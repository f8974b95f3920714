"""Changes of networks reach the DPUs in stages, hold themselves, and are rolled back, with several replicas."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pyroaring import BitMap

from eventstore.folding.fold import Outcome
from eventstore.log import INSTALLS, RESOURCES, ZONES, Partition
from projections.resources import kinds
from projections.resources.network_documents.document import Interface
from projections.resources.network_documents.staged import SourceDocuments
from projections.resources.network_documents.stated import StatedInterface, StatedNetworks, StatedPool, Where
from projections.resources.network_documents.stated_text import decoded_networks, encoded_networks
from projections.resources.network_stages.rows import MAX_NETWORKS_BYTES, StagedNetworks
from projections.staging.course import COMPLETE, PATIENCE_MS, UNDONE
from projections.staging.decide import PAUSE, RESUME, UNDO
from projections.staging.plan import StagePlan
from schemas.events import InstallsReported, NetworksStaged, StagesRequested
from tests.support.memory_log import Contents, MemoryLog
from tests.support.memory_plane import Plane, plane
from tests.support.pinned.network_stages import NetworkLog, networks
from tests.support.resources import DeliveredResources
from tests.unit.test_handover import SOURCE, Fleet
from tests.unit.test_network_handover import chain, document, fleet_of, network, observed, ports, report

pytestmark = pytest.mark.virtual_clock

HOSTS = tuple(f"h{number}" for number in range(1, 5))
AB, BA = ["dpf/p0", "dpf/p1"], ["dpf/p1", "dpf/p0"]


class Staged:
    """A plane with four DPUs whose networks change in stages: one DPU, half of them, all."""

    def __init__(self, on: Plane, fleet: Fleet) -> None:
        self.on, self.fleet = on, fleet

    @property
    def row(self) -> StagedNetworks:
        return self.fleet.state.staged_networks.rows[SOURCE]

    @property
    def first(self) -> str:
        """The host with the first DPU of the zone, which gets the first stage."""
        return min(HOSTS, key=lambda host: self.on.zone("z1").dpus.rows[f"{host}-d{host}"].ordinal)

    @property
    def first_dpu(self) -> str:
        return f"z1/{self.first}-d{self.first}"

    async def state_stages(self, stages: str = "1,50%", **more: str) -> None:
        annotations = {"dpuplane.io/network-stages": stages, **more}
        await self.fleet.apply(kinds.DPF_OPERATOR_CONFIG, {"config": {}}, annotations={"config": annotations})

    async def swap(self, *names: str) -> None:
        """Change the order of the ports of the chain."""
        await self.fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain(*names)})

    async def relays_report(self, *hosts: str, version: int = 1) -> None:
        """Relays report the tables of these DPUs."""
        on = self.on
        zone, epoch = on.zone("z1"), next(iter(on.replicas.values())).generation
        ordinals = BitMap(zone.dpus.rows[f"{host}-d{host}"].ordinal for host in hosts).serialize()
        now_ms, columns = on.now_ms(), ([version], [1], [ordinals])
        said = InstallsReported(on.command("z1"), "z1", "r", epoch, len(HOSTS), *columns, [now_ms], [now_ms], {}, {})
        replica = next(iter(on.replicas.values()))
        await replica.append_event(replica.partition_for(INSTALLS, "z1"), b"z1", said, timeout_s=5.0)

    async def request(self, verb: str) -> Outcome:
        replica = next(iter(self.on.replicas.values()))
        event = StagesRequested(self.on.command(SOURCE), SOURCE, verb)
        answer = await replica.submit(replica.partition_for(RESOURCES, SOURCE), SOURCE.encode(), event, timeout_s=5.0)
        return answer.outcome

    def with_ports(self, wanted: list[str]) -> set[str]:
        """The hosts whose DPU has a document with these ports of the chain."""
        return {host for host in HOSTS if ports(self.on, host) == wanted}

    async def agents_apply(self, *hosts: str) -> None:
        """The agents of these DPUs apply the documents that they have."""
        for host in hosts:
            await report(self.on, host)


async def staged(on: Plane, *replicas: str, **annotations: str) -> Staged:
    """Four DPUs with their first networks, and stages for the next change."""
    fleet = await fleet_of(on, *HOSTS, replicas=replicas or ("a",))
    found = Staged(on, fleet)
    await on.until(lambda: found.with_ports(AB) == {*HOSTS})
    await found.agents_apply(*HOSTS)
    await found.relays_report(*HOSTS)
    await found.state_stages(**annotations)
    await on.until(lambda: SOURCE in fleet.state.staged_networks.rows)
    assert found.row.result == COMPLETE
    return found


async def test_each_stage_waits_for_the_dpus_of_the_stage_before_it() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        first = found.first
        await on.until(lambda: found.with_ports(BA) == {first})
        await asyncio.sleep(PATIENCE_MS / 2_000)
        assert found.with_ports(BA) == {first} and found.row.stage == 1
        shown = observed(found.fleet)
        assert (shown["selected"], shown["staged"], shown["ready"]) == (4, 3, False)
        assert "waits for its stage of the staged change of the networks (stage 1 of 3 (1))" in shown["message"]
        assert shown["lacking"] == [f"{first}-d{first}"]  # DPUs of later stages lack nothing
        await found.agents_apply(first)
        await on.until(lambda: len(found.with_ports(BA)) == 2)
        await found.agents_apply(*found.with_ports(BA))
        await on.until(lambda: found.with_ports(BA) == {*HOSTS})
        await found.agents_apply(*HOSTS)
        await on.until(lambda: found.row.result == COMPLETE)
        await on.until(lambda: observed(found.fleet)["ready"] is True)


async def test_a_refusal_holds_the_change_and_an_undo_returns_every_dpu() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        await report(on, found.first, applied=[0], refusals=["DEVICE: no bridge"])
        await on.until(lambda: bool(found.row.held))
        assert found.row.held == (
            f"1 DPU has failed, and the failure budget is 0: '{found.first_dpu}' (DEVICE: no bridge)"
        )
        assert (await found.request(UNDO)).reason == "all DPUs return to the networks before the change"
        await on.until(lambda: found.with_ports(AB) == {*HOSTS})
        await found.agents_apply(found.first)
        await on.until(lambda: found.row.result == UNDONE)
        await on.until(lambda: "its change was rolled back by" in observed(found.fleet)["message"])
        count = on.count(_partition(on), NetworksStaged)
        await asyncio.sleep(30.0)
        assert on.count(_partition(on), NetworksStaged) == count  # the same change does not begin again by itself
        await found.swap("p0", "p1")
        await on.until(lambda: found.row.result == COMPLETE)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})


async def test_a_missing_report_counts_as_a_failure_and_a_resume_forgives_it() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        await on.until(lambda: bool(found.row.held), timeout_s=3 * PATIENCE_MS / 1_000)
        assert found.row.failed == {found.first_dpu: "no relay reported its network document within 60 s"}
        assert (await found.request(RESUME)).code == "done"
        await on.until(lambda: len(found.with_ports(BA)) == 2)
        assert found.row.forgiven == (found.first_dpu,)


async def test_a_dpu_that_the_change_cuts_off_holds_it() -> None:
    """Relays do not report the first DPU any more, and all that they reported of it before is forgotten."""
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        for version in range(2, 40):
            await found.relays_report(*({*HOSTS} - {found.first}), version=version)
        await on.until(lambda: bool(found.row.held), timeout_s=3 * PATIENCE_MS / 1_000)
        assert found.with_ports(BA) == {found.first} and [*found.row.failed] == [found.first_dpu]


async def test_a_new_dpu_cluster_has_the_networks_before_the_change() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        version = found.row.version
        await found.fleet.apply(kinds.DPU_CLUSTER, {"c": {"type": "static", "maxNodes": len(HOSTS)}})
        await found.fleet.apply(kinds.DPU_CLUSTER, {"d": {"type": "static", "maxNodes": 100}})
        await found.fleet.observe(kinds.DPU_CLUSTER, "d", '{"ready":true,"phase":"Ready"}')
        await found.fleet.hosts(["h9"])
        await on.until(lambda: ports(on, "h9") == AB)
        assert found.row.version == version


async def test_changes_during_a_change_wait_for_its_end() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        await found.swap("p0")
        await on.until(lambda: "waits for the end of the staged change" in observed(found.fleet)["message"])
        assert found.with_ports(["dpf/p0"]) == set()
        for count in (1, 2, 4):
            await on.until(partial(_has, found, count))
            await found.agents_apply(*found.with_ports(BA))
        await on.until(lambda: found.with_ports(["dpf/p0"]) == {found.first})
        assert found.with_ports(BA) == {*HOSTS} - {found.first}


async def test_a_pause_lasts_until_the_resume() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        assert (await found.request(PAUSE)).code == "done"
        await found.agents_apply(found.first)
        await asyncio.sleep(60.0)
        assert found.with_ports(BA) == {found.first}
        assert (await found.request(RESUME)).code == "done"
        await on.until(lambda: len(found.with_ports(BA)) == 2)


async def test_without_the_annotation_networks_change_at_once_again() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.fleet.apply(kinds.DPF_OPERATOR_CONFIG, {"config": {}})
        await on.until(lambda: not found.fleet.state.staged_networks.rows)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {*HOSTS})


async def test_a_mistyped_annotation_begins_no_change() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.state_stages("1,lots")
        await found.swap("p1", "p0")
        await on.until(lambda: "its change cannot begin: annotation" in observed(found.fleet)["message"])
        assert found.with_ports(AB) == {*HOSTS}
        await found.state_stages("1")
        await on.until(lambda: found.with_ports(BA) == {found.first})


async def test_a_mistyped_first_annotation_holds_changes_back() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, *HOSTS)
        found = Staged(on, fleet)
        await on.until(lambda: found.with_ports(AB) == {*HOSTS})
        await found.state_stages("1,lots")
        await on.until(lambda: SOURCE in fleet.state.staged_networks.rows)
        await found.swap("p1", "p0")
        await on.until(lambda: "its change cannot begin: annotation" in observed(fleet)["message"])
        assert found.with_ports(AB) == {*HOSTS}


async def test_a_replica_takes_over_and_the_change_is_stated_once() -> None:
    async with plane() as on:
        found = await staged(on, "a", "b")
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        on.kill("a")
        found.fleet = Fleet(on)
        await found.agents_apply(found.first)
        await on.until(lambda: len(found.with_ports(BA)) == 2)
        assert on.count(_partition(on), NetworksStaged) == 2
        await on.start("a", "api")
        await found.agents_apply(*found.with_ports(BA))
        await on.until(lambda: found.with_ports(BA) == {*HOSTS})
        assert on.count(_partition(on), NetworksStaged) == 2


class Lagging:
    """The content of a log, of which a reader gets no further records of zones while it is stalled."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self.is_stalled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._contents, name)

    def since(self, partition: Partition, position: int) -> Any:
        is_hidden = self.is_stalled and partition.topic == ZONES
        return [] if is_hidden else self._contents.since(partition, position)


async def test_a_replica_that_lags_releases_nothing_by_what_dpus_had_before_an_undo() -> None:
    async with plane() as on:
        found = await staged(on)
        lagging: Any = Lagging(on.contents)
        on.first.insert(0, "b")
        await on.start("b", "api", log=MemoryLog(lagging, on.now_ms))
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        await found.request(PAUSE)
        await found.agents_apply(found.first)
        await asyncio.sleep(5)
        lagging.is_stalled = True
        await found.request(UNDO)
        await on.until(lambda: found.with_ports(AB) == {*HOSTS})
        await found.agents_apply(found.first)
        await on.until(lambda: found.row.result == UNDONE, timeout_s=120)
        await found.swap("p0", "p1")
        await on.until(lambda: found.row.result == COMPLETE, timeout_s=120)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first}, timeout_s=120)
        await asyncio.sleep(PATIENCE_MS / 2_000)
        assert found.row.stage == 1 and found.with_ports(BA) == {found.first}


async def test_a_new_dpu_has_the_networks_before_the_change_until_the_last_stage() -> None:
    async with plane() as on:
        found = await staged(on)
        await found.swap("p1", "p0")
        await on.until(lambda: found.with_ports(BA) == {found.first})
        await found.fleet.hosts(["h9"])
        await on.until(lambda: ports(on, "h9") == AB)
        assert network(on, "h9") is not None and document(on, "h9")


def test_networks_of_any_size_leave_their_stages() -> None:
    pools = tuple(
        StatedPool(f"pool-{number}", Where((), frozenset()), {}) for number in range(MAX_NETWORKS_BYTES // 10)
    )
    plan = StagePlan(("1", "100%"), 0, "0")
    row = StagedNetworks(1, "[]", "[]", plan, 0, 0, 2, result=COMPLETE)
    large = StatedNetworks(pools=pools)
    assert SourceDocuments(large, row, plan).next_change() is None
    left = SourceDocuments(large, row).next_change()
    assert left is not None and left.stages is None
    log = DeliveredResources()
    staged = NetworkLog(log)
    staged.stage(1)
    staged.stage(1, networks=left.text, stages=[])
    assert not log.state.staged_networks.rows


def test_a_late_copy_of_the_first_networks_begins_no_change() -> None:
    log = DeliveredResources()
    staged = NetworkLog(log)
    late = log.delivered.folded.position
    log.apply(kinds.DPU_SERVICE_IPAM, "pool", "{}")
    staged.stage(2)
    staged.stage(1, to_offset=late)
    assert log.state.staged_networks.rows[SOURCE].after == networks(2)


def test_a_build_reads_only_text_that_it_would_write() -> None:
    everywhere = Where((), frozenset())
    pool, interface = StatedPool("pool", everywhere, {}), Interface("dpf/p0", "physical", settings={"mtu": 1})
    known = StatedNetworks((StatedInterface("s/k/n/p0", everywhere, {}, interface),), (), (pool,))
    text = encoded_networks(known)
    assert decoded_networks(text) == known
    assert decoded_networks(text.replace('"mtu":1', '"mtu": 1')) is None
    assert decoded_networks(text.replace("s/k/n/p0", "p0")) is None
    assert decoded_networks(text.replace('"name":"dpf/p0"', '"later":1,"name":"dpf/p0"')) is None
    other = StatedNetworks((StatedInterface("s/k/n/p0", everywhere, {}, replace(interface, settings={"mtu": True})),))
    documents = SourceDocuments(known._replace(pools=()))
    assert not documents.is_same(SourceDocuments(other)) and documents.networks == other


def _has(found: Staged, count: int) -> bool:
    return len(found.with_ports(BA)) == count


def _partition(on: Plane) -> Any:
    return next(iter(on.replicas.values())).partition_for(RESOURCES, SOURCE)

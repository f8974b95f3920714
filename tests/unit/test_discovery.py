"""Searches for BMCs: which addresses, when, by which replica, and what becomes of what is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from drivers.discovery.discoverer import Discoverer
from drivers.discovery.prober import NotUsable, Prober, ignore
from drivers.discovery.scan import IDENTIFY_S, PROBE_S, Scan
from drivers.simulators.bmc_network import BmcNetwork, NetworkSizes
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.discovery import (
    ADDRESSES_MAX,
    BMC_ADDRESS,
    DISCOVERED_AT,
    WORKERS_MAX,
    DiscoveredObject,
    Probed,
    Search,
    endpoints_of,
    faults_text,
    objects_of,
    search_of,
)
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_DEVICE, DPU_DISCOVERY, DPU_NODE
from projections.resources.state import ResourcesState
from schemas.events import ResourcesApplied, ResourcesObserved
from schemas.resources.dpf.names import DPU_ENABLED, DPU_NODE_NAME
from tests.support.derivations import row
from tests.support.memory_plane import Plane, plane
from tests.support.resource_planes import ResourcePlane, key

KEY = key(DPU_DISCOVERY, "row-1")


def spec(first: str = "198.18.1.0", last: str = "198.18.1.255", **fields: Any) -> dict[str, Any]:
    port = {"port": fields.pop("port")} if "port" in fields else {}
    return {"ipRangeSpec": {"ipRange": {"startIP": first, "endIP": last} | port}} | fields


def search(first: str, last: str, **fields: Any) -> Search:
    found = search_of(row(spec(first, last, **fields)))
    assert isinstance(found, Search)
    return found


def objects(probed: Probed, address: str, port: int, *, with_node: bool) -> list[DiscoveredObject]:
    found = objects_of(probed, address, port, with_node=with_node)
    assert not isinstance(found, str)
    return found


class Listed:
    """Answers for some addresses; one hangs, and one has a BMC that cannot be used."""

    def __init__(self, **serials: str) -> None:
        self.serials = {name.removeprefix("a").replace("_", "."): serial for name, serial in serials.items()}
        self.now = 0
        self.most = 0

    async def probe(self, address: str, port: int, answers: Callable[[], None] = ignore) -> Probed | None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.1)
        self.now -= 1
        serial = self.serials.get(address, "")
        if serial == "slow":
            answers()
            await asyncio.sleep(PROBE_S + 1.0)
        if serial == "stuck":
            answers()
        if serial in ("hangs", "stuck"):
            await asyncio.Event().wait()
        if serial == "refuses":
            raise NotUsable("the password is wrong")
        return Probed(serial) if serial else None


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("10.0.0.254", "10.0.1.1", ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]),
        ("10.0.0.1", "10.0.0.1", ["10.0.0.1"]),
        ("2001:db8::fffe", "2001:db8::1:0", ["2001:db8::fffe", "2001:db8::ffff", "2001:db8::1:0"]),
    ],
)
def test_a_range_has_both_ends_in_either_family(first: str, last: str, expected: list[str]) -> None:
    found = search(first, last)
    assert [*found.addresses()] == expected and found.address_count == len(expected)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (spec("10.0.0.2", "10.0.0.1"), "endIP: 10.0.0.1 does not come after 10.0.0.2"),
        (spec("10.0.0.2", "::1"), "does not come after"),
        (spec("ten", "10.0.0.1"), "'ten' does not appear to be"),
        (spec("10.0.0.0", "10.1.0.0"), f"it has {ADDRESSES_MAX + 1} addresses, more than the {ADDRESSES_MAX} allowed"),
        (spec(scanInterval="soon"), "scanInterval: 'soon' is not a duration"),
        (spec(scanInterval=3), "spec: "),
    ],
)
def test_a_range_with_a_fault_says_which(given: dict[str, Any], fault: str) -> None:
    found = search_of(row(given))
    assert isinstance(found, str) and fault in found
    state = ResourcesState()
    state.apply({KEY: row(given)})
    (ready,) = conditions_of(KEY, World.of(state, Derivation()))
    assert ready.reason == "Error" and fault in ready.message


def test_workers_are_one_for_255_addresses_unless_given_and_bounded() -> None:
    assert search("10.0.0.0", "10.0.0.254").workers == 1
    assert search("10.0.0.0", "10.0.0.255").workers == 2
    assert search("10.0.0.0", "10.0.0.255", workers=7).workers == 7
    assert search("10.0.0.0", "10.0.0.255", workers=100_000).workers == WORKERS_MAX
    assert search("10.0.0.0", "10.0.0.255", workers=-1).workers == 1


def test_a_found_dpu_becomes_a_device_and_a_node_if_wanted() -> None:
    (found,) = objects(Probed("MT1", "simulated:mt1"), "10.0.0.7", 8443, with_node=False)
    assert (found.kind, found.name, found.labels) == (DPU_DEVICE, "mt1", {})
    assert found.spec == {"serialNumber": "MT1", "bmcIp": "10.0.0.7", "bmcPort": 8443}
    assert found.annotations == {DISCOVERED_AT: "10.0.0.7:8443", BMC_ADDRESS: "simulated:mt1"}
    device, node = objects(Probed("MT1"), "2001:db8::7", 443, with_node=True)
    assert device.labels == {DPU_NODE_NAME: node.name} and "bmcIp" not in device.spec
    assert (node.kind, node.name, node.spec["dpus"]) == (DPU_NODE, "dpu-node-mt1", [{"name": "mt1"}])
    assert node.labels == {DPU_ENABLED: "true"}, "DPUSets of DPF's guides select DPUNodes by it"
    assert [*endpoints_of(row(device.spec, annotations=device.annotations))] == ["[2001:db8::7]:443"]
    assert isinstance(objects_of(Probed("MT 1"), "10.0.0.7", 443, with_node=False), str)


@pytest.mark.virtual_clock
async def test_a_scan_keeps_to_its_workers_and_ends_each_probe_in_time() -> None:
    prober = Listed(a10_0_0_1="MT1", a10_0_0_2="hangs", a10_0_0_3="refuses", a10_0_0_9="MT9")
    scan = Scan(search("10.0.0.1", "10.0.0.20", workers=3), {"10.0.0.9:443"})
    began_s = asyncio.get_running_loop().time()
    await scan.run(prober)
    assert prober.most == 3
    assert [each.address for each in scan.found] == ["10.0.0.1"]
    assert (scan.tried, scan.skipped) == (19, 1)
    assert scan.faults == ["10.0.0.3:443: the password is wrong"]
    assert asyncio.get_running_loop().time() - began_s < PROBE_S + 1.0


@pytest.mark.virtual_clock
async def test_a_bmc_that_has_answered_gets_time_to_identify_its_dpu() -> None:
    prober = Listed(a10_0_0_1="slow", a10_0_0_2="stuck", a10_0_0_3="hangs")
    scan = Scan(search("10.0.0.1", "10.0.0.9", workers=3), ())
    began_s = asyncio.get_running_loop().time()
    await scan.run(prober)
    assert [each.probed.serial for each in scan.found] == ["slow"]
    assert scan.faults == ["10.0.0.2:443: it did not identify itself in 30 s"]
    assert asyncio.get_running_loop().time() - began_s < IDENTIFY_S + PROBE_S


def test_the_simulated_network_has_racks_with_and_without_dpus() -> None:
    network = BmcNetwork(Random(1), NetworkSizes(racks=3, hosts_per_rack=10, racks_without=1, second_every=5))
    dpus = network.dpus()
    assert len(dpus) == len({dpu.serial for dpu in dpus}) == 2 * (10 + 2)
    assert [network.at(dpu.address) for dpu in dpus] == dpus
    assert network.at("198.18.3.1") is None and network.at("10.0.0.1") is None and network.at("198.18.1.104") is None
    assert network.at("2001:db8::101") == network.at("198.18.1.1") is not None


class Searched(ResourcePlane):
    """A plane whose processes search."""

    def __init__(self, made: Plane) -> None:
        super().__init__(made)
        self.discoverers: list[Discoverer] = []

    async def begin(self, prober: Prober | None, *names: str) -> None:
        for name in names:
            replica, ranks = await self.start(name), self.made.ranks(name)
            found = Discoverer(replica, ranks, prober, now_ms=self.made.now_ms, rng=self.made.rng())
            self.made.spawn(name, found.run())
            self.discoverers.append(found)

    def result(self) -> dict[str, Any]:
        return self.seen(DPU_DISCOVERY, "row-1")

    async def scanned(self, times: int) -> None:
        await self.made.until(lambda: sum(each.searches for each in self.discoverers) >= times, timeout_s=7_200)
        await self.made.until(lambda: self.result().get("phase") == "Scanned")


@pytest.mark.virtual_clock
async def test_new_dpus_are_stated_once_and_by_one_replica() -> None:
    async with plane() as made:
        searched, network = Searched(made), BmcNetwork(Random(1), NetworkSizes())
        await searched.begin(network, "r1", "r2")
        await searched.apply(DPU_DISCOVERY, "row-1", spec(workers=10, scanInterval="10m"))
        await searched.scanned(1)
        assert searched.result()["foundDPUs"] == 30 and searched.is_ready(DPU_DISCOVERY, "row-1")
        assert len(searched.names(DPU_DEVICE)) == 30 and not searched.names(DPU_NODE)
        assert network.probes == 256 and searched.discoverers[1].searches == 0
        records = made.count(searched.partition, ResourcesApplied)
        await searched.scanned(2)
        assert searched.result()["foundDPUs"] == 30 and network.probes == 2 * 256 - 30
        assert made.count(searched.partition, ResourcesApplied) == records, "known devices are not stated again"
        assert made.count(searched.partition, ResourcesObserved) == 4
        await searched.apply(DPU_DISCOVERY, "row-1", spec("198.18.2.0", "198.18.2.255", workers=10))
        await searched.scanned(3)
        assert len(searched.names(DPU_DEVICE)) == 60


@pytest.mark.virtual_clock
async def test_a_search_goes_on_when_the_replica_that_searches_ends() -> None:
    async with plane() as made:
        searched, network = Searched(made), BmcNetwork(Random(1), NetworkSizes())
        await searched.begin(network, "r1", "r2")
        await searched.apply(DPU_DISCOVERY, "row-1", spec(workers=1))
        await made.until(lambda: network.probes > 20)
        made.kill("r1")
        await searched.scanned(1)
        assert searched.discoverers[1].searches == 1 and len(searched.names(DPU_DEVICE)) == 30


@pytest.mark.virtual_clock
async def test_a_discovery_that_is_made_anew_is_searched_for_at_once() -> None:
    async with plane() as made:
        searched = Searched(made)
        await searched.begin(BmcNetwork(Random(1), NetworkSizes()), "r1")
        await searched.apply(DPU_DISCOVERY, "row-1", spec(workers=10))
        await searched.scanned(1)
        await searched.delete(DPU_DISCOVERY, "row-1")
        began_ms = made.now_ms()
        await searched.apply(DPU_DISCOVERY, "row-1", spec(workers=10))
        await searched.scanned(2)
        assert made.now_ms() - began_ms < 600_000, "the interval of an hour is that of the earlier object"


@pytest.mark.virtual_clock
async def test_nodes_are_made_if_the_configuration_says_so_and_edited_devices_stay() -> None:
    async with plane() as made:
        searched = Searched(made)
        redfish = {"installInterface": {"installViaRedfish": {"skipDPUNodeDiscovery": False}}}
        await searched.begin(Listed(a10_0_0_1="MT1", a10_0_0_2="refuses"), "r1")
        await searched.apply(DPF_OPERATOR_CONFIG, "config", {"provisioningController": redfish})
        await searched.apply(DPU_DEVICE, "mt1", {"serialNumber": "MT1", "numberOfPFs": 2})
        await searched.apply(DPU_DISCOVERY, "row-1", spec("10.0.0.1", "10.0.0.9"))
        await searched.scanned(1)
        assert searched.names(DPU_NODE) == ["dpu-node-mt1"]
        device = searched.state.objects.rows[key(DPU_DEVICE, "mt1")]
        assert json.loads(device.spec) == {"serialNumber": "MT1", "numberOfPFs": 2}
        assert not searched.is_ready(DPU_DISCOVERY, "row-1")
        assert "10.0.0.2:443: the password is wrong" in searched.result()["message"]


@pytest.mark.virtual_clock
async def test_without_a_prober_a_condition_says_which_interface_is_missing() -> None:
    async with plane() as made:
        searched = Searched(made)
        await searched.begin(None, "r1")
        await searched.apply(DPU_DISCOVERY, "row-1", spec())
        await made.until(lambda: searched.result().get("phase") == "Scanned")
        (ready,) = searched.conditions(DPU_DISCOVERY, "row-1")
        assert "needs simulated BMCs" in ready.message and ready.status == "False"
        await asyncio.sleep(600)
        assert made.count(searched.partition, ResourcesObserved) == 1


def test_many_faults_are_counted_and_few_named() -> None:
    text = faults_text([f"10.0.0.{number}: no" for number in range(5)])
    assert text.startswith("5 addresses answered") and text.endswith("10.0.0.2: no; and 2 more")
    assert faults_text([]) == ""

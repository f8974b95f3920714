"""Network documents are handed to zones, and come back as observations of chains, with several replicas and losses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.network_documents.document import Document, Interface, NetworkDocument, encoded
from projections.resources.network_documents.needs import Standing
from projections.resources.network_documents.progress import Lack, lacks_by_part
from projections.zones.rows import DpuNetwork
from schemas.events import NetworksReported, NetworksWanted, ResourcesObserved
from schemas.resources.dpf.names import CUSTOM_FLOWS, FIREFLY
from tests.support.memory_plane import Plane, plane
from tests.unit.test_handover import Fleet, key, started

pytestmark = pytest.mark.virtual_clock


def physical(port: str) -> dict[str, Any]:
    spec = {"interfaceType": "physical", "physical": {"interfaceName": port}}
    return {"template": {"spec": {"template": {"metadata": {"labels": {"uplink": port}}, "spec": spec}}}}


def chain(*ports: str, **selector: Any) -> dict[str, Any]:
    switch = {"ports": [{"serviceInterface": {"matchLabels": {"uplink": port}}} for port in ports]}
    return {"template": {"spec": selector | {"template": {"spec": {"switches": [switch]}}}}}


async def fleet_of(on: Plane, *hosts: str, replicas: tuple[str, ...] = ("a",)) -> Fleet:
    """Hosts with DPUs in a DPU cluster, two uplinks and a chain between them."""
    fleet = await started(on, *replicas)
    await fleet.apply(kinds.DPU_CLUSTER, {"c": {"type": "static", "maxNodes": 100}})
    await fleet.observe(kinds.DPU_CLUSTER, "c", '{"ready":true,"phase":"Ready"}')
    await fleet.hosts(hosts)
    await fleet.want()
    await fleet.apply(kinds.DPU_SERVICE_INTERFACE, {"p0": physical("p0"), "p1": physical("p1")})
    await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p0", "p1")})
    return fleet


def network(on: Plane, host: str) -> DpuNetwork | None:
    return on.zone("z1").networks.rows.get(f"{host}-d{host}")


def document(on: Plane, host: str) -> dict[str, Any]:
    row = network(on, host)
    return json.loads(on.zone("z1").network_texts.rows[row.digest].text) if row is not None else {}


def observed(fleet: Fleet, name: str = "web", kind: str = kinds.DPU_SERVICE_CHAIN) -> dict[str, Any]:
    seen = fleet.state.seen.get(key(kind, name))
    return seen.fields if seen is not None else {}


async def report(on: Plane, *hosts: str, **fields: Any) -> None:
    """Report that DPUs with the same document have applied it."""
    zone = on.zone("z1")
    ordinals = sum(1 << zone.dpus.rows[f"{host}-d{host}"].ordinal for host in hosts)
    row = network(on, hosts[0])
    assert row is not None
    columns: dict[str, Any] = {"versions": [row.version], "applied": [row.version], "ordinals": [bytes([ordinals])]}
    columns |= {"unresolved": [""], "refusals": [""]}
    await on.submit("z1", NetworksReported(on.command("z1"), "z1", "relay", **(columns | fields)))


def interfaces(on: Plane, host: str) -> list[str]:
    return [each["name"] for each in document(on, host).get("interfaces", ())]


def ports(on: Plane, host: str) -> list[str]:
    return [port["interface"] for each in document(on, host).get("switches", ()) for port in each["ports"]]


async def test_dpus_of_a_zone_share_one_document_in_one_record() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1", "h2")
        await on.until(lambda: interfaces(on, "h1") == interfaces(on, "h2") == ["dpf/p0", "dpf/p1"])
        (switch,) = document(on, "h1")["switches"]
        assert switch["ports"] == [{"interface": "dpf/p0"}, {"interface": "dpf/p1"}]
        assert len(on.zone("z1").network_texts.rows) == 1
        await on.until(lambda: observed(fleet).get("selected") == 2)
        assert observed(fleet)["applied"] == 0 and not observed(fleet)["ready"]
        assert "h1-dh1: its agent has not applied the network document yet" in observed(fleet)["message"]


async def test_a_chain_is_ready_once_every_dpu_has_applied_its_document() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1", "h2")
        await on.until(lambda: observed(fleet).get("selected") == 2)
        await on.until(lambda: None not in (network(on, "h1"), network(on, "h2")))
        await report(on, "h1")
        await on.until(lambda: observed(fleet).get("applied") == 1)
        await report(on, "h2", unresolved=["dpf/p1"])
        await on.until(
            lambda: observed(fleet)["message"].endswith("(h2-dh2: dpf/p1 has no port yet, waits for the device p1)")
        )
        await on.until(lambda: bool(observed(fleet, "p0", kinds.DPU_SERVICE_INTERFACE)["ready"]))
        assert not observed(fleet, "p1", kinds.DPU_SERVICE_INTERFACE)["ready"]
        await report(on, "h2", refusals=["the device failed"], applied=[0])
        await on.until(lambda: "refused the network document: the device failed" in observed(fleet)["message"])
        await report(on, "h2")
        await on.until(lambda: observed(fleet)["ready"] is True)


async def test_a_change_of_a_service_alone_changes_the_documents_of_its_interfaces() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1")
        end = {"serviceID": "clock", "network": "mybrsfc", "interfaceName": "eth1"}
        template = {"spec": {"template": {"spec": {"interfaceType": "service", "service": end}}}}
        await fleet.apply(kinds.DPU_SERVICE_INTERFACE, {"eth1": {"template": template}})
        await on.until(lambda: interfaces(on, "h1") == ["dpf/eth1", "dpf/p0", "dpf/p1"])
        assert not any(each.get("ptp") for each in document(on, "h1")["interfaces"])
        await asyncio.sleep(30.0)  # until nothing else about the interfaces changes
        spec = {"serviceID": "clock", "helmChart": {}, "serviceDaemonSet": {"labels": {CUSTOM_FLOWS: FIREFLY}}}
        await fleet.apply(kinds.DPU_SERVICE, {"clock": spec})
        await on.until(lambda: [each.get("ptp") for each in document(on, "h1")["interfaces"]] == [True, None, None])


async def test_a_chain_that_cannot_be_read_says_so_until_it_is_mended() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1")
        await on.until(lambda: observed(fleet).get("selected") == 1)
        bad = chain("p0", "p1")
        bad["template"]["spec"]["nodeSelector"] = {"matchLabels": {"rack": 1}}
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": bad})
        await on.until(lambda: "its spec has a fault: " in observed(fleet).get("message", ""))
        assert not observed(fleet)["ready"]
        assert document(on, "h1")["switches"] == []
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p0", "p1")})
        await on.until(lambda: observed(fleet).get("selected") == 1)


async def test_a_change_is_a_new_version_and_a_deleted_chain_leaves_nothing() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1")
        await on.until(lambda: observed(fleet).get("selected") == 1)
        await on.until(lambda: network(on, "h1") is not None)
        before = network(on, "h1")
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p0", "p0")})
        await on.until(lambda: network(on, "h1") != before)
        await fleet.delete(kinds.DPU_SERVICE_CHAIN, "web")
        await on.until(lambda: document(on, "h1").get("switches") == [])
        await on.until(lambda: not observed(fleet))
        await fleet.delete(kinds.DPU_SET, "set")
        await on.until(lambda: not on.zone("z1").networks.rows)
        assert not on.zone("z1").network_texts.rows
        await on.until(lambda: not observed(fleet, "p0", kinds.DPU_SERVICE_INTERFACE))


async def test_replicas_state_each_document_once_and_an_idle_plane_states_nothing() -> None:
    async with plane() as on:
        fleet = await fleet_of(on, "h1", replicas=("a", "b"))
        await on.until(lambda: observed(fleet).get("selected") == 1)
        on.kill("a")
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain("p1", "p0")})
        fleet = Fleet(on)
        await on.until(lambda: ports(on, "h1") == ["dpf/p1", "dpf/p0"])
        await on.start("a", "api")
        await on.until(lambda: observed(fleet).get("selected") == 1)
        told = on.count(on.partition("z1"), NetworksWanted)
        seen = _observations(on)
        await _idle(on)
        assert (on.count(on.partition("z1"), NetworksWanted), _observations(on)) == (told, seen)


def _observations(on: Plane) -> int:
    return sum(on.count(Partition(RESOURCES, number), ResourcesObserved) for number in range(2))


async def _idle(on: Plane) -> None:
    with pytest.raises(TimeoutError):
        await on.until(lambda: False, timeout_s=30)


def test_an_object_names_what_its_first_interface_without_a_port_waits_for() -> None:
    pods = Interface("dpf/app", "service", settings={"serviceID": "web", "interfaceName": "eth1"})
    made = encoded(
        Document(interfaces=(Interface("dpf/p0", "physical", "p0"), pods)), {"chain": frozenset({"dpf/app"})}
    )
    known = DpuNetwork(made.digest, 1, 1, ("dpf/app",))
    waits = "a pod of service web with the interface eth1"
    assert lacks_by_part(Standing(made, "z1", known)) == {"chain": Lack(f"dpf/app has no port yet, waits for {waits}")}
    too_large = NetworkDocument("", made.digest, {"chain": frozenset({"dpf/app", "dpf/p0"})})
    known = DpuNetwork(made.digest, 1, 1, ("dpf/p0", "dpf/app"))
    assert lacks_by_part(Standing(too_large, "z1", known)) == {
        "chain": Lack("dpf/p0 has no port yet, and 1 more have none")
    }

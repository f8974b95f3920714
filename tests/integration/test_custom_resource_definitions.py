"""The custom resources at a real API server: what it accepts, what it refuses, and what kubectl shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from schemas.kubernetes.api import ApiError
from schemas.resources import KINDS
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.api_server import CommandFailed
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.people import PATIENCE_S
from tests.support.kubernetes.requests import create, get, install

SPECS: Mapping[str, dict[str, Any]] = {"DPURack": {}, "RulePolicy": {"action": "allow"}, "Hold": {}}
BACK = "logPosition must not go back"
KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(autouse=True)
async def _installed(cluster: Cluster) -> None:
    await install(cluster.api, *(definition(kind) for kind in KINDS))


@KIND
async def test_a_status_never_goes_back(cluster: Cluster, kind: Kind) -> None:
    name = await _create(cluster, kind)
    for position in ({"generation": 1, "fleet": 5}, {"generation": 1, "fleet": 5}, {"generation": 2, "fleet": 1}):
        await _put_status(cluster, kind, name, {"logPosition": position})
    for earlier in ({"logPosition": {"generation": 2}}, {"logPosition": {"generation": 1, "fleet": 9}}, {}, None):
        with pytest.raises(ApiError, match=BACK):
            await _put_status(cluster, kind, name, earlier)
    with pytest.raises(ApiError, match=BACK):
        await cluster.api.patch(kind.path(name=name, subresource="status"), {"status": None}, "merge")
    found = await get(cluster.api, kind.path(name=name))
    assert found["status"] == {"logPosition": {"generation": 2, "fleet": 1}}


@pytest.mark.parametrize("part", ["fleet", "zones", "installs"])
async def test_no_part_of_the_position_of_a_rack_goes_back(cluster: Cluster, part: str) -> None:
    name = await _create(cluster, DPU_RACK)
    position = {"generation": 1, "fleet": 5, "zones": 5, "installs": 5}
    await _put_status(cluster, DPU_RACK, name, {"logPosition": position})
    with pytest.raises(ApiError, match=BACK):
        await _put_status(cluster, DPU_RACK, name, {"logPosition": {**position, "fleet": 9, part: 4}})


@pytest.mark.parametrize("changed", [{"zone": "rack8"}, {}, None])
async def test_the_zone_of_a_rack_is_immutable(cluster: Cluster, changed: dict[str, Any] | None) -> None:
    name = await _create(cluster, DPU_RACK, {"zone": "Rack_7"})
    found = await get(cluster.api, DPU_RACK.path(name=name))
    with pytest.raises(ApiError, match="zone is immutable"):
        await cluster.api.replace(DPU_RACK.path(name=name), {**found, "spec": changed})


async def test_a_rack_without_a_zone_gets_none_later(cluster: Cluster) -> None:
    name = await _create(cluster, DPU_RACK)
    with pytest.raises(ApiError, match="zone is immutable"):
        await cluster.api.patch(DPU_RACK.path(name=name), {"spec": {"zone": "rack8"}}, "merge")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (DPU_RACK, {"zone": "rack 7"}),
        (DPU_RACK, {"parallelInstalls": -1}),
        (DPU_RACK, {"labels": {"a b": "c"}}),
        (DPU_RACK, {"labels": {"tier": "a\nb"}}),
        (DPU_RACK, {"agentNetworks": ["10.0.0.0"]}),
        (RULE_POLICY, {}),
        (RULE_POLICY, {"action": "deny"}),
        (RULE_POLICY, {"action": "allow", "ports": [{"first": 80, "last": 80}]}),
        (RULE_POLICY, {"action": "allow", "protocol": "tcp", "ports": [{"first": 81, "last": 80}]}),
        (RULE_POLICY, {"action": "allow", "protocol": "tcp", "ports": [{"first": 1, "last": 65_536}]}),
        (RULE_POLICY, {"action": "allow", "priority": 1_000_001}),
        (RULE_POLICY, {"action": "allow", "staging": {"stages": ["100%"]}}),
        (RULE_POLICY, {"action": "allow", "staging": {"stages": ["1", "10%"]}}),
        (RULE_POLICY, {"action": "allow", "staging": {"stages": ["100%", "100%"]}}),
        (RULE_POLICY, {"action": "allow", "staging": {"stages": ["x", "100%"]}}),
        (RULE_POLICY, {"action": "allow", "staging": {"stages": ["1", "100%"], "failureBudget": "some"}}),
        (RULE_POLICY, {"action": "allow", "sources": {str(number): "x" for number in range(129)}}),
    ],
)
async def test_a_wrong_spec_is_refused(cluster: Cluster, kind: Kind, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        await _create(cluster, kind, spec)
    assert refused.value.status == 422


@KIND
async def test_what_the_server_stores_is_what_was_sent(cluster: Cluster, kind: Kind) -> None:
    name = await _create(cluster, kind)
    status = {"observedGeneration": 1, "conditions": [_condition("True")]}
    await _put_status(cluster, kind, name, status)
    assert (await get(cluster.api, kind.path(name=name)))["status"] == status


async def _explained(cluster: Cluster, kind: Kind) -> str:
    """The explanation of a kind's status. The API server publishes the schemas of new definitions after it serves their
    objects."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await cluster.plane.kubectl(
                    "explain", f"{kind.plural}.status", f"--api-version={kind.api_version}"
                )
            except CommandFailed as error:
                assert "couldn't find resource" in str(error), error
            await asyncio.sleep(0.5)


@KIND
async def test_kubectl_explains_every_kind(cluster: Cluster, kind: Kind) -> None:
    explained = await _explained(cluster, kind)
    assert "logPosition" in explained
    assert "next offset of each partition" in explained


async def test_kubectl_shows_racks_and_waits_for_them(cluster: Cluster) -> None:
    name = await _create(cluster, DPU_RACK)
    status = {"nodes": 18, "dpus": 36, "readyDpus": 35, "conditions": [_condition("True")]}
    await _put_status(cluster, DPU_RACK, name, status)
    kubectl = cluster.plane.kubectl
    heading, row = (await kubectl("get", "rack", name)).splitlines()
    assert heading.split()[:4] == ["NAME", "READY", "NODES", "DPUS"]
    assert row.split()[:5] == [name, "True", "18", "36", "35"]
    assert "condition met" in await kubectl("wait", "--for=condition=Ready", f"rack/{name}", "--timeout=90s")
    assert name in await kubectl("get", "dpuplane", "--output=name")
    assert "All DPUs are ready." in await kubectl("describe", "rack", name)


async def test_kubectl_shows_holds(cluster: Cluster) -> None:
    name = await _create(cluster, HOLD)
    await _put_status(cluster, HOLD, name, {"state": "Open", "subject": "members", "addresses": 700, "hash": "ab"})
    _, row = (await cluster.plane.kubectl("get", "hold", name)).splitlines()
    assert row.split()[:4] == [name, "Open", "members", "700"]


def _condition(status: str) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        "reason": "AllReady",
        "message": "All DPUs are ready.",
        "lastTransitionTime": "2026-11-25T08:00:00Z",
        "observedGeneration": 1,
    }


async def _create(cluster: Cluster, kind: Kind, spec: dict[str, Any] | None = None) -> str:
    """The name of a new object."""
    head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"generateName": f"{cluster.prefix}-"}}
    found = await create(cluster.api, kind.path(), {**head, "spec": SPECS[kind.name] if spec is None else spec})
    return str(found["metadata"]["name"])


async def _put_status(cluster: Cluster, kind: Kind, name: str, status: dict[str, Any] | None) -> None:
    found = await get(cluster.api, kind.path(name=name))
    body = {key: value for key, value in found.items() if key != "status"}
    if status is not None:
        body["status"] = status
    await cluster.api.replace(kind.path(name=name, subresource="status"), body)

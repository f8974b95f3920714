"""Statuses in a real API server: what kubectl shows and waits for, and what the server's own rules refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from drivers.kubernetes.client import connect
from projections.kubernetes.status_body import size_of, without_stamps
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create
from tests.support.kubernetes.statuses import Statuses
from tests.support.memory_plane import plane

PATIENCE_S = 60.0


@pytest.fixture
async def statuses(own_control_plane: ControlPlane) -> AsyncIterator[Statuses]:
    """A server of its own: statuses are written to every object of the plane's kinds."""
    async with connect(str(own_control_plane.kubeconfig())) as api, plane() as made:
        found = Statuses(made, api)
        await found.install()
        await found.start("r1")
        yield found


async def eventually(made: Statuses, kind: Any, name: str, **wanted: Any) -> dict[str, Any]:
    """The status of an object once it has these fields."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await made.status(kind, name)
            if wanted.items() <= status.items():
                return status
            await asyncio.sleep(0.1)


async def test_kubectl_shows_statuses_and_waits_for_conditions(
    statuses: Statuses, own_control_plane: ControlPlane
) -> None:
    kubectl, made = own_control_plane.kubectl, statuses.plane
    await made.join("z1", *(f"n-{number:03}" for number in range(100)))
    status = await eventually(statuses, DPU_RACK, "z1", nodes=100)
    assert status["members"] == ["n-[000-099]"]
    assert "condition met" in await kubectl("wait", "--for=condition=Ready", "rack/z1", "--timeout=90s")
    header, row = (await kubectl("get", "rack", "z1")).splitlines()
    assert header.split()[:2] == ["NAME", "READY"] and row.split()[:3] == ["z1", "True", "100"]
    await made.register("d1")
    assert "condition met" in await kubectl("wait", "--for=condition=Ready=false", "rack/z1", "--timeout=90s")
    text = await kubectl("describe", "rack", "z1")
    assert "Installing" in text and "0 of 1 DPUs are known to have version" in text
    await kubectl("delete", "rack", "z1")
    await eventually(statuses, DPU_RACK, "z1", nodes=100, dpus=1)


async def test_a_hold_and_its_policy_are_followed_to_the_approval(
    statuses: Statuses, own_control_plane: ControlPlane
) -> None:
    spec = {"action": "drop", "priority": 1}
    head = {"apiVersion": RULE_POLICY.api_version, "kind": RULE_POLICY.name}
    await create(statuses.api, RULE_POLICY.path(), {**head, "metadata": {"name": "p"}, "spec": spec})
    number = await statuses.hold()
    await eventually(statuses, HOLD, f"hold-{number}", state="Open", subject="policy", requestedBy="ann")
    await eventually(statuses, RULE_POLICY, "p", hold=number)
    await statuses.approve(number)
    waited = await own_control_plane.kubectl("wait", "--for=condition=Finished", f"hold/hold-{number}", "--timeout=90s")
    assert "condition met" in waited
    assert (await statuses.status(HOLD, f"hold-{number}"))["state"] == "Approved"
    assert "condition met" in await own_control_plane.kubectl(
        "wait", "--for=condition=Ready", "rulepolicy/p", "--timeout=90s"
    )
    assert "hold" not in await statuses.status(RULE_POLICY, "p"), "the whole status is replaced"


async def test_the_server_refuses_an_older_position_and_stores_what_was_measured(statuses: Statuses) -> None:
    made, api = statuses.plane, statuses.api
    await made.join("z1", "n1")
    status = await eventually(statuses, DPU_RACK, "z1", nodes=1)
    writes = statuses.writers["r1"].counts
    assert (writes.behind, writes.conflicts, writes.refused, writes.writes) == (0, 0, 0, 2)
    older = {**status, "logPosition": {**status["logPosition"], "zones": 0}}
    for value in (older, {}):
        with pytest.raises(ApiError) as caught:
            await _write(api, value)
        assert caught.value.status == 422 and "logPosition must not go back" in str(caught.value)
    odd = [{"dpu": f"d{place}", "reason": "<&>ü\u2028" * 20} for place in range(5)]
    answer = await _write(api, {**status, "offenders": odd})
    _, _, stored = answer.partition(b'"status":')
    assert len(stored) - 2 <= size_of(without_stamps({**status, "offenders": odd}))
    assert b"\\u003c" in stored, "the server escapes what HTML escapes"


async def _write(api: KubernetesApi, value: dict[str, Any]) -> bytes:
    operations = [{"op": "add", "path": "/status", "value": value}]
    answer = await api.patch(DPU_RACK.path(name="z1", subresource="status"), operations, "json")
    assert json.loads(answer)["status"] == value
    return answer


async def test_objects_of_an_earlier_log_are_made_again_as_the_runbook_says(
    statuses: Statuses, own_control_plane: ControlPlane
) -> None:
    kubectl, spec = own_control_plane.kubectl, {"action": "drop", "priority": 1}
    policy = {"apiVersion": RULE_POLICY.api_version, "kind": RULE_POLICY.name, "metadata": {"name": "p"}, "spec": spec}
    await statuses.plane.join("z1", "n1")
    await create(statuses.api, RULE_POLICY.path(), policy)
    for kind, name in ((DPU_RACK, "z1"), (RULE_POLICY, "p")):
        found = await eventually(statuses, kind, name, observedGeneration=1)
        later = {"logPosition": dict.fromkeys(("generation", "fleet", "zones", "installs"), 10**6)}
        operations = [{"op": "add", "path": "/status", "value": {**found, **later, "observedGeneration": 9}}]
        await statuses.api.patch(kind.path(name=name, subresource="status"), operations, "json")
        await eventually(statuses, kind, name, observedGeneration=9)
    await statuses.plane.join("z1", "n2")
    await asyncio.sleep(3.0)
    assert (await statuses.status(DPU_RACK, "z1"))["nodes"] == 1
    await kubectl("delete", "dpuracks,rulepolicies,holds", "--all")
    await kubectl("apply", "--filename=-", stdin=json.dumps(policy))
    await eventually(statuses, DPU_RACK, "z1", observedGeneration=1, nodes=2)
    await eventually(statuses, RULE_POLICY, "p", observedGeneration=1)

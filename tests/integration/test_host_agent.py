"""`dpuplane host-agent` beside a real plane: what it reports, and what it may report."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from projections.resources.kinds import DPU_DEVICE, DPU_NODE
from schemas.api import dpuplane_pb2 as pb
from tests.support.guarded import Caller, guarded
from tests.support.host_trees import host_tree
from tests.support.planes import DPUPLANE, started
from tests.support.served import Served, served

NAMESPACE = f"dpf-{os.getpid()}"
"""One of its own for each worker: agents of one host and namespace exclude each other on the whole machine."""
PATIENCE_S = 60.0


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.05)


async def resource(plane: Served, kind: str, name: str) -> pb.Resource | None:
    request = pb.GetResourceRequest(kind=kind, namespace=NAMESPACE, name=name)
    try:
        found: pb.Resource = await plane.queries.GetResource(request)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND
        return None
    return found


async def report_of(plane: Served) -> dict[str, Any]:
    node = await resource(plane, DPU_NODE, "host-1")
    return json.loads(node.observation.fields) if node is not None and node.observation.fields else {}


def request(**fields: Any) -> pb.ReportHostRequest:
    given = {"node": "host-1", "namespace": NAMESPACE, "boot_id": "boot-1", "run_id": "run-1"}
    return pb.ReportHostRequest(**(given | fields))


async def test_an_agent_reports_its_host_again_after_a_reboot_and_writes_the_feature_file(tmp_path: Path) -> None:
    tree, features = host_tree(tmp_path / "host"), tmp_path / "features"
    tree.card("0000:03:00", "MT2438XZ025V")
    of = ("--node", "host-1", "--namespace", NAMESPACE, "--interval", "0.1", "--features", str(features))
    async with served(tmp_path / "plane") as plane:
        command = ("host-agent", "--server", plane.address, *of, *tree.options)
        async with started(*command, stderr=tmp_path / "errors") as agent:
            assert agent.ready == f"ready node=host-1 namespace={NAMESPACE}"

            async def boot_is(boot_id: str) -> bool:
                return (await report_of(plane)).get("bootId") == boot_id

            await eventually(lambda: boot_is("boot-1"))
            device = await resource(plane, DPU_DEVICE, "mt2438xz025v")
            assert device is not None
            assert json.loads(device.spec)["serialNumber"] == "MT2438XZ025V"
            assert device.labels["provisioning.dpu.nvidia.com/dpunode-name"] == "host-1"
            assert device.labels["provisioning.dpu.nvidia.com/dpudevice-pciAddress"] == "0000-03-00"
            assert "dpu-0-pci-address=0000-03-00" in features.read_text()
            tree.card("0000:83:00", "MT2438XZ025W")  # before the boot, with which the agent reports it
            tree.boot("boot-2")
            await eventually(lambda: boot_is("boot-2"))
            assert await resource(plane, DPU_DEVICE, "mt2438xz025w") is not None
            assert await agent.stop() == 0


async def test_a_second_agent_of_a_host_ends_with_one_sentence(tmp_path: Path) -> None:
    tree = host_tree(tmp_path / "host")
    of = ("--node", "host-1", "--namespace", NAMESPACE)
    command = ("host-agent", "--server", "127.0.0.1:1", *of, *tree.options)
    async with started(*command):
        second = await asyncio.create_subprocess_exec(DPUPLANE, *command, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await second.communicate()
        assert second.returncode == 3
        assert errors.decode().startswith("dpuplane: node: another agent of host ")


async def test_a_report_that_changes_nothing_is_not_appended(tmp_path: Path) -> None:
    device = pb.HostDevice(pci_address="0000:03:00.0", serial="MT1", pf_count=2)
    async with served(tmp_path / "plane") as plane:
        first = await plane.calls.ReportHost(request(devices=[device]))
        assert first.outcome == pb.OUTCOME_DONE
        before = await report_of(plane)
        again = await plane.calls.ReportHost(request(devices=[device]))
        assert (again.outcome, again.position) == (pb.OUTCOME_UNCHANGED, first.position)
        assert await report_of(plane) == before
        next_run = await plane.calls.ReportHost(request(devices=[device], run_id="run-2"))
        assert next_run.outcome == pb.OUTCOME_DONE
        assert next_run.position != first.position


async def test_objects_of_users_stay_as_they_are(tmp_path: Path) -> None:
    spec = json.dumps({"nodeRebootMethod": {"external": {}}})
    mine = pb.ResourceSpec(kind=DPU_NODE, namespace=NAMESPACE, name="host-1", spec=spec)
    async with served(tmp_path / "plane") as plane:
        applied = await plane.calls.ApplyResources(pb.ApplyResourcesRequest(resources=[mine]))
        assert applied.outcome == pb.OUTCOME_DONE
        assert (await plane.calls.ReportHost(request())).outcome == pb.OUTCOME_DONE
        node = await resource(plane, DPU_NODE, "host-1")
        assert node is not None
        assert "external" in json.loads(node.spec)["nodeRebootMethod"]
        assert not node.labels


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"node": "Host_1"}, "node: 'Host_1' must be 1 to 253 lower-case letters"),
        ({"namespace": ""}, "namespace: '' must be"),
        ({"boot_id": ""}, "boot_id: must be the id of the boot that the host is in"),
        ({"devices": [pb.HostDevice(pci_address="3")]}, "devices[0].pci_address: '3' must be a PCI address"),
        ({"devices": [pb.HostDevice(pci_address="0000:03:00.0")] * 2}, "devices: a PCI address is given twice"),
        ({"tasks": [pb.HostTaskState(id="t", state="lost")]}, "tasks[0].state: 'lost' must be one of running, done"),
        ({"tasks": [pb.HostTaskState(id="t", state="done", percent=101)]}, "tasks[0].percent: 101 must be from 0 to"),
        ({"tasks": [pb.HostTaskState(id="t", state="done")] * 41}, "tasks: 41 are more than the 40 allowed"),
    ],
)
async def test_an_invalid_report_is_refused_with_its_field(tmp_path: Path, fields: dict[str, Any], fault: str) -> None:
    async with served(tmp_path / "plane") as plane:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plane.calls.ReportHost(request(**fields))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (raised.value.details() or "").startswith(fault)


async def test_an_agent_reports_and_reads_its_own_host_only(tmp_path: Path) -> None:
    async with guarded(tmp_path) as plane:
        own = plane.caller("node-agent/host-1")
        assert (await own.calls.ReportHost(request())).outcome == pb.OUTCOME_DONE
        mine = pb.GetHostTasksRequest(node="host-1", namespace=NAMESPACE)
        assert not (await own.queries.GetHostTasks(mine)).tasks
        for call in (
            own.calls.ReportHost(request(node="host-2")),
            own.queries.GetHostTasks(pb.GetHostTasksRequest(node="host-2", namespace=NAMESPACE)),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="must act for its own node only, not for 'host-2'"):
                await call


async def test_hosts_of_one_name_in_two_namespaces_need_certificates_with_their_namespace(tmp_path: Path) -> None:
    async with guarded(tmp_path) as plane:
        old, own, other = (plane.caller(who) for who in ("node-agent/w", "host-agent/a/w", "host-agent/b/w"))

        def reported(by: Caller, namespace: str, run_id: str = "run-1") -> Awaitable[pb.CommandResult]:
            result: Awaitable[pb.CommandResult] = by.calls.ReportHost(
                request(node="w", namespace=namespace, run_id=run_id)
            )
            return result

        assert (await reported(old, "a")).outcome == pb.OUTCOME_DONE
        refused = "certificate: node-agent/w names no namespace, and a has a host w, too; use one of host-agent/b/w"
        with pytest.raises(grpc.aio.AioRpcError, match=refused) as raised:
            await reported(old, "b")
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert (await reported(old, "a", "run-2")).outcome == pb.OUTCOME_DONE, "the name is still unique"
        assert (await reported(own, "a", "run-3")).outcome == pb.OUTCOME_DONE
        with pytest.raises(grpc.aio.AioRpcError, match="must act for its own host only, not for 'b/w'"):
            await reported(own, "b")
        assert (await reported(other, "b")).outcome == pb.OUTCOME_DONE
        for namespace, rest in (("a", "b"), ("b", "a")):
            for call in (
                reported(old, namespace, "run-4"),
                old.queries.GetHostTasks(pb.GetHostTasksRequest(node="w", namespace=namespace)),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=f"and {rest} has a host w, too; use one of host-agent/"):
                    await call
        assert not (await own.queries.GetHostTasks(pb.GetHostTasksRequest(node="w", namespace="a"))).tasks
        gone = pb.DeleteResourcesRequest(resources=[pb.ResourceName(kind=DPU_NODE, namespace="b", name="w")])
        assert (await plane.caller("operator/ann").calls.DeleteResources(gone)).outcome == pb.OUTCOME_DONE
        assert (await reported(old, "a", "run-5")).outcome == pb.OUTCOME_DONE, "the name is unique again"

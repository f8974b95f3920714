"""`dpuplane dpus config` and its query: the configuration of a DPU as it would be rendered now, without secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import cli
from projections.resources import kinds
from projections.resources.configuration.inputs import MASK
from schemas.api import dpuplane_pb2 as pb
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.served import Served, served

PASSWORD = "$1$salt$hash"
FLAVOR = {"bfcfgParameters": ["A=1", f"ubuntu_PASSWORD='{PASSWORD}'"], "sysctl": {"parameters": ["a.b=1"]}}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
        await apply(found, kinds.BFB, "image", {"url": "http://images/a.bfb"})
        await apply(found, kinds.DPU_NODE, "worker", {"nodeRebootMethod": {"external": {}}})
        await apply(found, kinds.DPU_DEVICE, "d1", {"serialNumber": "s"}, labels={DPU_NODE_NAME: "worker"})
        await apply(found, kinds.DPU_SET, "set", {"dpuTemplate": template})
        yield found


async def apply(plane: Served, kind: str, name: str, spec: dict[str, Any], **fields: Any) -> None:
    resource = pb.ResourceSpec(kind=kind, namespace="dpf", name=name, spec=json.dumps(spec), **fields)
    await plane.calls.ApplyResources(pb.ApplyResourcesRequest(resources=[resource]))


async def configuration(plane: Served, dpu: str = "worker-d1") -> pb.DpuConfiguration:
    found: pb.DpuConfiguration = await plane.queries.GetDpuConfiguration(pb.GetDpuConfigurationRequest(dpu=dpu))
    return found


async def fault(plane: Served, dpu: str = "worker-d1") -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await configuration(plane, dpu)
    return raised.value.code(), raised.value.details() or ""


async def test_a_configuration_is_shown_without_secrets(plane: Served) -> None:
    await apply(plane, kinds.DPU_FLAVOR, "flavor", FLAVOR)
    await apply(plane, kinds.DPU_CLUSTER, "cluster", {"type": "static", "kubeconfig": "secret"})
    found = await configuration(plane)
    assert (found.dpu, found.namespace, found.source, found.cluster) == ("worker-d1", "dpf", "local", "dpf/cluster")
    assert found.identity.startswith("image/")
    assert PASSWORD not in str(found)
    data = yaml.safe_load(found.user_data)
    assert data["users"][0]["passwd"] == MASK
    written = {each["path"]: each["content"] for each in data["write_files"]}
    assert f"--token '{MASK}'" in written["/opt/dpf/join_k8s_cluster.sh"]
    assert written["/etc/sysctl.d/99-dpf.conf"] == "a.b=1\n"
    assert found.user_data in found.bf_cfg


async def test_what_cannot_be_rendered_is_said(plane: Served) -> None:
    assert await fault(plane, "other") == (grpc.StatusCode.NOT_FOUND, "dpu: no object wants a DPU 'other'")
    status, reason = await fault(plane)
    assert (status, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "configuration: DPUFlavor dpf/flavor does not exist")


async def test_the_command_prints_bf_cfg_or_its_user_data(plane: Served) -> None:
    await apply(plane, kinds.DPU_FLAVOR, "flavor", FLAVOR)
    found = await configuration(plane)

    async def run(*words: str) -> str:
        arguments = ["dpus", "config", "worker-d1", *words, "--server", plane.address]
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert await run() == found.bf_cfg
    assert await run("--user-data") == found.user_data
    assert json.loads(await run("--output", "json"))["bf_cfg"] == found.bf_cfg

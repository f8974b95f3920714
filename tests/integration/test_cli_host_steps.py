"""Steps on hosts as an operator sees them: DPUs that objects want are installed, while people answer by annotations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from schemas.resources.dpf.names import DPU_NODE_NAME, EXTERNAL_REBOOT_REQUIRED, WAIT_FOR_NODE_EFFECT
from tests.integration.test_cli_resources import Plane
from tests.support.image_planes import CONTENT
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import Ran, serving

PROVISIONING = "provisioning.dpu.nvidia.com"
ARRIVAL_S = 120.0


def manifest(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{PROVISIONING}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "dpf", **metadata},
        "spec": spec,
    }


def objects(url: str) -> list[dict[str, Any]]:
    """A host with two DPUs, which is held, and which an operator reboots."""
    template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"hold": True}}
    found = [
        manifest("BFB", "image", {"url": url}),
        manifest("DPUFlavor", "flavor", {}),
        manifest("DPUCluster", "dc", {"type": "kamaji", "maxNodes": 10}),
        manifest("DPUNode", "h1", {"nodeRebootMethod": {"external": {}}}),
        manifest("DPUSet", "set", {"strategy": {"type": "RollingUpdate"}, "dpuTemplate": {"spec": template}}),
    ]
    for name in ("d1", "d2"):
        metadata = {"labels": {DPU_NODE_NAME: "h1"}, "annotations": {"dpuplane.io/bmc-address": f"simulated:{name}"}}
        found.append(manifest("DPUDevice", name, {"serialNumber": name.upper()}, **metadata))
    return found


@asynccontextmanager
async def plane(folder: Path) -> AsyncIterator[Plane]:
    async with serving("--data", str(folder), "--simulate", "10", "--image-hosts", "127.0.0.1") as process:
        yield Plane(process.address("api"))
        await process.stop()


async def until(dpuplane: Plane, arguments: tuple[str, ...], text: str) -> Ran:
    """Repeat a command until it prints this text."""
    async with asyncio.timeout(ARRIVAL_S):
        while text not in (ran := await dpuplane(*arguments)).stdout:
            await asyncio.sleep(0.3)
    return ran


async def test_people_answer_by_annotations_and_the_dpus_get_ready(tmp_path: Path) -> None:
    describe, nodes = ("describe", "dpu", "h1-d1", "-n", "dpf"), ("get", "dpunode", "h1", "-n", "dpf", "-o", "yaml")
    async with image_server() as images, plane(tmp_path / "plane") as dpuplane:
        images.files["a.bfb"] = ServedFile(CONTENT)
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects(images.url("a.bfb"))))
        assert (await dpuplane("apply", "-f", str(tmp_path / "all.yaml"))).status == 0
        await until(dpuplane, describe, "DPUNodeMaintenance dpf/h1-hold is held until somebody removes its annotation")
        found = await until(dpuplane, ("get", "dpunodemaintenance", "h1-hold", "-n", "dpf", "-o", "yaml"), "h1-d2")
        assert yaml.safe_load(found.stdout)["spec"]["requestor"] == ["h1-d1", "h1-d2"]
        released = ("annotate", "dpunodemaintenance", "h1-hold", f"{WAIT_FOR_NODE_EFFECT}-", "-n", "dpf")
        assert (await dpuplane(*released)).status == 0
        await until(dpuplane, nodes, EXTERNAL_REBOOT_REQUIRED)
        await until(dpuplane, describe, "DPUNode dpf/h1 must be rebooted")
        ran = await dpuplane("diff", "-f", str(tmp_path / "all.yaml"))
        assert (ran.status, ran.stdout) == (0, ""), "the manifests do not know of the request"
        ran = await dpuplane("apply", "-f", str(tmp_path / "all.yaml"))
        assert "dpunode.provisioning.dpu.nvidia.com/h1 unchanged\n" in ran.stdout
        assert EXTERNAL_REBOOT_REQUIRED in (await dpuplane(*nodes)).stdout, "nor do they answer it"
        ran = await dpuplane("annotate", "dpunodes", "--all", f"{EXTERNAL_REBOOT_REQUIRED}-", "-n", "dpf")
        assert (ran.status, ran.stdout) == (0, "dpunode.provisioning.dpu.nvidia.com/h1 annotated\n")
        for name in ("h1-d1", "h1-d2"):
            ran = await dpuplane("wait", f"dpu/{name}", "-n", "dpf", "--for=condition=Ready", "--timeout", "120")
            assert ran.status == 0, ran
        assert EXTERNAL_REBOOT_REQUIRED not in (await dpuplane(*nodes)).stdout
        ran = await dpuplane("get", "dpunodemaintenances", "-n", "dpf")
        assert not ran.stdout, "the maintenance ended with the last DPU"

"""A DPUDeployment from `apply` to Ready, an update to another image, and its deletion, on the command line.

The plane is embedded, with simulated devices, hosts and clusters. Its image store downloads real images over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from drivers.images.bfb import made_bfb
from projections.resources.handover import BMC_ADDRESS, ZONE_LABEL
from schemas.resources.dpf.names import DPU_NODE_NAME, PROVISIONING, SERVICES
from tests.integration.test_cli_derived import applied
from tests.integration.test_cli_resources import Plane
from tests.support.planes import serving

READY_S = "120"
HOSTS = ("h1", "h2")


@asynccontextmanager
async def images(*names: str) -> AsyncIterator[str]:
    """An HTTP server with an image of each name; its address."""
    contents = {name: made_bfb([(1, Random(name).randbytes(20_000))], {"DOCA": "2.9.1001"}) for name in names}

    async def serve(request: web.Request) -> web.Response:
        return web.Response(body=contents[request.match_info["name"]])

    app = web.Application()
    app.router.add_get("/{name}.bfb", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def manifest(kind: str, name: str, spec: dict[str, Any], group: str = PROVISIONING, **metadata: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "dpf"} | metadata
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": about, "spec": spec}


def image(name: str, server: str) -> dict[str, Any]:
    return manifest("BFB", name, {"url": f"{server}/{name}.bfb"})


def deployment(image: str) -> dict[str, Any]:
    dpu_set = {"nameSuffix": "all"}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    dpus = {"bfb": image, "flavor": "flavor", "dpuSets": [dpu_set], "dpuSetStrategy": strategy}
    services = {"agent": {"serviceTemplate": "agent", "serviceConfiguration": "agent"}}
    return manifest("DPUDeployment", "fleet", {"dpus": dpus, "services": services}, SERVICES)


def fleet(server: str) -> list[dict[str, Any]]:
    """Two hosts with a device each in one rack, a DPU cluster, and everything that the deployment needs."""
    chart = {"source": {"repoURL": "https://charts.example", "version": "1.0.0", "chart": "agent"}}
    found = [
        image("v1", server),
        manifest("DPUFlavor", "flavor", {}),
        manifest("DPUCluster", "tenant", {"type": "static", "maxNodes": 100, "kubeconfig": "tenant-admin"}),
        manifest("DPUServiceTemplate", "agent", {"deploymentServiceName": "agent", "helmChart": chart}, SERVICES),
        manifest("DPUServiceConfiguration", "agent", {"deploymentServiceName": "agent"}, SERVICES),
        deployment("v1"),
    ]
    for host in HOSTS:
        found.append(manifest("DPUNode", host, {}, labels={ZONE_LABEL: "rack-1"}))
        labels, annotations = {DPU_NODE_NAME: host}, {BMC_ADDRESS: f"simulated:{host}-d"}
        device = manifest("DPUDevice", f"d{host}", {"serialNumber": f"SN-{host}"}, labels=labels)
        device["metadata"]["annotations"] = annotations
        found.append(device)
    return found


async def dpus(plane: Plane) -> dict[str, dict[str, Any]]:
    """The statuses of all DPUs by name."""
    ran = await plane("get", "dpus", "-n", "dpf", "-o", "json")
    return {each["metadata"]["name"]: each["status"] for each in ran.json()["items"]}


async def until_gone(plane: Plane, *words: str) -> None:
    """Wait until `get` finds nothing."""
    async with asyncio.timeout(60):
        while (await plane("get", *words, "-n", "dpf", "-o", "name")).stdout:
            await asyncio.sleep(0.2)


async def deleted_but_in_use(plane: Plane) -> None:
    """Delete what DPUs that are ready use: it stays and says what uses it, and so does all that follows from it."""
    everything = ("get", "all", "-n", "dpf", "-o", "name")
    before = (await plane(*everything)).stdout
    for named, user in (("bfb/v2", "DPUDeployment fleet"), ("dpucluster/tenant", "DPU h1-dh1, DPU h2-dh2")):
        ran = await plane("delete", named, "-n", "dpf")
        assert ran.status == 0 and ran.stdout.endswith(f"it stays until these no longer use it: {user}\n"), ran
        described = (await plane("describe", named, "-n", "dpf")).stdout
        first = f"{user.split(',')[0].replace(' ', ' dpf/')}"
        assert "AwaitingDeletion" in described and f" is in use by {first}" in described, described
    assert (await plane(*everything)).stdout == before
    assert {status["phase"] for status in (await dpus(plane)).values()} == {"Ready"}


@pytest.mark.timeout(300)
async def test_a_deployment_becomes_ready_is_updated_and_leaves_nothing(tmp_path: Path) -> None:
    serve = ("--data", str(tmp_path / "plane"), "--simulate", "1", "--image-hosts", "127.0.0.1")
    async with images("v1", "v2") as server, serving(*serve, stderr=tmp_path / "log") as process:
        plane = Plane(process.address("api"))
        await applied(plane, tmp_path / "fleet.yaml", *fleet(server))
        ran = await plane("wait", "dpudeployment/fleet", "-n", "dpf", "--for=condition=Ready", "--timeout", READY_S)
        assert ran.status == 0, (ran, (await plane("describe", "dpudeployment", "fleet", "-n", "dpf")).stdout)
        found = await dpus(plane)
        assert {name: status["phase"] for name, status in found.items()} == {f"{h}-d{h}": "Ready" for h in HOSTS}
        described = (await plane("describe", "dpu", "h1-dh1", "-n", "dpf")).stdout
        assert "Observed:\n" in described and "  installed: v1/" in described, described
        shown = await plane("dpus", "show", "h1-dh1")
        assert "v1/" in shown.stdout, shown

        await applied(plane, tmp_path / "update.yaml", image("v2", server), deployment("v2"))
        async with asyncio.timeout(90):
            while "  installed: v2/" not in (await plane("describe", "dpu", "h2-dh2", "-n", "dpf")).stdout:
                await asyncio.sleep(0.3)
        ran = await plane("wait", "dpudeployment/fleet", "-n", "dpf", "--for=condition=Ready", "--timeout", READY_S)
        assert ran.status == 0, ran

        await deleted_but_in_use(plane)
        ran = await plane("delete", "dpudeployment", "fleet", "-n", "dpf")
        assert ran.status == 0, ran
        await until_gone(plane, "dpus")
        await until_gone(plane, "bfb/v2")
        await until_gone(plane, "dpucluster/tenant")
        async with asyncio.timeout(60):
            while "h1-dh1" in (await plane("dpus", "list", "--zone", "rack-1", "-o", "name")).stdout:
                await asyncio.sleep(0.2)
        await process.stop()

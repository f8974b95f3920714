"""What DPUSets and DPUDeployments want, on the command line of a plane without Kubernetes: listed with its status,
described down to the object that is to blame, planned before it is applied, and gone with its owner."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.integration.test_cli_resources import Plane, plane

GROUP = "provisioning.dpu.nvidia.com"
HOSTS = 3


def manifest(kind: str, name: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "dpf", "labels": {key.replace("__", "/"): labels[key] for key in labels}}
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def image(name: str) -> dict[str, Any]:
    """A BFB that is never downloaded: the image store refuses its address at once."""
    return manifest("BFB", name, {"url": f"http://127.0.0.1:1/{name}.bfb"})


def dpu_set(image: str) -> dict[str, Any]:
    template = {"bfb": {"name": image}, "dpuFlavor": "hbn", "nodeEffect": {"noEffect": True}}
    selector = {"matchLabels": {"rack": "7"}}
    return manifest("DPUSet", "rack7", {"dpuNodeSelector": selector, "dpuTemplate": {"spec": template}})


def fleet() -> list[dict[str, Any]]:
    """Three hosts with a device each, two of them in rack 7, and the DPUSet of this rack; its image is missing."""
    found = [dpu_set("v1"), manifest("DPUFlavor", "hbn", {})]
    for number in range(HOSTS):
        reboot: dict[str, Any] = {"nodeRebootMethod": {"external": {}}}
        found.append(manifest("DPUNode", f"h{number}", reboot, rack="7" if number else "1"))
        device = manifest("DPUDevice", f"d{number}", {"serialNumber": f"MT{number}"})
        device["metadata"]["labels"][DPU_NODE_NAME] = f"h{number}"
        found.append(device)
    return found


def written(path: Path, objects: Sequence[dict[str, Any]]) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


async def refused(dpuplane: Plane, name: str) -> None:
    """Wait until the image store has refused to download an image."""
    async with asyncio.timeout(60):
        while "Error" not in (await dpuplane("get", "bfb", name, "-n", "dpf")).stdout:
            await asyncio.sleep(0.1)


async def listed(dpuplane: Plane) -> list[list[str]]:
    """The rows of the DPUs without their age."""
    table = await dpuplane("get", "dpus", "-n", "dpf")
    return [line.split()[:3] for line in table.stdout.splitlines()[1:]]


async def applied(dpuplane: Plane, path: Path, *objects: dict[str, Any]) -> None:
    ran = await dpuplane("apply", "-f", written(path, objects))
    assert ran.status == 0, ran


async def test_dpus_of_a_set_follow_from_objects_in_any_order(tmp_path: Path) -> None:
    objects, file = fleet(), tmp_path / "fleet.yaml"
    Random(4).shuffle(objects)
    wanted = [["h1-d1", "False", "Initializing"], ["h2-d2", "False", "Initializing"]]
    async with plane(tmp_path / "plane") as dpuplane:
        assert not await listed(dpuplane)
        for each in objects:
            await applied(dpuplane, file, each)
        assert [row[0] for row in await listed(dpuplane)] == ["h1-d1", "h2-d2"]
        ran = await dpuplane("describe", "dpuset", "rack7", "-n", "dpf")
        assert "Waits for (* is to blame):\n  BFB dpf/v1 does not exist *\n" in ran.stdout
        assert "Children:\n  2 DPUs: h1-d1, h2-d2, Ready: False (Pending)\n" in ran.stdout
        await applied(dpuplane, file, image("v1"))
        await refused(dpuplane, "v1")
        assert await listed(dpuplane) == wanted
        ran = await dpuplane("get", "dpu", "h1-d1", "-n", "dpf", "-o", "yaml")
        found, owner = (
            yaml.safe_load(ran.stdout),
            (await dpuplane("get", "dpuset/rack7", "-n", "dpf", "-o", "json")).json(),
        )
        (reference,) = found["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["uid"]) == ("DPUSet", "rack7", owner["metadata"]["uid"])
        assert found["spec"]["bfb"] == "v1" and found["spec"]["dpuNodeName"] == "h1"
        message = {each["type"]: each["message"] for each in found["status"]["conditions"]}
        assert message["BFBReady"].startswith("BFB dpf/v1 is in phase Error: host '127.0.0.1' has the local address")
    async with plane(tmp_path / "plane") as dpuplane:
        assert await listed(dpuplane) == wanted
        assert (await dpuplane("get", "dpu", "h1-d1", "-n", "dpf", "-o", "yaml")).stdout == ran.stdout


async def test_a_plan_names_each_dpu_and_appends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    async with plane(tmp_path / "plane") as dpuplane:
        await applied(dpuplane, tmp_path / "fleet.yaml", *fleet(), image("v1"), image("v2"))
        before = [name for name, *_ in await listed(dpuplane)]
        ran = await dpuplane("diff", "-f", written(file, [dpu_set("v2")]))
        assert ran.status == 1 and "-        name: v1\n+        name: v2\n" in ran.stdout
        plan = ran.stdout[ran.stdout.index("Plan, in this order:") :]
        assert plan.splitlines()[1:] == [
            "  1. reflash DPU dpf/h1-d1: bfb v1 -> v2 (for DPUSet dpf/rack7)",
            "  2. reflash DPU dpf/h2-d2: bfb v1 -> v2 (for DPUSet dpf/rack7)",
        ]
        ran = await dpuplane("apply", "-f", str(file), "--dry-run")
        assert ran.stdout.endswith(plan)
        ran = await dpuplane("apply", "-f", str(file), "--dry-run", "-o", "json")
        steps = ran.json()["dry_run"]["steps"]
        assert [(step["action"], step["name"]["name"]) for step in steps] == [
            ("reflash", "h1-d1"),
            ("reflash", "h2-d2"),
        ]
        edited = manifest("DPUFlavor", "hbn", {"dma": {"enabled": True}})
        ran = await dpuplane("diff", "-f", written(tmp_path / "flavor.yaml", [edited]))
        added = 'dpuFlavor.dma none -> {"enabled": true}'
        for number, name in enumerate(("h1-d1", "h2-d2"), 1):
            assert f"  {number}. reflash DPU dpf/{name}: {added} (for DPUSet dpf/rack7)\n" in ran.stdout, ran.stdout
        spec = (await dpuplane("get", "dpu", "h1-d1", "-n", "dpf", "-o", "json")).json()["spec"]
        assert ([name for name, *_ in await listed(dpuplane)], spec["bfb"]) == (before, "v1")
        many = [image(f"other{number}") for number in range(600)]
        ran = await dpuplane("diff", "-f", written(file, [*many, dpu_set("v2")]))
        assert ran.stdout.endswith(plan), "a plan of more objects than one request of an apply has"


async def test_derived_objects_of_the_past_are_those_of_the_objects_of_then(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        await applied(dpuplane, tmp_path / "fleet.yaml", *fleet(), image("v1"), image("v2"))
        await asyncio.sleep(0.1)
        then_ms = time.time_ns() // 1_000_000
        await asyncio.sleep(0.1)
        await applied(dpuplane, tmp_path / "set.yaml", dpu_set("v2"))
        words = ("get", "dpu", "h1-d1", "-n", "dpf", "-o", "json")
        assert (await dpuplane(*words)).json()["spec"]["bfb"] == "v2"
        ran = await dpuplane(*words, "--as-of", str(then_ms), "--timeout", "30")
        assert ran.status == 0, ran
        assert ran.json()["spec"]["bfb"] == "v1"


async def test_objects_are_awaited_in_the_words_of_kubectl_and_leave_with_their_owner(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        await applied(dpuplane, tmp_path / "fleet.yaml", *fleet(), image("v1"))
        ran = await dpuplane("wait", "dpudevice/d1", "-n", "dpf", "--for=condition=Ready")
        assert (ran.status, ran.stdout) == (0, "dpudevice/d1: condition=Ready: Ready is True\n")
        ran = await dpuplane("wait", "--for=condition=ready", "--timeout=3s", "dpuset", "rack7", "-n", "dpf")
        assert ran.status == 3 and "dpuset/rack7: not condition=ready within 3 s; last seen: Ready is " in ran.stderr
        ran = await dpuplane("wait", "dpus/h1-d1", "-n", "dpf", "--for", "condition=Ready=False", "--timeout", "60")
        assert ran.status == 0
        waiting = asyncio.create_task(dpuplane("wait", "dpu/h1-d1", "dpu/h2-d2", "-n", "dpf", "--for=delete"))
        ran = await dpuplane("delete", "dpuset", "rack7", "-n", "dpf")
        assert ran.status == 0
        assert (await waiting).status == 0
        assert not await listed(dpuplane)
        ran = await dpuplane("get", "dpu", "h1-d1", "-n", "dpf")
        assert ran.status == 1 and "does not exist" in ran.stderr
        for words, sentence in (
            (("dpu/a", "--for=ready"), "must be delete, condition=TYPE or condition=TYPE=STATUS"),
            (("zoen",), "unknown kind 'zoen'"),
        ):
            ran = await dpuplane("wait", *words)
            assert ran.status == 2 and sentence in ran.stderr, ran


async def test_the_children_of_a_deployment_are_listed_beside_applied_objects(tmp_path: Path) -> None:
    svc = "svc.dpu.nvidia.com/v1alpha1"
    helm = {"source": {"repoURL": "https://charts.example.com", "chart": "hbn", "version": "1.0.0"}}
    objects = [*fleet()[1:], image("v1")]
    parts: dict[str, dict[str, Any]] = {
        "DPUServiceTemplate": {"deploymentServiceName": "hbn", "helmChart": helm},
        "DPUServiceConfiguration": {"deploymentServiceName": "hbn"},
    }
    for kind, spec in parts.items():
        objects.append(manifest(kind, "hbn", spec) | {"apiVersion": svc})
    deployment = {
        "dpus": {"bfb": "v1", "flavor": "hbn", "dpuSets": [{"nameSuffix": "all"}]},
        "services": {"hbn": {"serviceTemplate": "hbn", "serviceConfiguration": "hbn"}},
        "serviceChains": {"switches": [{"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]}]},
    }
    whole = manifest("DPUDeployment", "dep", deployment) | {"apiVersion": svc}
    async with plane(tmp_path / "plane") as dpuplane:
        await applied(dpuplane, tmp_path / "parts.yaml", *objects)
        ran = await dpuplane("diff", "-f", written(tmp_path / "dep.yaml", [whole]))
        steps = [line.split()[1:3] for line in ran.stdout.partition("Plan, in this order:\n")[2].splitlines()]
        assert steps == [["create", "DPU"]] * HOSTS + [["start", "DPUService"], ["connect", "DPUServiceChain"]], ran
        await applied(dpuplane, tmp_path / "dep.yaml", whole)
        ran = await dpuplane("get", "dpusets", "-A", "-o", "name")
        assert ran.stdout == f"dpuset.{GROUP}/dep-all\n"
        assert len(await listed(dpuplane)) == HOSTS
        (service,) = (await dpuplane("get", "dpuservices", "-n", "dpf", "-o", "json")).json()["items"]
        assert service["metadata"]["ownerReferences"][0]["name"] == "dep", json.dumps(service)
        await refused(dpuplane, "v1")
        ran = await dpuplane("describe", "dpudeployment", "dep", "-n", "dpf")
        assert "  BFB dpf/v1 is in phase Error: host '127.0.0.1' has the local address" in ran.stdout
        ran = await dpuplane("delete", "dpudeployment", "dep", "-n", "dpf")
        assert not await listed(dpuplane)
        assert "no dpuservices in" in (await dpuplane("get", "dpuservices", "-n", "dpf")).stderr

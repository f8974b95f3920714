"""Staged changes of networks on the command line, against a real process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.planes import Process, Ran, run, serving

CONFIG = {"provisioningController": {"bfbPVCName": "images"}}
CHAIN: dict[str, Any] = {
    "template": {
        "spec": {
            "template": {"spec": {"switches": [{"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]}]}}
        }
    }
}


async def ran(plane: Process, *arguments: str, status: int = 0) -> Ran:
    found = await run(*arguments, server=plane.address("api"))
    assert found.status == status, found.stdout + found.stderr
    return found


def manifest(folder: Path, kind: str, name: str, spec: dict[str, Any], **annotations: str) -> str:
    group = "operator" if kind == "DPFOperatorConfig" else "svc"
    found = {
        "apiVersion": f"{group}.dpu.nvidia.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "dpf", "annotations": annotations},
        "spec": spec,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(found))
    return str(path)


async def until(plane: Process, *phases: str) -> Any:
    """The staged change once it is in one of these phases."""
    async with asyncio.timeout(60):
        while True:
            found = await run("networks", "status", "--output", "json", server=plane.address("api"))
            if found.status == 0 and found.json()["phase"] in phases:
                return found.json()
            await asyncio.sleep(0.2)


async def test_a_change_of_networks_is_staged_paused_resumed_and_rolled_back(tmp_path: Path) -> None:
    stages = {"dpuplane.io/network-stages": "1,50%", "dpuplane.io/network-bake-time": "1h"}
    chain = manifest(tmp_path, "DPUServiceChain", "web", CHAIN)
    config = manifest(tmp_path, "DPFOperatorConfig", "config", CONFIG, **stages)
    wrong = manifest(tmp_path, "DPFOperatorConfig", "wrong", CONFIG, **{"dpuplane.io/network-stages": "50%,1%"})
    async with serving("--data", str(tmp_path / "plane")) as plane:
        assert (
            "no change of the networks of 'local' was staged"
            in (await ran(plane, "networks", "status", status=1)).stderr
        )
        refused = await ran(plane, "apply", "-f", wrong, status=1)
        assert (
            'metadata.annotations["dpuplane.io/network-stages"]: must not decrease' in refused.stdout + refused.stderr
        )
        await ran(plane, "apply", "-f", config)
        begun = await until(plane, "complete")
        assert begun["stages"] == ["1", "50%", "100%"] and begun["source"] == "local"
        assert "has ended" in (await ran(plane, "networks", "pause", status=1)).stderr

        await ran(plane, "apply", "-f", chain)
        while (found := await until(plane, "staging"))["stage"] != 1:
            await asyncio.sleep(0.2)
        assert found["bake_time"] == "3600s"
        await ran(plane, "networks", "pause")
        assert (await until(plane, "paused"))["message"].startswith("paused by ")
        assert "paused already" in (await ran(plane, "networks", "pause")).stdout
        await ran(plane, "networks", "resume", "local")
        await until(plane, "staging")
        assert "return to the networks before the change" in (await ran(plane, "networks", "undo")).stdout
        assert (await until(plane, "undone"))["message"].startswith("rolled back by ")
        assert (await ran(plane, "verify")).status == 0

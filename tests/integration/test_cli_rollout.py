"""`dpuplane rollout` against a real process with an embedded log, without Kubernetes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.integration.test_cli_resources import FLAVOR, IMAGE, V1, Plane, plane

DEVICE = "provisioning.dpu.nvidia.com/dpunode-name"
OBJECTS = f"""\
{json.dumps(IMAGE)}
---
{FLAVOR}---
apiVersion: {V1}
kind: DPUNode
metadata: {{name: host1}}
spec: {{}}
---
apiVersion: {V1}
kind: DPUDevice
metadata: {{name: d1, labels: {{{DEVICE}: host1}}}}
spec: {{serialNumber: s1}}
---
apiVersion: {V1}
kind: DPUSet
metadata:
  name: rack7
  annotations: {{dpuplane.io/rollout-waves: "1,50%", dpuplane.io/rollout-bake-time: 10m}}
spec:
  strategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 1}}}}
  dpuNodeSelector: {{}}
  dpuTemplate: {{spec: {{bfb: {{name: image}}, dpuFlavor: hbn, nodeEffect: {{noEffect: true}}}}}}
"""


async def planned(dpuplane: Plane, folder: Path) -> None:
    """Apply a DPUSet, and wait until its rollout is known."""
    (folder / "objects.yaml").write_text(OBJECTS)
    ran = await dpuplane("apply", "-f", str(folder / "objects.yaml"), "-n", "dpf")
    assert ran.status == 0, ran

    async with asyncio.timeout(90):
        while (await dpuplane("rollout", "status", "dpuset/rack7", "-n", "dpf")).status:
            await asyncio.sleep(0.1)


async def test_a_rollout_is_shown_paused_resumed_and_undone(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        await planned(dpuplane, tmp_path)
        ran = await dpuplane("rollout", "status", "dpuset/rack7", "-n", "dpf", "-o", "json")
        (found,) = ran.json()["sets"]
        assert (found["dpus"], found["waves"], found["state"]) == (1, ["1", "50%", "100%"], "progressing")
        ran = await dpuplane("rollout", "pause", "dpuset/rack7", "-n", "dpf")
        assert (ran.status, ran.stdout) == (0, "dpuset.provisioning.dpu.nvidia.com/rack7 paused\n")
        ran = await dpuplane("rollout", "status", "dpuset", "rack7", "-n", "dpf")
        assert ran.stdout.splitlines()[1].split()[:2] == ["rack7", "paused"]
        assert "DPUSet dpf/rack7 is paused by " in ran.stdout
        assert (await dpuplane("rollout", "resume", "dpuset/rack7", "-n", "dpf")).status == 0
        ran = await dpuplane("rollout", "undo", "dpuset/rack7", "-n", "dpf")
        assert ran.status == 1
        assert "revision: there is no earlier revision" in ran.stderr + ran.stdout
        ran = await dpuplane("rollout", "history", "dpuset/rack7", "-n", "dpf")
        assert '{"bfb":"image","dpuFlavor":"hbn"}' in ran.stdout
        ran = await dpuplane("describe", "dpuset", "rack7", "-n", "dpf")
        assert "DPUsUpdated" in ran.stdout


async def test_an_undo_tells_the_revision_that_it_returns_to(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        await planned(dpuplane, tmp_path)
        another = OBJECTS.replace("bfb: {name: image}", "bfb: {name: another}")
        (tmp_path / "another.yaml").write_text(another)
        assert (await dpuplane("apply", "-f", str(tmp_path / "another.yaml"), "-n", "dpf")).status == 0
        async with asyncio.timeout(90):
            while '"another"' not in (await dpuplane("rollout", "history", "dpuset/rack7", "-n", "dpf")).stdout:
                await asyncio.sleep(0.1)
        ran = await dpuplane("rollout", "undo", "dpuset/rack7", "-n", "dpf")
        returned = "dpuset.provisioning.dpu.nvidia.com/rack7 rolled back: DPUSet dpf/rack7 returns to revision 1\n"
        assert (ran.status, ran.stdout) == (0, returned)


async def test_only_dpusets_and_dpudeployments_have_rollouts(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        ran = await dpuplane("rollout", "status", "bfb/image")
        assert (ran.status, "BFB has no rollout" in ran.stderr) == (2, True)
        assert (await dpuplane("rollout", "status", "dpuset")).status == 2
        ran = await dpuplane("rollout", "undo", "dpuset/none", "--to-revision", "3")
        assert (ran.status, "DPUSet default/none has no rollout" in ran.stdout + ran.stderr) == (1, True)
        assert (await dpuplane("rollout", "history", "dpudeployment/none")).status == 1

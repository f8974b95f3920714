"""A DPU is installed over gNOI by a plane, from objects alone, although the plane is killed while it reboots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from drivers.images.bfb import made_bfb
from schemas.resources.dpf.names import DPU_NODE_NAME, EXTERNAL_REBOOT_REQUIRED
from tests.integration.test_cli_host_steps import manifest, until
from tests.integration.test_cli_resources import Plane
from tests.support.gnoi.packages import package
from tests.support.gnoi.service import SERIAL, Identity, served
from tests.support.gnoi.steps import IMAGE
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import serving

DPU = "worker-d1"
HEADER_BYTES = 104
"""The bytes at the beginning of a BFB that a message of protobuf has as a field which gnxi does not know."""


def both_formats() -> bytes:
    """An image that the plane takes as a BFB, and gnxi as its package: what follows the last image of a BFB is free."""
    header = made_bfb([(1, b"x" * 80)])
    assert len(header) == HEADER_BYTES == 2 + header[1]
    return header + package(IMAGE)


def objects(image_url: str, address: str) -> list[dict[str, Any]]:
    template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
    about = {"labels": {DPU_NODE_NAME: "worker"}, "annotations": {"dpuplane.io/bmc-address": f"gnoi://{address}"}}
    return [
        manifest("BFB", "image", {"url": image_url}),
        manifest("DPUFlavor", "flavor", {"bfcfgParameters": ["A=1"]}),
        manifest("DPUNode", "worker", {"nodeRebootMethod": {"external": {}}}),
        manifest("DPUDevice", "d1", {"serialNumber": SERIAL}, **about),
        manifest("DPUSet", "set", {"strategy": {"type": "RollingUpdate"}, "dpuTemplate": {"spec": template}}),
    ]


async def test_a_dpu_is_installed_once_although_the_plane_is_killed_in_its_reboot(
    gnoi_identity: Identity, tmp_path: Path
) -> None:
    data, folder = tmp_path / "plane", gnoi_identity.authority.folder
    trust = ("--bmc-ca", str(folder / "ca.pem"), "--bmc-ca-key", str(folder / "ca.key"))
    options = ("--data", str(data), "--image-hosts", "127.0.0.1", *trust)
    async with asyncio.timeout(240), image_server() as images, served(gnoi_identity, reboot="5s") as service:
        images.files["a.bfb"] = ServedFile(both_formats())
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects(images.url("a.bfb"), service.address)))
        async with serving(*options) as process:
            ran = await Plane(process.address("api"))("apply", "-f", str(tmp_path / "all.yaml"))
            assert ran.status == 0, ran
            while not (await service.state()).installs:
                await asyncio.sleep(0.1)
            process.kill()
            await process.ended()
        async with serving(*options) as again:
            dpuplane = Plane(again.address("api"))
            await until(dpuplane, ("get", "dpunode", "worker", "-n", "dpf", "-o", "yaml"), EXTERNAL_REBOOT_REQUIRED)
            shown = (await dpuplane("dpus", "show", DPU, "--output", "json")).json()
            await again.stop()
        state = await service.state()
        assert (state.installs, state.running, shown["facts"]["os_version"]) == (1, IMAGE, IMAGE)
        assert "A=1" in state.config, "the configuration came with the image"

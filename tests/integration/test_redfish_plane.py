"""A card in a range of addresses is found and installed over Redfish by a plane, from objects alone."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from deploy.clock import utc_now
from drivers.images.pldm import made_package
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.identity import BLUEFIELD_4, BLUEFIELD_4_MEDIA_STAGING, Generation, Identity
from drivers.simulators.redfish.server import BmcServer
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED
from tests.integration.test_cli_host_steps import manifest, until
from tests.integration.test_cli_resources import Plane
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import serving
from tests.support.redfish_steps import BFB, FAST, PASSWORD

SERIAL = "MT2310XZ03LR"
DEVICE = SERIAL.lower()


def objects(port: int, image: dict[str, Any], template: dict[str, Any]) -> list[dict[str, Any]]:
    """A search that finds the card, and a DPUSet that selects every DPU and names the image."""
    template |= {"dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}, "secureBoot": False}
    install = {"installViaRedfish": {"skipDPUNodeDiscovery": False}}
    config = manifest(
        "DPFOperatorConfig",
        "config",
        {"deploymentMode": "zero-trust", "provisioningController": {"installInterface": install}},
    )
    config["apiVersion"] = "operator.dpu.nvidia.com/v1alpha1"
    metadata = {"name": "bmc-shared-password", "namespace": "dpf"}
    addresses = {"startIP": "127.0.0.1", "endIP": "127.0.0.1", "port": port}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": PASSWORD}},
        config,
        image,
        manifest("DPUFlavor", "flavor", {}),
        manifest("DPUDiscovery", "rack", {"ipRangeSpec": {"ipRange": addresses}, "scanInterval": "10s"}),
        manifest("DPUSet", "set", {"strategy": {"type": "RollingUpdate"}, "dpuTemplate": {"spec": template}}),
    ]


async def test_a_card_is_found_and_installed_although_the_plane_is_killed_meanwhile(tmp_path: Path) -> None:
    data, name = tmp_path / "plane", f"dpu-node-{DEVICE}-{DEVICE}"
    options = ("--data", str(data), "--image-hosts", "127.0.0.1")
    async with asyncio.timeout(280), image_server() as images:
        images.files["a.bfb"] = ServedFile(BFB)
        bmc = RedfishBmc(Identity(SERIAL), now=utc_now, rng=Random(1), durations=FAST._replace(flash_s=4.0))
        async with serving(*options) as process:
            trusts = ssl.create_default_context(cafile=str(data / "images" / "tls.pem"))
            server = BmcServer(bmc, trusts=trusts)
            async with server.listening():
                port = int(server.url.rpartition(":")[2])
                image = manifest("BFB", "image", {"url": images.url("a.bfb")})
                wanted = objects(port, image, {"bfb": {"name": "image"}})
                (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(wanted))
                ran = await Plane(process.address("api"))("apply", "-f", str(tmp_path / "all.yaml"))
                assert ran.status == 0, ran
                while max((task.percent for task in bmc.tasks.by_id.values()), default=0) <= 30:
                    await asyncio.sleep(0.1)  # until it writes the image, which it has fetched
                process.kill()
                await process.ended()
                async with serving(*options) as again:
                    await _until_installed(Plane(again.address("api")), name)
                    await again.stop()
        updates = [path for method, path in bmc.requests if method == "POST" and "SimpleUpdate" in path]
        assert (bmc.card.os, len(updates)) == ("DOCA_2.9.3_BSP_4.9.0", 1)
        assert (bmc.card.secure_boot, bmc.card.host_rshim) == (False, False), "as the objects want it"
        assert server.fetched_bytes > len(BFB), "the image came with the configuration behind it"
    for file in data.rglob("*"):
        if file.is_file() and file.parent.name != "dpf":  # the folder of Secrets
            assert PASSWORD.encode() not in file.read_bytes()


@pytest.mark.parametrize("generation", [BLUEFIELD_4, BLUEFIELD_4_MEDIA_STAGING], ids=["media-streamed", "media-staged"])
async def test_a_bluefield_4_is_found_and_installed_from_virtual_media_with_its_configuration(
    generation: Generation, tmp_path: Path
) -> None:
    data, name = tmp_path / "plane", f"dpu-node-{DEVICE}-{DEVICE}"
    async with asyncio.timeout(280), image_server() as images:
        images.files["os.iso"] = ServedFile(b"an installer" * 1_000)
        images.files["bmc.fwpkg"] = ServedFile(made_package("26.10", [(1, "BF-26.10")]))
        identity = Identity(SERIAL, generation=generation)
        bmc = RedfishBmc(identity, now=utc_now, rng=Random(1), durations=FAST)
        async with serving("--data", str(data), "--image-hosts", "127.0.0.1") as process:
            trusts = ssl.create_default_context(cafile=str(data / "images" / "tls.pem"))
            server = BmcServer(bmc, trusts=trusts)
            async with server.listening():
                files = {"osIso": images.url("os.iso"), "pldmFwBundle": images.url("bmc.fwpkg")}
                image = manifest("BlueFieldSoftware", "image", files)
                wanted = objects(int(server.url.rpartition(":")[2]), image, {"blueFieldSoftware": {"name": "image"}})
                (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(wanted))
                dpuplane = Plane(process.address("api"))
                ran = await dpuplane("apply", "-f", str(tmp_path / "all.yaml"))
                assert ran.status == 0, ran
                await _until_installed(dpuplane, name)
                await process.stop()
        assert bmc.card.os.startswith("sha256:")
        assert (bmc.card.media_boots, bmc.card.pending_privilege) == (1, "Restricted")
        assert (bmc.card.firmware[bmc.identity.bmc_firmware], bmc.restarts) == ("BF-26.10", 1)
        assert not any(media.image for media in bmc.card.media.values())
        assert server.seed["user-data"].startswith(b"#cloud-config\n")
        assert json.loads(server.seed["meta-data"])["local-hostname"] == name


async def _until_installed(dpuplane: Plane, name: str) -> None:
    """Answer the request to reboot the host as a person does, and wait until the DPU has been installed."""
    nodes = ("get", "dpunode", f"dpu-node-{DEVICE}", "-n", "dpf", "-o", "yaml")
    await until(dpuplane, nodes, EXTERNAL_REBOOT_REQUIRED)
    ran = await dpuplane("annotate", "dpunodes", "--all", f"{EXTERNAL_REBOOT_REQUIRED}-", "-n", "dpf")
    assert ran.status == 0, ran
    await until(dpuplane, ("describe", "dpu", name, "-n", "dpf"), "waits for a DPUCluster")
    shown = (await dpuplane("dpus", "show", name, "--output", "json")).json()
    assert shown["bmc_address"].startswith("redfish://127.0.0.1:")

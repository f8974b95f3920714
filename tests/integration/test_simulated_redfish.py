"""DPUs of `dpuplane simulator`: a plane installs them through BMCs that speak Redfish over HTTPS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from tests.integration.test_cli_host_steps import manifest
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import Process, Ran, run, serving, started
from tests.support.redfish_steps import BFB

FIRST, SECOND = "z-dpu-0000", "z-dpu-0001"
OS_VERSION = "DOCA_2.9.3_BSP_4.9.0"


class Fleet:
    """A plane and its simulator, with commands of an operator."""

    def __init__(self, plane: Process, folder: Path) -> None:
        self._plane = plane
        self._folder = folder

    @property
    def simulator(self) -> tuple[str, ...]:
        """The arguments of the simulator."""
        agents, api = self._plane.address("agents"), self._plane.address("api")
        image_ca = str(self._folder / "plane" / "images" / "tls.pem")
        files = ("--bmc-folder", str(self._folder / "bmcs"), "--image-ca", image_ca)
        return ("simulator", "--relay", agents, "--server", api, "--dpus-per-zone", "2", *files)

    async def __call__(self, *words: str) -> Ran:
        ran = await run(*words, server=self._plane.address("api"))
        assert ran.status == 0, ran
        return ran

    async def dpu(self, name: str) -> dict[str, object]:
        shown: dict[str, object] = (await self("dpus", "show", name, "--output", "json")).json()
        return shown

    async def provision(self, name: str, image: str) -> dict[str, object]:
        """Install an image. Returns the DPU once it is ready."""
        await self("dpus", "provision", name, "--image", image)
        await self("wait", "dpu", name, "--for", "ready", "--timeout", "120")
        return await self.dpu(name)


async def until_registered(fleet: Fleet) -> None:
    while len((await fleet("dpus", "list", "--output", "json")).json()["dpus"]) < 2:
        await asyncio.sleep(0.2)


async def test_a_plane_installs_simulated_dpus_also_after_a_restart_of_the_simulator(tmp_path: Path) -> None:
    bmcs = tmp_path / "bmcs"
    assert (await run("certs", "init", "--dir", str(bmcs))).status == 0
    (bmcs / "password").write_text("a password of the plane")
    trusting = ("--bmc-ca", str(bmcs / "ca.pem"), "--bmc-password-file", str(bmcs / "password"))
    options = ("--data", str(tmp_path / "plane"), "--image-hosts", "127.0.0.1", *trusting)
    async with asyncio.timeout(240), image_server() as images, serving(*options) as plane:
        fleet = Fleet(plane, tmp_path)
        images.files["a.bfb"] = ServedFile(BFB)
        documents = [manifest("BFB", name, {"url": images.url("a.bfb")}) for name in ("bundle-1", "bundle-2")]
        (tmp_path / "images.yaml").write_text(yaml.safe_dump_all(documents))
        await fleet("apply", "-f", str(tmp_path / "images.yaml"))
        await fleet("wait", "object", "bfb/bundle-1", "bfb/bundle-2", "-n", "dpf")
        await fleet("nodes", "join", "n1", "--zone", "z", "--address", "10.0.0.1")
        async with started(*fleet.simulator) as simulator:
            await until_registered(fleet)
            installed = await fleet.provision(FIRST, "bundle-1")
            assert (installed["phase"], installed["image"]) == ("Ready", "bundle-1")
            assert str(installed["bmc_address"]).startswith("redfish://127.0.0.1:")
            facts = installed["facts"]
            assert isinstance(facts, dict)
            assert (facts["os_version"], facts["bmc_certificate"]) == (OS_VERSION, "of the authority")
            assert await simulator.stop() == 0
        async with started(*fleet.simulator):
            again = await fleet.provision(FIRST, "bundle-2")
        assert (again["bmc_address"], again["image"]) == (installed["bmc_address"], "bundle-2")
        assert (await fleet.dpu(SECOND))["bmc_address"] != again["bmc_address"]


async def test_a_failed_installation_is_told_with_the_log_of_its_bmc(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a password of the plane")
    options = ("--data", str(tmp_path / "plane"), "--image-hosts", "127.0.0.1")
    secret = ("--bmc-password-file", str(tmp_path / "password"))
    async with asyncio.timeout(240), image_server() as images, serving(*options, *secret) as plane:
        fleet = Fleet(plane, tmp_path)
        images.files["a.bfb"] = ServedFile(BFB)
        (tmp_path / "image.yaml").write_text(yaml.safe_dump(manifest("BFB", "bundle", {"url": images.url("a.bfb")})))
        await fleet("apply", "-f", str(tmp_path / "image.yaml"))
        await fleet("wait", "object", "bfb/bundle", "-n", "dpf")
        await fleet("nodes", "join", "n1", "--zone", "z", "--address", "10.0.0.1")
        await fleet("zones", "limit", "z", "--device-attempts", "1")
        async with started(*fleet.simulator, "--fail", "1"):
            await until_registered(fleet)
            await fleet("dpus", "provision", FIRST, "--image", "bundle")
            await fleet("wait", "dpu", FIRST, "--for", "error", "--timeout", "120")
            assert "writing the flash failed" in str((await fleet.dpu(FIRST))["message"])
            await fleet("dpus", "provision", SECOND, "--image", "missing")
            await fleet("wait", "dpu", SECOND, "--for", "error", "--timeout", "120")
            assert "there is no file for 'missing'" in str((await fleet.dpu(SECOND))["message"])
        assert {path.name for path in (tmp_path / "bmcs").iterdir()} == {"ca.pem", "ca.key", "password"}

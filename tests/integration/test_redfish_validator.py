"""DMTF's service validator finds no fail in the simulated BMC, with the schemas of DMTF and NVIDIA."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import OS
from drivers.simulators.redfish.faults import Outcome
from drivers.simulators.redfish.identity import (
    BLUEFIELD_3,
    BLUEFIELD_4,
    BLUEFIELD_4_MEDIA_STAGING,
    MEDIA_FILES,
    Generation,
)
from drivers.simulators.redfish.update_resources import INVENTORY, SIMPLE_UPDATE
from tests.support.bmc_client import IMAGE, PASSWORD, connected, new_bmc
from tests.support.image_server import ServedFile, image_server
from tests.support.redfish_schemas.schema_files import schema_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
VALIDATOR = Path(sys.executable).with_name("rf_service_validator")
RUN_S = 300.0
_COUNTS = re.compile(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|")


async def validated(url: str, bmc: RedfishBmc, folder: Path, *more: str) -> tuple[int, int, str]:
    """How many checks passed and failed, and what the validator wrote."""
    user = bmc.identity.generation.user
    words = ["-r", url, "-u", user, "-p", PASSWORD, "--authtype", "Session", "--skipschema", "--logdir", str(folder)]
    schemas = await asyncio.to_thread(schema_folder)
    child = await asyncio.create_subprocess_exec(
        VALIDATOR,
        *words,
        "--schema_directory",
        str(schemas),
        *more,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(RUN_S):
        output = (await child.communicate())[0].decode()
    shown = re.sub(r"\x1b\[\d+m", "", output)
    counts = _COUNTS.search(shown)
    assert counts is not None, output
    return int(counts[1]), int(counts[3]), await asyncio.to_thread(_faults, folder)


def _faults(folder: Path) -> str:
    """The lines of the validator's log that are fails."""
    lines = [line for path in folder.rglob("*.log") for line in path.read_text().splitlines()]
    return "\n".join(line for line in lines if "FAIL -" in line)


@pytest.mark.parametrize(
    "generation",
    [BLUEFIELD_3, BLUEFIELD_4, BLUEFIELD_4_MEDIA_STAGING],
    ids=["bluefield-3", "bluefield-4", "bluefield-4-media-staging"],
)
async def test_the_validator_finds_no_fail(generation: Generation, tmp_path: Path) -> None:
    """Of a BMC with all that it can show: a task, sessions, media, authorities, pending changes and a log."""
    async with image_server() as images, connected(new_bmc(generation=generation)) as client:
        images.files["image"] = ServedFile(IMAGE)
        await client.login(context="an attempt")
        bmc = client.bmc
        bmc.card.outcomes.planned += [Outcome("fail", 30), Outcome("stall", 60)]
        for state in ("Exception", "Running"):
            body = {"ImageURI": images.url("image"), "Targets": [f"{INVENTORY}/{OS}"]}
            status, task, _ = await client.send("POST", SIMPLE_UPDATE, body)
            assert status == 202
            async with asyncio.timeout(30.0):
                while (found := await client.get(task["@odata.id"]))["PercentComplete"] < 30 or (
                    state != found["TaskState"]
                ):
                    await asyncio.sleep(0.02)
        slot = generation.slots[0]
        bmc.card.media[slot].image = "https://images/os.iso"
        for name in set(MEDIA_FILES) & set(bmc.card.firmware):
            bmc.card.firmware[name], bmc.card.media[slot].image = "26.10", MEDIA_FILES[name]
        bmc.card.pending_firmware[bmc.identity.bmc_firmware] = "26.04-1"
        bmc.card.pending_bios["BootTimeout"] = 5
        bmc.certificates.trust(new_bmc().certificates.pem()[0].decode())
        bmc.accounts.accepts_certificates = True
        passed, failed, faults = await validated(client.url, bmc, tmp_path)
        assert failed == 0, faults
        assert passed > 600
        read = {path for method, path in bmc.requests if method == "GET"}
        for path in ("TaskService/Tasks/1", f"Managers/{generation.manager}/VirtualMedia/{slot}"):
            assert f"/redfish/v1/{path}" in read
        assert [path for path in read if path.endswith(("/Oem/Nvidia", "/HostPrivilegeConfig"))]


async def test_the_validator_finds_a_resource_that_is_wrong(tmp_path: Path) -> None:
    async with connected(new_bmc()) as client:
        client.bmc.card.bios["InternalCPUModel"] = ["not", "a", "value"]
        path = f"{client.bmc.identity.system}/Bios"
        _, failed, faults = await validated(client.url, client.bmc, tmp_path, "--payload", "Single", path)
        assert failed
        assert "InternalCPUModel" in faults

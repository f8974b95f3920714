"""The simulated BMC as client libraries of others see it: OpenStack's sushy, and DMTF's redfish with its utilities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import redfish
import redfish_utilities
import sushy
import sushy.auth

from drivers.simulators.redfish.accounts import FACTORY_PASSWORD
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.identity import BLUEFIELD_4
from tests.support.bmc_client import IMAGE, INSTALLED, PASSWORD, Client, connected, new_bmc
from tests.support.image_server import ServedFile, image_server

OS = "/redfish/v1/UpdateService/FirmwareInventory/DPU_OS"
WAIT_S = 60.0
_Result = TypeVar("_Result")


async def apart(call: Callable[[], _Result]) -> _Result:
    """The result of a call of a library that blocks, made in a thread."""
    async with asyncio.timeout(WAIT_S):
        return await asyncio.to_thread(call)


def trusted(folder: Path, bmc: RedfishBmc) -> str:
    """A file with the certificate of a BMC."""
    path = folder / "bmc.pem"
    path.write_bytes(bmc.certificates.pem()[0])
    return str(path)


@contextmanager
def sushy_session(client: Client, certificate: str, password: str = PASSWORD) -> Iterator[sushy.Sushy]:
    """A session of sushy. It is closed here: an object that is collected would close it, and try for half a minute."""
    with sushy.auth.SessionAuth(username="root", password=password) as auth:
        yield sushy.Sushy(client.url, auth=auth, verify=certificate, server_side_retries=0)


async def test_sushy_installs_an_image_and_follows_the_task(tmp_path: Path) -> None:
    async with image_server() as images, connected(new_bmc()) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        certificate, url = trusted(tmp_path, client.bmc), images.url("a.bfb")

        def run() -> dict[str, str]:
            with sushy_session(client, certificate) as root:
                update = root.get_update_service()
                monitor = update.simple_update(url, targets=[OS], transfer_protocol="HTTP")
                assert monitor.is_processing
                while (task := monitor.get_task()).task_state == sushy.TASK_STATE_RUNNING:
                    pass
                assert (task.task_state, task.percent_complete) == (sushy.TASK_STATE_COMPLETED, 100)
                assert root.get_task_service().tasks.summary == {task.identity: sushy.TASK_STATE_COMPLETED}
                return {each.identity: each.version for each in update.firmware_inventory.get_members()}

        versions = await apart(run)
        assert (versions["DPU_OS"], versions["DPU_BSP"]) == (INSTALLED, "4.9.1")


async def test_sushy_sets_up_a_system(tmp_path: Path) -> None:
    async with connected(new_bmc()) as client:
        certificate = trusted(tmp_path, client.bmc)

        def run() -> None:
            with sushy_session(client, certificate) as root:
                (system,) = root.get_system_collection().get_members()
                assert (system.identity, system.power_state) == ("Bluefield", sushy.PowerState.ON)
                system.secure_boot.set_enabled(False)
                system.bios.set_attribute("InternalCPUModel", "Privileged")
                system.set_system_boot_options(target=sushy.BootSource.CD, enabled=sushy.BootSourceOverrideEnabled.ONCE)
                media = system.managers[0].virtual_media.get_members()[0]
                media.insert_media("http://127.0.0.1:1/os.iso")
                media.refresh()
                assert media.inserted
                media.eject_media()
                system.reset_system(sushy.ResetType.FORCE_RESTART)
                system.refresh()
                system.secure_boot.refresh()
                assert not system.secure_boot.enabled
                assert system.bios.attributes["InternalCPUModel"] == "Privileged"
                (chassis,) = root.get_chassis_collection().get_members()
                assert chassis.serial_number == client.bmc.identity.serial
                ports = chassis.network_adapters.get_members()[0].network_device_functions.get_members()
                assert [port.ethernet.mac_address for port in ports] == ["A0:88:C2:00:00:00", "A0:88:C2:00:00:01"]

        await apart(run)
        assert client.bmc.card.boots == 2


async def test_sushy_sees_the_errors_of_the_service(tmp_path: Path) -> None:
    async with connected(new_bmc()) as client:
        certificate = trusted(tmp_path, client.bmc)

        def run() -> None:
            with pytest.raises(sushy.exceptions.AccessError), sushy_session(client, certificate, "wrong"):
                pass
            with sushy_session(client, certificate) as root:
                with pytest.raises(sushy.exceptions.ResourceNotFoundError):
                    root.get_system("/redfish/v1/Systems/Other")
                with pytest.raises(sushy.exceptions.BadRequestError, match="must name one member"):
                    root.get_update_service().simple_update("http://h/a", targets=["/x"], transfer_protocol="HTTP")

        await apart(run)


def opened(client: Client, certificate: str, password: str = PASSWORD) -> redfish.rest.v1.HttpClient:
    """A session of DMTF's library."""
    user = client.bmc.identity.generation.user
    found = redfish.redfish_client(base_url=client.url, username=user, password=password, cafile=certificate)
    found.login(auth="session")
    return found


async def test_dmtf_changes_the_password_of_the_factory(tmp_path: Path) -> None:
    async with connected(new_bmc(password="")) as client:
        certificate = trusted(tmp_path, client.bmc)

        def run() -> None:
            with pytest.raises(redfish.rest.v1.RedfishPasswordChangeRequiredError) as required:
                opened(client, certificate, FACTORY_PASSWORD)
            path = str(required.value.args[1])
            context = redfish.redfish_client(
                base_url=client.url, username="root", password=FACTORY_PASSWORD, cafile=certificate
            )
            redfish_utilities.modify_user(_basic(context), "root", new_password=PASSWORD, user_uri=path)
            with opened(client, certificate) as context:
                assert [user["UserName"] for user in redfish_utilities.get_users(context)] == ["root"]

        def _basic(context: redfish.rest.v1.HttpClient) -> redfish.rest.v1.HttpClient:
            context.login(auth="basic")
            return context

        await apart(run)
        assert client.bmc.accounts.users["root"].password == PASSWORD


async def test_dmtf_installs_an_image_and_reads_the_inventory(tmp_path: Path) -> None:
    async with image_server() as images, connected(new_bmc()) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        certificate, url = trusted(tmp_path, client.bmc), images.url("a.bfb")

        def run() -> None:
            with opened(client, certificate) as context:
                begun = redfish_utilities.simple_update(context, url, protocol="HTTP", targets=[OS])
                assert redfish_utilities.poll_task_monitor(context, begun, silent=True).status == 200
                versions = {each["Id"]: each["Version"] for each in redfish_utilities.get_firmware_inventory(context)}
                assert versions["DPU_OS"] == INSTALLED
                lines = redfish_utilities.get_log_entries(context, redfish_utilities.log_container.SYSTEM, "Bluefield")
                assert [line["Message"] for line in lines] == ["DPU OS installation started"]
                (inventory,) = redfish_utilities.get_system_inventory(context)
                assert inventory["Chassis"][0]["SerialNumber"] == client.bmc.identity.serial

        await apart(run)


async def test_dmtf_replaces_certificates_and_boots_media_on_bluefield_4(tmp_path: Path) -> None:
    async with image_server() as images, connected(new_bmc(generation=BLUEFIELD_4)) as client:
        images.files["os.iso"] = ServedFile(b"an operating system")
        certificate, url = trusted(tmp_path, client.bmc), images.url("os.iso")

        def run() -> None:
            with opened(client, certificate) as context:
                redfish_utilities.insert_virtual_media(context, url)
                redfish_utilities.set_system_boot(context, ov_target="Cd", ov_enabled="Once", ov_mode="UEFI")
                redfish_utilities.set_system_bios(context, {"InternalCPUModel": "Restricted"})
                redfish_utilities.system_reset(context, reset_type="ForceRestart")
                (found,) = redfish_utilities.get_all_certificates(context)
                collection = found["URI"].rpartition("/")[0]
                names = {"common_name": "dpu", "organization": "o", "organizational_unit": "u"}
                place = {"city": "c", "state": "s", "country": "DE"}
                answer = redfish_utilities.generate_csr(context, collection, **names, **place)
                assert "BEGIN CERTIFICATE REQUEST" in answer.dict["CSRString"]
            redfish_utilities.manager_reset(opened(client, certificate), reset_type="GracefulRestart")

        await apart(run)
        async with asyncio.timeout(WAIT_S):
            while client.bmc.card.os.startswith("factory") or not client.bmc.is_up:
                client.bmc.card.settle()
                await asyncio.sleep(0.02)
        assert images.sent_bytes == len(b"an operating system")
        assert client.bmc.restarts == 1
        assert client.bmc.card.bios["InternalCPUModel"] == "Restricted"

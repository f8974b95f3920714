"""The simulated BMC over real HTTPS: sessions, images that it fetches, certificates, and connections that break."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.faults import RequestFault
from drivers.simulators.redfish.update_resources import SIMPLE_UPDATE
from tests.support.bmc_client import FAST, IMAGE, INSTALLED, Client, connected, new_bmc
from tests.support.image_server import ServedFile, image_server

SYSTEM = "/redfish/v1/Systems/Bluefield"
MANAGER = "/redfish/v1/Managers/Bluefield_BMC"
TASKS = "/redfish/v1/TaskService/Tasks"
OS_VERSION = "/redfish/v1/UpdateService/FirmwareInventory/DPU_OS"
SLOW = FAST._replace(flash_s=600.0)
WAIT_S = 60.0


async def ended(client: Client, task: str) -> Any:
    """A task once it has ended."""
    async with asyncio.timeout(WAIT_S):
        while (found := await client.get(task))["TaskState"] == "Running":
            await asyncio.sleep(0.02)
    return found


async def install(client: Client, url: str) -> str:
    """Begin to install from a URL. Returns the path of the task."""
    body = {"TransferProtocol": "HTTP", "ImageURI": url, "Targets": [OS_VERSION]}
    status, task, headers = await client.send("POST", SIMPLE_UPDATE, body)
    assert (status, task["TaskState"]) == (202, "Running")
    assert headers["Location"] == task["TaskMonitor"]
    return str(task["@odata.id"])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_image_is_fetched_and_installed_and_booted(host: str) -> None:
    async with image_server() as images, connected(new_bmc(), host=host) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        await client.login()
        before = await client.get(SYSTEM)
        task = await install(client, images.url("a.bfb").removeprefix("http://"))
        found = await ended(client, task)
        assert (found["TaskState"], found["PercentComplete"]) == ("Completed", 100)
        assert found["Payload"]["TargetUri"] == SIMPLE_UPDATE
        assert images.url("a.bfb").removeprefix("http://") in found["Payload"]["JsonBody"]
        assert client.token not in str(found["Payload"])
        assert images.sent_bytes == len(IMAGE)
        async with asyncio.timeout(WAIT_S):
            while (booted := await client.get(SYSTEM))["BootProgress"]["OemLastState"] != "OsIsRunning":
                await asyncio.sleep(0.02)
        assert booted["LastResetTime"] > before["LastResetTime"]
        assert (await client.get(OS_VERSION))["Version"] == INSTALLED
        assert (await client.send("GET", found["TaskMonitor"]))[0] == 200


@asynccontextmanager
async def wrong_digest() -> AsyncIterator[str]:
    """A server that states the digest of another image."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=IMAGE, headers={"Repr-Digest": "sha-256=:AAAA:"})

    app = web.Application()
    app.router.add_get("/a.bfb", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/a.bfb"
    finally:
        await runner.cleanup()


async def test_a_wrong_image_is_refused_and_the_old_system_stays() -> None:
    async with image_server() as images, wrong_digest() as forged, connected(new_bmc()) as client:
        images.files["cut"] = ServedFile(IMAGE[:20_000])
        images.files["broken"] = ServedFile(IMAGE, breaks=[10_000])
        images.files["html"] = ServedFile(b"<html>not found</html>" * 10)
        images.files["changed"] = ServedFile(IMAGE[:100] + b"\0" + IMAGE[101:])
        await client.login()
        for url, reason in (
            (images.url("cut"), "cut off"),
            (images.url("broken"), "the transfer failed"),
            (images.url("html"), "is not a BFB"),
            (images.url("changed"), "does not have its checksum"),
            (images.url("missing"), "HTTP status 404"),
            (forged, "does not have the digest"),
            ("http://127.0.0.1:1/a", "the transfer failed"),
            (f"{client.url}/a", "the certificate of the image server is not trusted"),
        ):
            found = await ended(client, await install(client, url))
            assert found["TaskState"] == "Exception"
            assert reason in found["Messages"][-1]["Message"]
        assert (await client.get(OS_VERSION))["Version"].startswith("factory")
        entries = await client.get(f"{SYSTEM}/LogServices/SEL/Entries")
        assert (await client.get(entries["Members"][0]["@odata.id"]))["Severity"] == "Critical"


async def test_a_session_that_its_successor_deleted_is_refused() -> None:
    async with connected(new_bmc()) as client:
        mine = await client.login(context="attempt 1")
        old = client.token
        await client.login(context="attempt 2")
        assert (await client.get(mine))["Context"] == "attempt 1"
        assert (await client.send("DELETE", mine))[0] == 200
        assert (await client.send("DELETE", mine))[0] == 404
        client.token = old
        assert (await client.send("POST", SIMPLE_UPDATE, {"ImageURI": "http://h/a"}))[0] == 401
        assert not client.bmc.card.is_busy


async def test_a_second_update_is_refused_while_one_runs() -> None:
    async with image_server() as images, connected(new_bmc(durations=SLOW)) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        await client.login()
        await install(client, images.url("a.bfb"))
        status, body, _ = await client.send("POST", SIMPLE_UPDATE, {"ImageURI": images.url("a.bfb")})
        assert (status, body["error"]["message"]) == (400, "An update is in progress.")


@pytest.mark.parametrize(
    ("fault", "has_effect"), [("cut", False), ("mute", True), ("hang", False), ("busy", False), ("error", False)]
)
async def test_a_fault_strikes_one_request(fault: RequestFault, *, has_effect: bool) -> None:
    async with image_server() as images, connected(new_bmc(durations=SLOW)) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        await client.login()
        client.bmc.faults.plan(fault, method="POST", within="SimpleUpdate")
        body = {"ImageURI": images.url("a.bfb")}
        if fault in ("busy", "error"):
            status, _, headers = await client.send("POST", SIMPLE_UPDATE, body)
            assert (status, headers.get("Retry-After")) == ((503, "1") if fault == "busy" else (500, None))
        else:
            with pytest.raises((aiohttp.ClientConnectionError, TimeoutError)):
                limit_s = 0.5 if fault == "hang" else WAIT_S
                await client.send("POST", SIMPLE_UPDATE, body, timeout=aiohttp.ClientTimeout(total=limit_s))
        tasks = (await client.get(TASKS))["Members"]
        assert len(tasks) == has_effect
        if has_effect:
            assert images.url("a.bfb") in (await client.get(tasks[0]["@odata.id"]))["Payload"]["JsonBody"]
        else:
            await install(client, images.url("a.bfb"))


async def test_a_body_may_be_garbage() -> None:
    async with connected(new_bmc()) as client:
        await client.login()
        client.bmc.faults.plan("garbage", within="Systems")
        status, body, _ = await client.send("GET", SYSTEM)
        assert (status, str(body)[:6]) == (200, "<html>")
        assert (await client.get(SYSTEM))["Id"] == "Bluefield"


async def test_a_restart_of_the_bmc_forgets_tasks_and_sessions() -> None:
    passed = timedelta()
    bmc = new_bmc(durations=SLOW._replace(bmc_restart_s=60.0), now=lambda: datetime.now(UTC) + passed)
    async with image_server() as images, connected(bmc) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        await client.login()
        task = await install(client, images.url("a.bfb"))
        assert (await client.send("POST", f"{MANAGER}/Actions/Manager.Reset", {"ResetType": "ForceRestart"}))[0] == 200
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.send("GET", "/redfish/v1")
        passed = timedelta(seconds=60)
        assert (await client.send("GET", SYSTEM))[0] == 401
        await client.login()
        assert (await client.send("GET", task))[0] == 404


async def test_a_lost_task_goes_on_without_being_shown() -> None:
    async with image_server() as images, connected(new_bmc()) as client:
        images.files["a.bfb"] = ServedFile(IMAGE)
        await client.login()
        task = await install(client, images.url("a.bfb"))
        client.bmc.tasks.forget(task.rpartition("/")[2])
        assert (await client.send("GET", task))[0] == 404
        async with asyncio.timeout(WAIT_S):
            while (await client.get(OS_VERSION)).get("Version") != INSTALLED:
                await asyncio.sleep(0.02)


async def request_csr(client: Client) -> x509.CertificateSigningRequest:
    names = ("CommonName", "Organization", "OrganizationalUnit", "City", "State")
    body: dict[str, Any] = dict.fromkeys(names, "dpu") | {"Country": "DE", "AlternativeNames": ["127.0.0.1"]}
    body["CertificateCollection"] = {"@odata.id": f"{MANAGER}/NetworkProtocol/HTTPS/Certificates"}
    path = "/redfish/v1/CertificateService/Actions/CertificateService.GenerateCSR"
    status, answer, _ = await client.send("POST", path, body)
    assert status == 200
    return x509.load_pem_x509_csr(answer["CSRString"].encode())


def signed(authority: RedfishBmc, subject: x509.Name, key: CertificatePublicKeyTypes, *more: x509.ExtensionType) -> str:
    """A certificate for a key, signed by the key of a BMC that acts as the authority."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificates.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.now() - timedelta(hours=1))
        .not_valid_after(authority.now() + timedelta(days=1))
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(authority.certificates.key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


async def status_of(client: Client, context: ssl.SSLContext, path: str) -> int:
    """The status of an answer over a new connection without a session."""
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as http, http.get(client.url + path) as answer:
        return answer.status


async def test_a_requested_certificate_replaces_that_of_the_factory() -> None:
    authority = new_bmc()
    trusting = ssl.create_default_context(cadata=authority.certificates.pem()[0].decode())
    async with connected(new_bmc()) as client:
        await client.login()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status_of(client, trusting, "/redfish/v1")
        request = await request_csr(client)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        body: dict[str, Any] = {
            "CertificateString": signed(authority, request.subject, request.public_key(), names),
            "CertificateType": "PEM",
            "CertificateUri": {"@odata.id": f"{MANAGER}/NetworkProtocol/HTTPS/Certificates/1"},
        }
        path = "/redfish/v1/CertificateService/Actions/CertificateService.ReplaceCertificate"
        foreign = {"CertificateString": authority.certificates.pem()[0].decode()}
        assert (await client.send("POST", path, body | foreign))[0] == 400
        assert (await client.send("POST", path, body))[0] == 204
        assert await status_of(client, trusting, "/redfish/v1") == 200


async def test_an_expired_certificate_is_served() -> None:
    bmc = new_bmc()
    bmc.certificates.sign_self(timedelta(days=-1))
    async with connected(bmc) as client:
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="expired"):
            await client.send("GET", "/redfish/v1")


async def test_a_client_certificate_of_a_trusted_authority_needs_no_password(tmp_path: Path) -> None:
    authority = new_bmc()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")])
    pem, key = tmp_path / "client.pem", tmp_path / "client.key"
    pem.write_text(signed(authority, name, authority.certificates.key.public_key()))
    key.write_bytes(authority.certificates.pem()[1])
    async with connected(new_bmc()) as client:
        await client.login()
        context = ssl.create_default_context(cadata=client.bmc.certificates.pem()[0].decode())
        context.load_cert_chain(pem, key)
        assert await status_of(client, context, SYSTEM) == 401
        body = {"CertificateString": authority.certificates.pem()[0].decode(), "CertificateType": "PEM"}
        status, _, headers = await client.send("POST", f"{MANAGER}/Truststore/Certificates", body)
        assert status == 201
        tls = {"Oem": {"OpenBMC": {"AuthMethods": {"TLS": True}}}}
        assert (await client.send("PATCH", "/redfish/v1/AccountService", tls))[0] == 200
        assert await status_of(client, context, SYSTEM) == 200
        assert (await client.send("DELETE", headers["Location"]))[0] == 200
        assert await status_of(client, context, SYSTEM) == 401

"""Certificates are revoked one by one, on all three listeners and open connections; the list fails closed."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path

import aiohttp
import grpc
import pytest
from aiohttp import web
from click.testing import CliRunner
from cryptography import x509

from deploy.cli import cli
from deploy.settings.settings import Address, BadSettings, load_settings
from deploy.tls import revocations
from deploy.tls.certificates import BadCertificates
from deploy.tls.revocations import BYTES_MAX, Revocations, parse_serial, read_serials
from deploy.tls.security import Security
from deploy.web.http import HttpServer
from deploy.web.metrics.exposition import Exposition
from schemas.api import dpuplane_pb2 as pb
from tests.integration.test_tls_serve import secure_plane
from tests.support.certs import CertFiles, CertIssuer
from tests.support.eventually import until
from tests.support.guarded import guarded
from tests.support.guarded_links import agent_of, guarded_relay
from tests.support.planes import run
from tests.support.rule_source import ALLOW, Tables, packed
from tests.support.served import now_ms


def serial_of(cert_files: CertFiles) -> int:
    return x509.load_pem_x509_certificate(cert_files.cert.read_bytes()).serial_number


async def test_only_calls_of_the_revoked_certificate_are_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as plane:
        ann, bob = plane.cert_issuer.issue("operator/ann"), plane.cert_issuer.issue("viewer/bob")
        lost, other = plane.caller(ann), plane.caller(bob)
        await lost.queries.ListZones(pb.ListZonesRequest())
        plane.authenticator.revoke(frozenset({serial_of(ann)}))
        with pytest.raises(grpc.aio.AioRpcError, match="the one of operator/ann is revoked") as caught:
            await lost.queries.ListZones(pb.ListZonesRequest())
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        await other.queries.ListZones(pb.ListZonesRequest())
        new = plane.caller(plane.cert_issuer.issue("operator/ann"))
        await new.queries.ListZones(pb.ListZonesRequest())
        plane.authenticator.revoke(frozenset())
        await lost.queries.ListZones(pb.ListZonesRequest())


async def test_a_call_in_flight_is_refused_before_its_response(tmp_path: Path) -> None:
    async with guarded(tmp_path) as plane:
        vic, ann = plane.cert_issuer.issue("viewer/vic"), plane.caller("operator/ann")
        position = plane.plane.replica.position(plane.plane.replica.partitions("fleet")[0])
        token = f"{plane.plane.replica.log_id}:fleet/0={position + 1}"
        waiting = asyncio.ensure_future(
            plane.caller(vic).queries.ListZones(pb.ListZonesRequest(min_position=token), timeout=60)
        )
        await until(lambda: plane.plane.server.admission.under_way == 1)
        plane.authenticator.revoke(frozenset({serial_of(vic)}))
        await ann.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True))
        with pytest.raises(grpc.aio.AioRpcError, match="the one of viewer/vic is revoked"):
            await waiting


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"more")
        await asyncio.sleep(0.01)


async def test_open_http_connections_of_a_revoked_certificate_are_closed(tmp_path: Path) -> None:
    cert_issuer, listed = CertIssuer(tmp_path / "certs"), tmp_path / "revoked.txt"
    listed.write_text("# nobody yet\n")
    security = Security(cert_issuer.issue("plane/local").certificates, now_ms, listed)
    routes = [web.get("/endless", _endless)]
    server = HttpServer(Address("127.0.0.1", 0), Exposition([]), lambda: "", routes=routes, security=security.http())
    vic = cert_issuer.issue("viewer/vic")
    context = ssl.create_default_context(cafile=str(cert_issuer.authority.cert))
    context.load_cert_chain(vic.cert, vic.key)
    try:
        url = f"https://{await server.start()}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            async with session.get(f"{url}/endless") as feed:
                await feed.content.readexactly(4)
                listed.write_text(f"{serial_of(vic):x}\n")
                assert security.revocations is not None and security.revocations.refresh()
                with pytest.raises(aiohttp.ClientError):
                    async with asyncio.timeout(90):
                        await feed.content.read()
            async with session.get(f"{url}/metrics") as answer:
                assert (answer.status, "is revoked" in await answer.text()) == (401, True)
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == 200
    finally:
        await server.stop()


async def test_only_the_link_of_a_revoked_dpu_is_closed(tmp_path: Path) -> None:
    tables = Tables(["d0", "d1"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with guarded_relay(tmp_path, tables) as served:
        lost, kept = served.cert_issuer.issue("dpu-agent/d0"), served.cert_issuer.issue("dpu-agent/d1")
        async with (
            agent_of("d0", served.address, lost.certificates) as stolen,
            agent_of("d1", served.address, kept.certificates) as honest,
        ):
            await until(lambda: stolen.table == honest.table == tables.table)
            served.security._authenticator.revoke(frozenset({serial_of(lost)}))
            await until(lambda: list(served.relay.zone_devices("z")) == ["d1"])
            before = served.denials.unauthenticated
            await until(lambda: served.denials.unauthenticated > before)
            tables.put(6, {ALLOW: packed("11.0.0.0/8")})
            await until(lambda: honest.table == tables.table)
            assert stolen.table != tables.table


@pytest.mark.parametrize(
    ("text", "serial"),
    [("a1", 0xA1), ("0xA1", 0xA1), ("0a:1B:ff", 0xA1BFF), ("00ff", 0xFF), ("f" * 40, (1 << 160) - 1)],
)
def test_serial_numbers_are_parsed_in_the_formats_of_common_tools(text: str, serial: int) -> None:
    assert parse_serial(text) == serial


@pytest.mark.parametrize("text", ["", "0", "f" * 41, "12g", "a b", "-1", "a:", "a:b", "0a:1b2c", "\u0661"])
def test_an_invalid_serial_number_is_refused(text: str) -> None:
    assert parse_serial(text) is None


def test_a_list_may_have_comments_and_an_invalid_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "revoked.txt"
    file.write_bytes(b"# ours\r\n\r\n  0A:1b  # ann\r\nff\n")
    assert read_serials(file) == {0xA1B, 0xFF}
    file.write_text("ff\n-----BEGIN CERTIFICATE-----\n")
    with pytest.raises(BadCertificates, match=r"revoked.txt: line 2: .* 1 to 40 hexadecimal digits"):
        read_serials(file)
    with pytest.raises(BadCertificates, match=f"at most {BYTES_MAX} bytes"):
        read_serials(Path("/dev/zero"))


def test_an_unreadable_list_keeps_the_last_valid_one_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, given = tmp_path / "revoked.txt", list[frozenset[int]]()
    with pytest.raises(BadCertificates, match="No such file"):
        Revocations(file, given.append)
    file.write_text("a1\n")
    listed = Revocations(file, given.append)
    assert not listed.refresh()
    for damage in (lambda: file.write_text("a1\nno serial\n"), file.unlink):
        damage()
        assert not listed.refresh() and not listed.refresh()
        assert listed.fault.startswith(f"tls_revoked {file}: ") and listed.serials == {0xA1}
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 2
    file.write_text("a1\nb2\n")
    assert listed.refresh()
    assert listed.fault == ""
    assert [sorted(serials) for serials in given] == [[0xA1], [0xA1, 0xB2]]


async def test_the_list_is_checked_continuously(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocations, "CHECK_S", 0.01)
    file = tmp_path / "revoked.txt"
    file.write_text("")
    listed = Revocations(file, lambda _: None)
    opened_page = asyncio.create_task(listed.run())
    file.write_text("a1\n")
    await until(lambda: listed.serials == {0xA1})
    opened_page.cancel()


def test_a_list_without_tls_is_refused() -> None:
    with pytest.raises(BadSettings, match="tls_revoked needs tls_cert, tls_key and tls_client_ca"):
        load_settings({"data": "d", "tls_revoked": "file"}, None, {})


def test_certificates_are_added_to_a_list_by_file_or_serial_number(tmp_path: Path) -> None:
    cert_files, listed = CertIssuer(tmp_path / "certs").issue("operator/ann"), tmp_path / "revoked.txt"
    command = ["certs", "revoke", str(cert_files.cert), "0A:1B", "--list", str(listed)]
    ran = CliRunner().invoke(cli, command)
    assert ran.exit_code == 0, ran.stderr
    assert read_serials(listed) == {serial_of(cert_files), 0xA1B}
    assert "operator/ann, valid until " in listed.read_text()
    written = listed.read_bytes()
    ran = CliRunner().invoke(cli, command)
    assert (ran.exit_code, ran.stdout.count("is listed already"), listed.read_bytes()) == (0, 2, written)
    ran = CliRunner().invoke(cli, ["certs", "show", str(cert_files.cert)])
    assert f"{serial_of(cert_files):x}" in ran.stdout and "REVOKED" not in ran.stdout.upper()
    for name, revoked in (("operator/ann", "yes"), ("operator/bob", "no")):
        file = cert_files.cert if revoked == "yes" else CertIssuer(tmp_path / "others").issue(name).cert
        ran = CliRunner().invoke(cli, ["certs", "show", str(file), "--list", str(listed), "-o", "json"])
        assert json.loads(ran.stdout)["revoked"] == revoked
    listed.write_text("nonsense\n")
    ran = CliRunner().invoke(cli, command)
    assert (ran.exit_code, listed.read_text()) == (1, "nonsense\n")
    assert "line 1" in ran.stderr
    ran = CliRunner().invoke(cli, ["certs", "revoke", "no-such-file", "--list", str(listed.with_name("other"))])
    assert ran.exit_code == 1 and "must be a file or a serial number" in ran.stderr


async def test_an_operator_can_revoke_a_certificate_while_the_plane_runs(tmp_path: Path) -> None:
    listed = tmp_path / "revoked.txt"
    listed.write_text("")
    async with secure_plane(tmp_path, "--tls-revoked", str(listed)) as (plane, authority):
        flags = await authority.issue("operator", "ann")
        server = plane.address("api")
        assert (await run("zones", "list", *flags, server=server)).status == 0
        revoked = await run("certs", "revoke", flags[1], "--list", str(listed))
        assert revoked.status == 0, revoked.stderr
        async with asyncio.timeout(90):
            while (ran := await run("zones", "list", *flags, server=server)).status == 0:
                await asyncio.sleep(0.2)
        assert "operator/ann is revoked" in ran.stderr
        viewer = await authority.issue("viewer", "vic")
        assert "revoked on" not in (await run("status", *viewer, server=server)).stdout
        listed.write_text("no serial\n")
        async with asyncio.timeout(90):
            while "revoked on" not in (ran := await run("status", *viewer, server=server)).stdout:
                await asyncio.sleep(0.2)
        (said,) = (line for line in ran.stdout.splitlines() if line.startswith("revoked on"))
        assert f"tls_revoked {listed}: line 1: 'no serial' must be a serial number" in said
        assert ran.stdout.startswith("verdict") and "revoked certificates not read" in ran.stdout.splitlines()[0]

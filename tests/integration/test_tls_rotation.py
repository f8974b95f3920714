"""Certificates rotate under load and without a restart: no call fails, and old certificates are rejected."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from deploy.tls.certificates import BadCertificates, Certificates
from schemas.api import dpuplane_pb2 as pb
from tests.support.certs import HOUR, CertFiles, CertIssuer
from tests.support.eventually import until
from tests.support.guarded import Guarded, guarded
from tests.support.guarded_links import PATIENT, agent_of, guarded_relay
from tests.support.rule_source import ALLOW, Tables, packed


async def presented(address: str, client: CertFiles) -> int:
    """The serial number of the certificate that a listener presents to a new connection."""
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=str(client.ca))
    context.load_cert_chain(client.cert, client.key)
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(raw).serial_number


def serial_of(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


@asynccontextmanager
async def load_on(plane: Guarded) -> AsyncIterator[list[str]]:
    """Run callers without pause, on new connections or on a lasting one. Yields the errors of their calls."""
    faults: list[str] = []
    done = [0]
    viewer = plane.cert_issuer.issue("viewer/vic")

    async def ask(fresh: bool) -> None:
        caller = plane.caller(viewer)
        while True:
            try:
                await caller.queries.ListZones(pb.ListZonesRequest(), timeout=60)
                done[0] += 1
            except grpc.aio.AioRpcError as error:
                faults.append(f"{error.code()}: {error.details()}")
            if fresh:
                await caller.channel.close(None)
                caller = plane.caller(viewer)

    tasks = [asyncio.create_task(ask(number % 2 == 0)) for number in range(6)]
    try:
        await until(lambda: done[0] > 20)
        yield faults
        enough = done[0] + 50
        await until(lambda: done[0] > enough)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_api_loads_a_new_certificate_under_load_without_failed_calls(tmp_path: Path) -> None:
    async with guarded(tmp_path) as plane:
        viewer = plane.cert_issuer.issue("viewer/watch")
        cert = plane.cert_issuer.folder / "plane@local.pem"
        async with load_on(plane) as faults:
            for version in range(2, 6):
                plane.cert_issuer.issue("plane/local")
                assert plane.certificates.refresh()
                assert plane.certificates.version == version
                assert await presented(plane.plane.address, viewer) == serial_of(cert)
        assert faults == []


async def test_certificates_of_a_removed_authority_are_rejected(tmp_path: Path) -> None:
    new = CertIssuer(tmp_path / "new")
    async with guarded(tmp_path) as plane:
        ca = plane.cert_issuer.authority.cert
        old_only, both = ca.read_bytes(), ca.read_bytes() + new.authority.cert.read_bytes()
        newcomer = new.issue("viewer/new")
        (tmp_path / "old.pem").write_bytes(old_only)
        newcomer = newcomer._replace(ca=tmp_path / "old.pem")  # the certificate of the server stays the old one
        veteran = plane.cert_issuer.issue("viewer/old", ca=tmp_path / "old.pem")
        request = pb.ListZonesRequest()

        async def may(cert_files: CertFiles) -> bool:
            try:
                await plane.caller(cert_files).queries.ListZones(request, timeout=60)
            except grpc.aio.AioRpcError:
                return False
            return True

        assert (await may(newcomer), await may(veteran)) == (False, True)
        ca.write_bytes(both)
        assert plane.certificates.refresh()
        assert (await may(newcomer), await may(veteran)) == (True, True)
        ca.write_bytes(new.authority.cert.read_bytes())
        assert plane.certificates.refresh()
        assert (await may(newcomer), await may(veteran)) == (True, False)


async def test_certificates_of_agents_and_relay_rotate_and_old_ones_are_refused(tmp_path: Path) -> None:
    tables = Tables(["d0"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    expires_ms = 0

    settings = PATIENT._replace(heartbeat_s=2.0)  # heartbeats tell an agent its target
    async with guarded_relay(tmp_path, tables, clock=lambda: expires_ms - 3_000, settings=settings) as served:
        old = served.cert_issuer.issue("dpu-agent/d0", now=datetime.now(UTC) - 2 * HOUR)
        old = old._replace(cert=old.cert.rename(tmp_path / "old.pem"), key=old.key.rename(tmp_path / "old.key"))
        cert_files = served.cert_issuer.issue("dpu-agent/d0")
        expires_ms = cert_files.expires_ms
        certificates = cert_files.certificates
        async with agent_of("d0", served.address, certificates) as agent:
            await until(lambda: agent.table == tables.table)
            served.cert_issuer.issue("plane/relay", "127.0.0.1")
            assert served.certificates.refresh()
            served.cert_issuer.issue("dpu-agent/d0", valid=10 * HOUR)
            assert certificates.refresh()
            first = list(served.relay.zones["z"].sessions)
            await until(lambda: list(served.relay.zones["z"].sessions) not in ([], first))
            tables.put(6, {ALLOW: packed("11.0.0.0/8")})
            await until(lambda: agent.table == tables.table)
            assert await presented(served.address, cert_files) == serial_of(served.cert_files.cert)
            async with agent_of("d0", served.address, old.certificates) as expired:
                await until(lambda: expired._relays._failures > 1)
                assert expired.table != tables.table
            await until(lambda: agent.target[1] == 6)


def test_an_incomplete_rotation_is_not_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert_issuer = CertIssuer(tmp_path)
    cert_files = cert_issuer.issue("plane/local")
    certificates = cert_files.certificates
    in_use = certificates.material
    assert not certificates.refresh()
    spare = CertIssuer(tmp_path / "spare").issue("plane/local")
    key = cert_files.key.read_bytes()
    cert_files.key.write_bytes(spare.key.read_bytes())
    assert not certificates.refresh()
    cert_files.key.write_bytes(b"")
    assert not certificates.refresh()
    cert_files.key.unlink()
    assert not certificates.refresh()
    assert certificates.material == in_use
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 3
    cert_files.key.write_bytes(key)
    assert not certificates.refresh(), "the restored files are the ones in use"
    cert_issuer.issue("plane/local")
    assert certificates.refresh()
    assert certificates.material != in_use


def test_a_rotation_cannot_change_the_principal_of_a_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert_issuer = CertIssuer(tmp_path)
    cert_files = cert_issuer.issue("plane/local")
    certificates = cert_files.certificates
    other = cert_issuer.issue("operator/ann")
    shutil.copy(other.key, cert_files.key)
    shutil.copy(other.cert, cert_files.cert)
    assert not certificates.refresh()
    assert "must name plane/local as before" in caplog.records[-1].__dict__["reason"]


def test_unusable_files_are_named(tmp_path: Path) -> None:
    cert_issuer = CertIssuer(tmp_path)
    cert_files = cert_issuer.issue("plane/local")
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("")
    stranger = CertIssuer(tmp_path / "b").issue("plane/local")
    cases = [
        (CertFiles(tmp_path / "absent", cert_files.key, cert_files.ca), "absent: No such file"),
        (CertFiles(nothing, cert_files.key, cert_files.ca), "nothing.pem"),
        (CertFiles(cert_files.cert, stranger.key, cert_files.ca), "cannot be used together"),
        (CertFiles(cert_files.cert, cert_files.key, nothing), "nothing.pem: has no usable certificate"),
    ]
    for bad, says in cases:
        with pytest.raises(BadCertificates) as caught:
            Certificates(*bad)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_files_are_checked_continuously(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.tls.certificates.CHECK_S", 0.01)
    cert_issuer = CertIssuer(tmp_path)
    certificates = cert_issuer.issue("plane/local").certificates
    watching = asyncio.create_task(certificates.run())
    cert_issuer.issue("plane/local", now=datetime.now(UTC), valid=HOUR)
    await until(lambda: certificates.version == 2)
    watching.cancel()

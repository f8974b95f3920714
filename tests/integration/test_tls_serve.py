"""A plane under mutual TLS as an operator runs it: real processes, and certificates of `dpuplane certs`."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import QueriesStub
from tests.support.planes import Process, Ran, run, serving, started


class Authority:
    """A certificate authority in a folder, used through `dpuplane certs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def issue(self, role: str, name: str, *more: str) -> list[str]:
        """Issue a certificate. Returns the flags of a client that uses it."""
        issued = await run("certs", "issue", role, name, "--dir", str(self.folder), *more)
        assert issued.status == 0, issued.stderr
        stem = self.folder / f"{role}@{name}"
        return ["--tls-cert", f"{stem}.pem", "--tls-key", f"{stem}.key", "--tls-ca", str(self.folder / "ca.pem")]


@asynccontextmanager
async def secure_plane(folder: Path, *flags: str) -> AsyncIterator[tuple[Process, Authority]]:
    authority = Authority(folder / "certs")
    assert (await run("certs", "init", "--dir", str(authority.folder))).status == 0
    cert, key, ca = (await authority.issue("plane", "local"))[1::2]
    files = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
    async with serving("--data", str(folder / "plane"), *files, *flags, stderr=folder / "serve.log") as plane:
        yield plane, authority


async def test_a_fleet_of_separate_processes_works_under_tls(tmp_path: Path) -> None:
    async with secure_plane(tmp_path, "--simulate", "2") as (plane, authority):
        server = plane.address("api")
        operator, viewer = await authority.issue("operator", "ann"), await authority.issue("viewer", "vic")
        simulator = await authority.issue("simulator", "lab")
        joined = await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", *operator, server=server)
        assert joined.status == 0, joined.stderr
        dpus = ("--dpus-per-zone", "3", "--server", server)
        async with started("simulator", "--relay", plane.address("agents"), *dpus, *simulator):
            verified = await until_equal(server, viewer, 3)
        assert verified.status == 0, verified.stderr
        denied = await run("freeze", "--all", *viewer, server=server)
        assert (denied.status, "viewer/vic must have the role" in denied.stderr) == (1, True)
        bare = await run("nodes", "list", server=server)
        assert (bare.status, "give --tls-cert, --tls-key and --tls-ca" in bare.stderr) == (3, True)
        strange = Authority(tmp_path / "elsewhere")
        assert (await run("certs", "init", "--dir", str(strange.folder))).status == 0
        flags = [*(await strange.issue("viewer", "vic"))[:4], *viewer[4:]]
        unknown = await run("nodes", "list", *flags, server=server)
        assert (unknown.status, "each side must trust the other's certificate" in unknown.stderr) == (3, True)
        said = await run("nodes", "list", "--as", "root", *viewer, server=server)
        assert (said.status, "your certificate names the principal, viewer/vic" in said.stderr) == (2, True)
    log = (tmp_path / "serve.log").read_text()
    assert "peer=viewer/vic" in log
    assert "ssl_transport_security" not in log, "a handshake without a valid certificate is not logged"


async def until_equal(server: str, viewer: list[str], dpus: int) -> Ran:
    """Wait until `verify` finds this number of DPUs equal to the log."""
    async with asyncio.timeout(60):
        while True:
            ran = await run("verify", "--output", "json", *viewer, server=server)
            if ran.status == 0 and ran.json()["devices_equal"] == dpus:
                return ran
            await asyncio.sleep(0.2)


async def test_the_agent_of_one_dpu_works_with_its_own_certificate(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as (plane, authority):
        server = plane.address("api")
        operator, agent = await authority.issue("operator", "ann"), await authority.issue("dpu-agent", "d1")
        await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", *operator, server=server)
        registered = await run("dpus", "register", "d1", "--zone", "a", *operator, server=server)
        assert registered.status == 0, registered.stderr
        relay = ("--relay", plane.address("agents"), "--zone", "a", "--dpu", "d1")
        async with started("agent", *relay, *agent):
            assert (await until_equal(server, operator, 1)).status == 0


async def test_a_node_agent_gets_one_refusal_and_leaves_without_naming_its_zone(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as (plane, authority):
        server = plane.address("api")
        operator, agent = await authority.issue("operator", "ann"), await authority.issue("node-agent", "n1")
        refused = await run("nodes", "join", "n1", "--zone", "a", *agent, server=server)
        assert (refused.status, refused.stderr.count("dpuplane zones limit a --create")) == (1, 1), refused.stderr
        await run("nodes", "join", "n1", "--zone", "a", *operator, server=server)
        others = await run("nodes", "leave", "n2", *agent, server=server)
        assert (others.status, "must act for its own node only, not for 'n2'" in others.stderr) == (1, True)
        left = await run("nodes", "leave", "n1", *agent, server=server)
        assert (left.status, left.stdout.strip()) == (0, "done"), left.stderr


async def test_a_running_plane_loads_certificates_written_by_certs_issue(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as (plane, authority):
        viewer = await authority.issue("viewer", "vic")
        held_open = channel(plane.address("api"), viewer)
        queries = QueriesStub(held_open)
        await queries.ListZones(pb.ListZonesRequest())
        await authority.issue("plane", "local")
        log = tmp_path / "serve.log"
        async with asyncio.timeout(90):
            while "new certificates loaded" not in log.read_text():
                await asyncio.sleep(0.05)
        await queries.ListZones(pb.ListZonesRequest())
        assert (await run("zones", "list", *viewer, server=plane.address("api"))).status == 0
        await held_open.close(None)
        assert await plane.stop() == 0


def channel(address: str, flags: list[str]) -> grpc.aio.Channel:
    cert, key, ca = (Path(path).read_bytes() for path in flags[1::2])
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert))


@pytest.mark.parametrize(
    ("role", "says"), [("operator", "names operator/x, must name plane/NAME"), ("node-agent", "must name plane/NAME")]
)
async def test_a_process_with_a_certificate_of_another_role_does_not_serve(
    tmp_path: Path, role: str, says: str
) -> None:
    authority = Authority(tmp_path / "certs")
    await run("certs", "init", "--dir", str(authority.folder))
    cert, key, ca = (await authority.issue(role, "x"))[1::2]
    files = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
    ran = await run("serve", "--data", str(tmp_path / "plane"), "--listen", "127.0.0.1:0", *files)
    assert ran.status == 3
    assert says in ran.stderr


async def test_an_authority_is_created_once_and_its_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    made = await run("certs", "init", "--dir", folder, "--trust-domain", "lab.example")
    assert made.stdout == f"{folder}/ca.pem: authority of spiffe://lab.example\n"
    again = await run("certs", "init", "--dir", folder)
    assert (again.status, "holds an authority already" in again.stderr) == (1, True)
    authority = Authority(Path(folder))
    cert = (await authority.issue("plane", "api-1", "--dns", "api.example.org", "--dns", "10.1.2.3"))[1]
    shown = (await run("certs", "show", cert, "--output", "json")).json()
    assert shown["names"] == ["spiffe://lab.example/plane/api-1"]
    assert shown["hosts"] == ["localhost", "api.example.org", "127.0.0.1", "::1", "10.1.2.3"]
    assert shown["valid"] == "yes"
    for path in sorted(Path(folder).iterdir()):  # noqa: ASYNC240 a handful
        private = path.suffix == ".key"
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == (0 if private else 0o044), path
    for wrong, says in (
        (("node-agent", "n1", "--dns", "a.example"), "host names are for role plane only"),
        (("operator", "../x"), "name: '../x' must be"),
        (("root", "x"), "'root' is not one of"),
    ):
        ran = await run("certs", "issue", *wrong, "--dir", folder)
        assert (ran.status, says in ran.stderr) == (2, True), ran.stderr
    nowhere = await run("certs", "issue", "operator", "x", "--dir", str(tmp_path / "none"))
    assert (nowhere.status, "certs init" in nowhere.stderr) == (1, True)
    key = await run("certs", "show", cert.replace(".pem", ".key"))
    assert (key.status, "must be a certificate" in key.stderr) == (1, True)

"""Redfish over real HTTPS: certificates of BMCs, searches in both address families, and connections that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from random import Random

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from deploy.clock import utc_now
from deploy.tls.authority import Authority
from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.discovery.prober import NotUsable
from drivers.discovery.scan import Scan
from drivers.provisioning.attempts import AttemptSuperseded
from drivers.redfish.answers import decoded
from drivers.redfish.certificates import BmcAuthority, PresentedCertificates, peer_certificate
from drivers.redfish.client import RedfishClient, base_url
from drivers.redfish.prober import RedfishProber
from drivers.redfish.resources import ROOT, SERVICE_ROOT, Link, Request, Root, Task
from drivers.redfish.sessions import Credentials
from drivers.redfish.update_moves import seen_task
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.server import served_bmc
from eventstore.errors import PlaneError
from projections.resources.discovery import Search
from projections.zones.dpus.certificates import AUTHORITY, CERTIFICATE_FACT, ENDS_FACT
from projections.zones.dpus.phases import CONFIG_FIRMWARE, INITIALIZE_INTERFACE, OS_INSTALLING, PREPARE_IMAGE, READY
from tests.support.eventually import EVENTUALLY_S
from tests.support.redfish_steps import FAST, PASSWORD, SERIAL, Steps, served_steps
from tests.support.web_server import listening


def made_bmc(serial: str = SERIAL) -> RedfishBmc:
    return RedfishBmc(Identity(serial), now=utc_now, rng=Random(1), durations=FAST)


@asynccontextmanager
async def steps(host: str = "127.0.0.1") -> AsyncIterator[Steps]:
    async with asyncio.timeout(200), served_steps(made_bmc(), host=host) as found:
        yield found


def authority(folder: Path) -> BmcAuthority:
    made = Authority.make(folder, "test.example", now=datetime.now(UTC), valid=timedelta(days=3_650))
    return BmcAuthority(made.cert.read_bytes(), (folder / "ca.key").read_bytes())


def ms(time: datetime) -> int:
    return int(time.timestamp() * 1_000)


async def served_certificate(dpu: Steps) -> x509.Certificate:
    host = base_url(dpu.dpu.bmc_address).removeprefix("https://")
    return x509.load_der_x509_certificate(await peer_certificate(host))


async def replace_certificate(dpu: Steps) -> None:
    """Give the BMC another certificate that it signed itself. Its listener uses it from the next request on."""
    dpu.bmc.certificates.sign_self(timedelta(days=365))
    await dpu.connect(dpu.dpu.bmc_address).read(ROOT, Root)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_dpu_is_installed_and_fetches_its_image(host: str) -> None:
    async with steps(host) as dpu:
        for phase in (INITIALIZE_INTERFACE, PREPARE_IMAGE, OS_INSTALLING):
            facts = await dpu.do(phase)
        assert dpu.bmc.card.os == facts["os_version"] == "DOCA_2.9.3_BSP_4.9.0"
        assert dpu.updates == 1


async def test_the_certificate_of_the_first_contact_is_the_only_one_that_is_accepted() -> None:
    async with steps() as dpu:
        await dpu.do(INITIALIZE_INTERFACE)
        await dpu.do(CONFIG_FIRMWARE)
        await replace_certificate(dpu)
        with pytest.raises(NeedsOperator, match=r"^certificate: 127.0.0.1:\d+ presents another one than when"):
            await dpu.do(CONFIG_FIRMWARE)
        assert dpu.bmc.requests[-1] == ("GET", ROOT)  # that of replace_certificate: no password was sent


async def test_later_steps_need_no_further_handshake() -> None:
    async with steps() as dpu:
        dpu.presented = PresentedCertificates()
        for phase in (INITIALIZE_INTERFACE, CONFIG_FIRMWARE, CONFIG_FIRMWARE):
            await dpu.do(phase)
        assert dpu.handshakes() == 2  # a look at the certificate, and the connection


async def test_a_replaced_certificate_is_noticed_by_a_process_that_knows_the_former_one() -> None:
    connector = aiohttp.TCPConnector(force_close=True)  # as after a pause in which the connection has ended
    async with steps() as dpu, aiohttp.ClientSession(connector=connector) as session:
        dpu.connect = lambda address: RedfishClient(session, base_url(address))
        dpu.presented = PresentedCertificates()
        await dpu.do(INITIALIZE_INTERFACE)
        await replace_certificate(dpu)
        with pytest.raises(NeedsOperator, match=r"^certificate: 127.0.0.1:\d+ presents another one than when"):
            await dpu.do(CONFIG_FIRMWARE)
        assert dpu.bmc.requests[-1] == ("GET", ROOT)  # that of replace_certificate: no password was sent
        registered_anew = dpu.dpu.facts.pop(CERTIFICATE_FACT)
        assert (await dpu.do(CONFIG_FIRMWARE))[CERTIFICATE_FACT] != registered_anew


async def test_a_bmc_gets_a_certificate_of_the_authority_and_a_new_one_in_time(tmp_path: Path) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        facts = await dpu.do(INITIALIZE_INTERFACE)
        assert facts[CERTIFICATE_FACT] == AUTHORITY
        first = await served_certificate(dpu)
        assert dpu.authority.has_issued(first)
        await dpu.do(CONFIG_FIRMWARE)
        assert await served_certificate(dpu) == first
        later = datetime.now(UTC) + timedelta(days=340)
        dpu.now_ms = lambda: ms(later)
        await dpu.do(CONFIG_FIRMWARE)
        renewed = await served_certificate(dpu)
        assert renewed.not_valid_after_utc > first.not_valid_after_utc
        expired = datetime.now(UTC) + timedelta(days=800)
        dpu.now_ms = lambda: ms(expired)
        await dpu.do(CONFIG_FIRMWARE)
        assert (await served_certificate(dpu)).not_valid_after_utc > expired


async def test_the_certificate_of_a_ready_dpu_is_renewed_and_nothing_else_of_it_is_touched(tmp_path: Path) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        facts = await dpu.do(INITIALIZE_INTERFACE)
        first = await served_certificate(dpu)
        assert facts[ENDS_FACT] == f"{first.not_valid_after_utc:%Y-%m-%d}"
        card, asked = copy(vars(dpu.bmc.card)), len(dpu.bmc.requests)
        assert dict(await dpu.do(READY)) == {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: facts[ENDS_FACT]}
        assert await served_certificate(dpu) == first
        later = datetime.now(UTC) + timedelta(days=340)
        dpu.now_ms = lambda: ms(later)
        facts = await dpu.do(READY)
        renewed = await served_certificate(dpu)
        assert renewed.not_valid_after_utc > first.not_valid_after_utc and dpu.authority.has_issued(renewed)
        assert facts[ENDS_FACT] == f"{renewed.not_valid_after_utc:%Y-%m-%d}"
        sent = {path.rpartition("/")[2] for method, path in [*dpu.bmc.requests][asked:] if method in ("POST", "PATCH")}
        assert sent == {"Sessions", "CertificateService.GenerateCSR", "CertificateService.ReplaceCertificate"}
        assert vars(dpu.bmc.card) == card
        assert dpu.updates == 0


async def test_a_visit_may_end_at_any_call_or_lose_an_answer_and_the_next_one_leaves_a_new_certificate(
    tmp_path: Path,
) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        dpu.presented = PresentedCertificates()
        await dpu.do(INITIALIZE_INTERFACE)
        now = datetime.now(UTC)
        dpu.now_ms = lambda: ms(now)
        dpu.enter(READY)
        for calls in range(1, 100):
            now += timedelta(days=340)
            with suppress(AttemptSuperseded):
                await dpu.run(stop_after=calls)
                break
            await renewed_again(dpu, now)
        assert calls > 10, "the checks of a visit with a renewal"
        for within in ("GenerateCSR", "ReplaceCertificate"):
            now += timedelta(days=340)
            dpu.bmc.faults.plan("mute", within=within)
            with pytest.raises(Unreachable):
                await dpu.run()
            await renewed_again(dpu, now)


async def renewed_again(dpu: Steps, now: datetime) -> None:
    """Run attempts until one is not disturbed by what the last one left. The certificate lasts then."""
    async with asyncio.timeout(EVENTUALLY_S):
        while True:
            with suppress(Unreachable):  # while the web server of the BMC restarts
                facts = await dpu.run()
                break
    certificate = await served_certificate(dpu)
    assert certificate.not_valid_after_utc > now + timedelta(days=300)
    assert facts[ENDS_FACT] == f"{certificate.not_valid_after_utc:%Y-%m-%d}"


async def test_a_certificate_of_a_ready_dpu_that_cannot_be_renewed_needs_a_person_in_time(tmp_path: Path) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        await dpu.do(INITIALIZE_INTERFACE)
        dpu.authority = BmcAuthority(dpu.authority.pem)
        later = datetime.now(UTC) + timedelta(days=345)
        dpu.now_ms = lambda: ms(later)
        assert ENDS_FACT in await dpu.do(READY)
        last = datetime.now(UTC) + timedelta(days=355)
        dpu.now_ms = lambda: ms(last)
        with pytest.raises(NeedsOperator, match=r"^certificate: that of .* ends on .*; the plane has no bmc_ca_key$"):
            await dpu.do(READY)


async def test_a_ready_dpu_with_a_pinned_certificate_is_left_alone() -> None:
    async with steps() as dpu:
        await dpu.do(INITIALIZE_INTERFACE)
        first = await served_certificate(dpu)
        assert ENDS_FACT not in dpu.dpu.facts
        assert await dpu.do(READY) == {ENDS_FACT: ""}
        assert await served_certificate(dpu) == first


async def test_a_bmc_that_lost_its_certificate_of_the_authority_needs_a_person(tmp_path: Path) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        await dpu.do(INITIALIZE_INTERFACE)
        await replace_certificate(dpu)
        with pytest.raises(NeedsOperator, match=r"^certificate: that of 127.0.0.1:\d+ is no longer of bmc_ca"):
            await dpu.do(CONFIG_FIRMWARE)


async def test_without_the_key_of_the_authority_an_expired_certificate_needs_a_person(tmp_path: Path) -> None:
    async with steps() as dpu:
        dpu.authority = authority(tmp_path / "ca")
        await dpu.do(INITIALIZE_INTERFACE)
        dpu.authority = BmcAuthority(dpu.authority.pem)
        await dpu.do(CONFIG_FIRMWARE)
        expired = datetime.now(UTC) + timedelta(days=800)
        dpu.now_ms = lambda: ms(expired)
        with pytest.raises(NeedsOperator, match=r"^certificate: that of 127.0.0.1:\d+ expired on \d{4}-"):
            await dpu.do(CONFIG_FIRMWARE)


async def test_a_socket_that_hangs_is_given_up_and_tried_again() -> None:
    async with steps() as dpu:
        await dpu.do(INITIALIZE_INTERFACE)
        patient, dpu.timing = dpu.timing, dpu.timing._replace(call_s=2.0)
        dpu.bmc.faults.plan("hang", within="/Systems")
        with pytest.raises(Unreachable, match=r"no response within 2 s"):
            await dpu.do(CONFIG_FIRMWARE)
        dpu.timing = patient
        await dpu.do(CONFIG_FIRMWARE)
        dpu.bmc.faults.plan("garbage", within="/Systems")
        with pytest.raises(TaskFailed, match="returned an invalid resource"):
            await dpu.do(CONFIG_FIRMWARE)


async def test_a_search_finds_the_dpus_of_a_range_in_both_families() -> None:
    async with asyncio.timeout(200), aiohttp.ClientSession() as session:

        async def credentials() -> Credentials:
            return Credentials("", PASSWORD, "0penBmc")

        prober = RedfishProber(lambda address: RedfishClient(session, base_url(address)), credentials)
        async with served_bmc(made_bmc("MT1")) as first:
            port = int(first.url.rpartition(":")[2])
            async with (
                served_bmc(made_bmc("MT2"), host="127.0.0.3", port=port),
                served_bmc(made_bmc("MT6"), host="::1", port=port),
            ):
                loopback = Search(ip_address("127.0.0.1"), ip_address("127.0.0.4"), port, 60_000, 4)
                scan = Scan(loopback, ())
                await scan.run(prober)
                found = {each.address: each.probed.serial for each in scan.found}
                assert found == {"127.0.0.1": "MT1", "127.0.0.3": "MT2"}
                assert (scan.tried, scan.faults) == (4, [])
                assert first.bmc.requests[0] == ("GET", SERVICE_ROOT)
                six = await prober.probe("::1", port)
                assert six is not None
                assert (six.serial, six.bmc_address) == ("MT6", f"redfish://[::1]:{port}")
                assert first.bmc.accounts.users["root"].password == PASSWORD
                first.bmc.accounts.users["root"].password = "changed by a person"
                with pytest.raises(NotUsable, match="refuses the password of user 'root'"):
                    await prober.probe("127.0.0.1", port)


async def test_a_web_server_in_a_range_gets_no_password() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"Product": "a printer"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)

    async def credentials() -> Credentials:
        raise AssertionError("a password was asked for")

    async with listening(app) as base, aiohttp.ClientSession() as session:
        prober = RedfishProber(lambda address: RedfishClient(session, base), credentials)
        port = int(base.rpartition(":")[2])
        assert await prober.probe("127.0.0.1", port) is None  # it does not speak TLS


async def test_redirections_are_not_followed_and_endless_answers_are_cut() -> None:
    asked = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({})

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 16))

    other = web.Application()
    other.router.add_route("*", "/{path:.*}", elsewhere)
    async with listening(other) as target:

        async def redirect(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"{target}/latest/meta-data")

        app = web.Application()
        app.router.add_get(ROOT, redirect)
        app.router.add_get("/endless", endless)
        async with listening(app) as base, aiohttp.ClientSession() as session:
            client = RedfishClient(session, base)
            with pytest.raises(TaskFailed, match="HTTP 307"):
                await client.read(ROOT, Root)
            with pytest.raises(TaskFailed, match="more than 1048576 bytes"):
                await client.read("/endless", Root)
            with pytest.raises(TaskFailed, match="not a path of its own"):
                await client.read("//169.254.169.254/latest", Root)
    assert asked == []


async def test_no_header_and_no_path_of_a_bmc_raises_another_error() -> None:
    """An unexpected exception would end the provisioner, and again after each start."""

    async def answer(request: web.Request) -> web.Response:
        members = [{"@odata.id": path} for path in ("http://[", "/\u0000", "/a b", "//h", "x", "/\u20ac?#")]
        return web.json_response({"Members": members}, headers={"Location": "http://[", "X-Auth-Token": "\u20ac"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as base, aiohttp.ClientSession() as session:
        client = RedfishClient(session, base)
        answered = await client.send(Request("POST", ROOT, {}))
        assert (answered.location, answered.status) == ("", 200)
        client.token = answered.token
        for path in await client.members(Link(ROOT)):
            with suppress(PlaneError):
                await client.read(path, Root)
    for number in ("1e999", "-1e400", "NaN", '"x"'):
        with suppress(TaskFailed):
            seen_task(decoded("bmc", f'{{"PercentComplete": {number}}}'.encode(), Task))


@pytest.mark.parametrize("address", ["redfish://", "redfish://h/x", "redfish://root@h", "redfish:h", "https://h", ""])
def test_an_address_in_another_form_needs_a_person(address: str) -> None:
    with pytest.raises(NeedsOperator, match=r"^bmc_address: .* must be redfish://HOST:PORT"):
        base_url(address)


@pytest.mark.parametrize("host", ["a..b", "h:99999", "h:port", "[::1"])
async def test_an_address_that_cannot_be_dialed_needs_a_person(host: str) -> None:
    with pytest.raises((NeedsOperator, Unreachable), match=r"^(bmc_address|device): "):
        await peer_certificate(host)
    async with aiohttp.ClientSession() as session:
        with pytest.raises((NeedsOperator, Unreachable), match=r"^(bmc_address|device): "):
            await RedfishClient(session, f"https://{host}").read(ROOT, Root)

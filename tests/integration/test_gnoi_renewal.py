"""The plane renews the certificates of management services by Rotate of gNOI: gnxi's server, over mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.gnoi import renewal
from drivers.gnoi.client import connected
from drivers.gnoi.reboot_moves import Asked
from drivers.gnoi.renewal import is_due
from drivers.provisioning.attempts import AttemptSuperseded
from drivers.redfish.certificates import VALID, names_host, peer_certificate
from projections.zones.dpus.certificates import AUTHORITY, CERTIFICATE_FACT, ENDS_FACT
from projections.zones.dpus.phases import INITIALIZE_INTERFACE, OS_INSTALLING, READY
from schemas.openconfig import cert_pb2
from tests.support.eventually import EVENTUALLY_S
from tests.support.gnoi.service import DAY, HOST, Identity, Service, identity_in, served
from tests.support.gnoi.steps import GnoiSteps

HOUR = timedelta(hours=1)
CALLS_MAX = 40
"""More calls than a step with a renewal makes."""


@pytest.fixture
async def service(gnoi_identity: Identity) -> AsyncIterator[Service]:
    async with served(gnoi_identity) as found:
        yield found


@pytest.fixture
def steps(service: Service) -> GnoiSteps:
    """The steps of a DPU whose certificate ends within a third of its time."""
    ends_soon(service.identity)
    return GnoiSteps(service)


def ends_soon(identity: Identity) -> None:
    identity.serve(now=datetime.now(UTC) - 20 * HOUR, valid=24 * HOUR)


async def presented(service: Service) -> x509.Certificate:
    return x509.load_der_x509_certificate(await peer_certificate(service.address))


async def test_a_certificate_that_ends_soon_is_replaced_by_one_of_the_authority(steps: GnoiSteps) -> None:
    before = await presented(steps.service)
    facts = await steps.do(INITIALIZE_INTERFACE)
    after = await presented(steps.service)
    assert steps.service.identity.trust.has_issued(after)
    assert names_host(after, HOST)
    assert after.public_key() != before.public_key()
    assert after.not_valid_after_utc > datetime.now(UTC) + VALID - HOUR
    assert (facts[CERTIFICATE_FACT], facts[ENDS_FACT]) == (AUTHORITY, f"{after.not_valid_after_utc:%Y-%m-%d}")
    assert (await steps.service.state()).rotated == 1


async def test_a_certificate_that_lasts_is_left_alone(service: Service) -> None:
    steps, before = GnoiSteps(service), await presented(service)
    facts = await steps.do(INITIALIZE_INTERFACE)
    assert await presented(service) == before
    assert facts[ENDS_FACT] == f"{before.not_valid_after_utc:%Y-%m-%d}"
    assert (await service.state()).rotated == 0


async def test_an_attempt_may_end_at_any_message_and_its_successor_leaves_one_new_certificate(
    steps: GnoiSteps,
) -> None:
    """A device whose stream ends has its old certificate again, and lets the successor begin."""
    for calls in range(1, CALLS_MAX):
        ends_soon(steps.service.identity)
        before, rotated = await presented(steps.service), (await steps.service.state()).rotated
        steps.enter(INITIALIZE_INTERFACE)
        try:
            await steps.run(stop_after=calls)
            assert rotated > 0, "the first attempts ended before the end of the rotation"
            return
        except AttemptSuperseded:
            async with asyncio.timeout(EVENTUALLY_S):
                while (await steps.service.state()).rotated == rotated:
                    with suppress(Unreachable):  # until the device has noticed that the other stream has ended
                        await steps.run()
        after = await presented(steps.service)
        assert after != before
        assert not is_due(after, datetime.now(UTC))
        assert (await steps.service.state()).rotated == rotated + 1
    pytest.fail("the step makes more calls than expected")


@pytest.mark.parametrize(("outcome", "kept"), [("mute", 1), ("undo", 0)])
async def test_after_a_lost_answer_the_device_is_trusted_with_either_certificate(
    steps: GnoiSteps, outcome: str, kept: int
) -> None:
    before = await presented(steps.service)
    await steps.service.plan_rotation(outcome)
    with pytest.raises(Unreachable, match=r"^device: .* did not renew its certificate: the answer is lost$"):
        await steps.do(INITIALIZE_INTERFACE)
    assert (await presented(steps.service) != before, (await steps.service.state()).rotated) == (bool(kept), kept)
    await steps.run()
    assert await presented(steps.service) != before
    assert (await steps.service.state()).rotated == 1


async def test_a_device_that_does_not_present_its_new_certificate_is_set_back(
    steps: GnoiSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "PRESENTED_S", 0.5)
    before = await presented(steps.service)
    await steps.service.plan_rotation("keep")
    with pytest.raises(TaskFailed, match=r"^certificate: .* accepted a new one, and does not present it$"):
        await steps.do(INITIALIZE_INTERFACE)
    assert await presented(steps.service) == before
    async with asyncio.timeout(EVENTUALLY_S):
        while await presented(steps.service) == before:
            with suppress(Unreachable):  # until the device has noticed that the other stream has ended
                await steps.run()


async def test_a_refused_certificate_fails_the_step_with_the_reason(steps: GnoiSteps) -> None:
    await steps.service.plan_rotation("refuse")
    with pytest.raises(TaskFailed, match=r"^device: .* failed to renew its certificate: .*cannot be stored"):
        await steps.do(INITIALIZE_INTERFACE)


async def test_a_rotation_of_somebody_else_is_waited_for(steps: GnoiSteps) -> None:
    trust = steps.service.identity.trust
    async with connected(steps.dpu.bmc_address, steps.credentials()) as other:
        stream = other.rotate()
        parameters = cert_pb2.CSRParams(type=cert_pb2.CT_X509, key_type=cert_pb2.KT_RSA, country="XX")
        generate = cert_pb2.GenerateCSRRequest(csr_params=parameters, certificate_id="dms")
        await stream.write(cert_pb2.RotateCertificateRequest(generate_csr=generate))
        request = (await stream.read()).generated_csr.csr.csr
        theirs = trust.sign(request, steps.service.address, datetime.now(UTC) - VALID + HOUR)
        loaded = cert_pb2.Certificate(type=cert_pb2.CT_X509, certificate=theirs)
        load = cert_pb2.LoadCertificateRequest(certificate=loaded)
        await stream.write(cert_pb2.RotateCertificateRequest(load_certificate=load))
        assert (await stream.read()).WhichOneof("rotate_response") == "load_certificate"
        with pytest.raises(Unreachable, match=r"^device: .* did not renew its certificate: .*in progress"):
            await steps.do(INITIALIZE_INTERFACE)
        stream.cancel()


async def test_a_certificate_is_not_renewed_while_a_reboot_may_be_under_way(steps: GnoiSteps) -> None:
    steps.enter(OS_INSTALLING)
    steps.dpu = replace(steps.dpu, task=Asked(steps.dpu.attempt + 1, 0, "00000000").text())
    facts = await steps.run()
    assert ENDS_FACT not in facts
    assert (await steps.service.state()).rotated == 0


# --- Ready DPUs


async def test_the_certificate_of_a_ready_dpu_is_renewed_and_nothing_else_of_it_is_touched(steps: GnoiSteps) -> None:
    before, state = await presented(steps.service), await steps.service.state()
    facts = await steps.do(READY)
    after = await presented(steps.service)
    assert steps.service.identity.trust.has_issued(after) and after.public_key() != before.public_key()
    assert dict(facts) == {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: f"{after.not_valid_after_utc:%Y-%m-%d}"}
    assert await steps.service.state() == msgspec.structs.replace(state, rotated=1)
    assert not steps.progress
    await steps.run()
    assert await presented(steps.service) == after


async def test_a_visit_may_end_at_any_message_and_the_next_one_leaves_one_new_certificate(steps: GnoiSteps) -> None:
    for calls in range(1, CALLS_MAX):
        ends_soon(steps.service.identity)
        rotated = (await steps.service.state()).rotated
        steps.enter(READY)
        try:
            await steps.run(stop_after=calls)
            assert rotated > 0, "the first visits ended before the end of the rotation"
            return
        except AttemptSuperseded:
            async with asyncio.timeout(EVENTUALLY_S):
                while (await steps.service.state()).rotated == rotated:
                    with suppress(Unreachable):  # until the device has noticed that the other stream has ended
                        await steps.run()
        assert (await steps.service.state()).rotated == rotated + 1
    pytest.fail("the visit makes more calls than expected")


async def test_another_card_is_not_renewed(steps: GnoiSteps) -> None:
    steps.dpu = replace(steps.dpu, serial="another")
    before = await presented(steps.service)
    with pytest.raises(NeedsOperator, match=r"^serial: the device has"):
        await steps.do(READY)
    assert await presented(steps.service) == before


async def test_the_end_of_a_certificate_that_the_plane_cannot_renew_is_reported_and_needs_a_person_in_time(
    steps: GnoiSteps,
) -> None:
    """Without the key of the authority, another program renews certificates, and may fail."""
    steps.renews = False
    identity, now = steps.service.identity, datetime.now(UTC)
    identity.serve(valid=60 * DAY)
    facts = await steps.do(READY)
    assert dict(facts) == {ENDS_FACT: f"{now + 60 * DAY:%Y-%m-%d}"}
    identity.serve(now=now - 55 * DAY, valid=60 * DAY)
    with pytest.raises(NeedsOperator, match=r"^certificate: that of .* ends on .*, and was not renewed: the plane has"):
        await steps.do(READY)
    identity.serve(valid=DAY)
    assert await steps.do(READY) == {ENDS_FACT: ""}, (
        "a certificate for a day is renewed so often that its end says nothing"
    )
    assert (await steps.service.state()).rotated == 0


async def test_an_expired_certificate_needs_a_person(steps: GnoiSteps) -> None:
    steps.service.identity.serve(now=datetime.now(UTC) - 25 * HOUR, valid=24 * HOUR)
    with pytest.raises(NeedsOperator, match=r"^certificate: that of .* is not accepted: CERTIFICATE_VERIFY_FAILED"):
        await steps.do(READY)


async def test_a_service_that_shows_its_certificate_only_to_clients_with_one_is_driven_all_the_same(
    gnoi_identity: Identity,
) -> None:
    """Before TLS 1.3 a connection without a client certificate ends in the handshake."""
    async with served(gnoi_identity, tls12=True) as service:
        with pytest.raises(Unreachable):
            await presented(service)
        steps = GnoiSteps(service)
        steps.renews = False
        facts = await steps.do(INITIALIZE_INTERFACE)
        assert facts["serial"] and ENDS_FACT not in facts


async def test_a_certificate_of_another_authority_is_no_fact_and_fails_a_visit(
    steps: GnoiSteps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that shows the certificate is not verified: a man in the middle may present one without end."""
    other = identity_in(tmp_path)
    other.serve(valid=90 * DAY)
    pem = x509.load_pem_x509_certificate(other.served.cert.read_bytes())

    async def in_between(host: str) -> bytes:
        return pem.public_bytes(Encoding.DER)

    monkeypatch.setattr(renewal, "peer_certificate", in_between)
    steps.renews = False
    assert ENDS_FACT not in await steps.do(INITIALIZE_INTERFACE)
    with pytest.raises(TaskFailed, match=r"^certificate: .* presented one that is not of bmc_ca"):
        await steps.do(READY)

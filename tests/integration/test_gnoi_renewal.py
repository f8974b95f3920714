"""The plane renews the certificates of management services by Rotate of gNOI: gnxi's server, over mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from msgspec.structs import replace

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.gnoi import renewal
from drivers.gnoi.boots import Asked
from drivers.gnoi.client import connected
from drivers.gnoi.renewal import ENDS_FACT, is_due
from drivers.provisioning.attempts import AttemptSuperseded
from drivers.redfish.certificates import AUTHORITY, FACT, VALID, names_host, peer_certificate
from projections.zones.dpus.phases import INITIALIZE_INTERFACE, OS_INSTALLING
from schemas.openconfig import cert_pb2
from tests.support.eventually import EVENTUALLY_S
from tests.support.gnoi.service import HOST, Identity, Service, served
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
    assert (facts[FACT], facts[ENDS_FACT]) == (AUTHORITY, f"{after.not_valid_after_utc:%Y-%m-%d}")
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

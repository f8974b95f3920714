"""Steps of a DPU on a management service that speaks gNMI and gNOI, over mutual TLS: gnxi's servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.gnoi.client import connected
from drivers.gnoi.credentials import ClientFiles, FileCredentials, IssuedCredentials, no_credentials
from projections.zones.dpus.phases import DPU_CONFIG, INITIALIZE_INTERFACE, OS_INSTALLING, PREPARE_IMAGE, REBOOTING
from schemas.openconfig import os_pb2
from tests.support.child_programs import free_ports
from tests.support.eventually import EVENTUALLY_S
from tests.support.gnoi.packages import package
from tests.support.gnoi.service import Identity, Service, identity_in, served
from tests.support.gnoi.steps import CHUNK, IMAGE, GnoiSteps, now_ms
from tests.support.gnoi.wire import breakable


@pytest.fixture
async def service(gnoi_identity: Identity) -> AsyncIterator[Service]:
    async with served(gnoi_identity) as found:
        yield found


@pytest.fixture
def steps(service: Service) -> GnoiSteps:
    return GnoiSteps(service)


async def test_a_dpu_is_installed_step_by_step(steps: GnoiSteps) -> None:
    assert (await steps.do(INITIALIZE_INTERFACE))["serial"] == steps.dpu.serial
    await steps.do(PREPARE_IMAGE)
    facts = await steps.do(OS_INSTALLING)
    assert (facts["image"], facts["os_version"], facts["boot_id"]) == ("image/1", IMAGE, "1")
    assert await steps.do(DPU_CONFIG)
    await steps.do(REBOOTING)
    state = await steps.service.state()
    assert (state.running, state.config.encode()) == (IMAGE, steps.configuration)
    assert (state.installs, state.restarts) == (1, 1)
    texts = [text for text, _ in steps.progress]
    assert texts[0] == f"transfer of {IMAGE}"
    assert "secret" not in str(steps.progress)
    assert [percent for text, percent in steps.progress if text.startswith("transfer")][-1] >= 75


async def test_an_image_that_the_device_has_is_not_sent_again(steps: GnoiSteps) -> None:
    await steps.do(OS_INSTALLING)
    sent, steps.configuration = steps.sent_bytes, b"another"
    await steps.do(OS_INSTALLING)
    state = await steps.service.state()
    assert (steps.sent_bytes, state.installs, state.config) == (sent, 2, "another")


@pytest.mark.parametrize("phase", [OS_INSTALLING, REBOOTING])
async def test_a_request_whose_answer_was_lost_is_found_by_reading(steps: GnoiSteps, phase: str) -> None:
    await steps.service.plan("mute")
    await steps.do(phase)
    state = await steps.service.state()
    assert state.installs + state.restarts == 1


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (package(IMAGE, is_compatible=False), NeedsOperator, f"image: the device refuses '{IMAGE}': INCOMPATIBLE, Uns"),
        (b"no package", NeedsOperator, f"image: the device refuses '{IMAGE}': PARSE_FAIL"),
        (package(IMAGE, is_whole=False), TaskFailed, f"image: the device refuses '{IMAGE}': INTEGRITY_FAIL"),
        (package("other"), TaskFailed, f"image: the device found 'other' in the package of '{IMAGE}'"),
    ],
)
async def test_an_image_that_the_device_refuses_is_named(
    steps: GnoiSteps, content: bytes, error: type[Exception], said: str
) -> None:
    steps.content = content
    with pytest.raises(error, match=f"^{said}"):
        await steps.do(OS_INSTALLING)
    assert (await steps.service.state()).installs == 0


async def test_an_installation_of_somebody_else_is_waited_for(steps: GnoiSteps) -> None:
    async with connected(steps.dpu.bmc_address, steps.credentials()) as other:
        stream = other.install()
        await stream.write(os_pb2.InstallRequest(transfer_request=os_pb2.TransferRequest(version="theirs")))
        assert (await stream.read()).WhichOneof("response") == "transfer_ready"
        with pytest.raises(Unreachable, match=f"^image: the device refuses '{IMAGE}': INSTALL_IN_PROGRESS"):
            await steps.do(OS_INSTALLING)
        stream.cancel()
    async with asyncio.timeout(EVENTUALLY_S):
        while not (await steps.service.state()).installs:
            with suppress(Unreachable):  # until the device has noticed that the other one is gone
                await steps.run()


async def test_a_transfer_whose_connection_breaks_is_repeated_and_the_device_boots_once(service: Service) -> None:
    async with breakable(service.address) as wire:
        steps = GnoiSteps(service, wire.address)
        steps.on_chunk = lambda: wire.cut() if steps.sent_bytes > CHUNK else None
        with pytest.raises(Unreachable, match=r"^device: .* did not receive"):
            await steps.do(OS_INSTALLING)
        assert CHUNK < steps.sent_bytes < len(steps.content)
        steps.on_chunk = lambda: None
        await steps.run()
        state = await service.state()
        assert (state.installs, state.running) == (1, IMAGE)


async def test_a_device_that_takes_nothing_holds_up_the_reads_of_its_image(service: Service) -> None:
    """What is read from the image store fits into the buffers of one connection, however large the image is."""
    async with breakable(service.address) as wire:
        steps = GnoiSteps(service, wire.address)
        steps.calls = steps.calls._replace(call_s=EVENTUALLY_S)
        steps.content = package(IMAGE, 64 * CHUNK)
        steps.on_chunk = lambda: wire.hold() if steps.sent_bytes == CHUNK else None
        running = asyncio.create_task(steps.do(OS_INSTALLING))
        async with asyncio.timeout(EVENTUALLY_S):
            while steps.sent_bytes <= CHUNK:
                await asyncio.sleep(0.05)
            before = 0
            while before < steps.sent_bytes:
                before = steps.sent_bytes
                await asyncio.sleep(1.0)
        assert not running.done() and steps.sent_bytes < len(steps.content) / 2
        wire.release()
        await running
        assert (await service.state()).running == IMAGE
        assert steps.sent_bytes == len(steps.content)


async def test_an_activation_is_asked_once_although_every_connection_breaks_in_it(service: Service) -> None:
    """The log knows that the device may have been asked. The next process reads what became of it."""
    async with breakable(service.address) as wire:
        steps = GnoiSteps(service, wire.address)
        steps.on_progress = lambda text: wire.cut() if text.startswith("reboot asked") else None
        await steps.do(OS_INSTALLING)
        state = await service.state()
        assert (state.installs, state.running) == (1, IMAGE)


async def test_a_reboot_that_never_ends_fails_the_step(steps: GnoiSteps) -> None:
    steps.timing = steps.timing._replace(boot_s=1.0)
    await steps.service.plan("hang")
    with pytest.raises(TaskFailed, match=r"^task: the reboot has not ended after 1 s"):
        await steps.do(OS_INSTALLING)


async def test_a_reboot_that_somebody_else_began_is_waited_for(steps: GnoiSteps) -> None:
    await steps.service.plan("hang")
    async with connected(steps.dpu.bmc_address, steps.credentials()) as other:
        await other.reboot()
    with pytest.raises(Unreachable, match=r"^device: it reboots, and nothing here asked for it"):
        await steps.do(OS_INSTALLING)
    assert (await steps.service.state()).installs == 0


async def test_a_service_that_does_not_listen_is_tried_again_later(steps: GnoiSteps) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    steps.dpu = replace(steps.dpu, bmc_address=f"gnoi://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match=rf"^device: 127.0.0.1:{port} did not say how it is set"):
        await steps.do(INITIALIZE_INTERFACE)


async def test_a_certificate_of_the_device_that_cannot_be_trusted_needs_an_operator(
    steps: GnoiSteps, tmp_path: Path, gnoi_peer: Path
) -> None:
    identity, now = steps.service.identity, datetime.now(UTC)
    accepted = r"^certificate: that of 127.0.0.1:\d+ is not accepted: "
    identity.serve(now=now - timedelta(days=2), valid=timedelta(days=1))
    with pytest.raises(NeedsOperator, match=accepted + "CERTIFICATE_VERIFY_FAILED.*expired"):
        await steps.do(INITIALIZE_INTERFACE)
    identity.serve("127.0.0.2")
    with pytest.raises(NeedsOperator, match=accepted):
        await steps.do(INITIALIZE_INTERFACE)
    identity.serve()
    await steps.do(INITIALIZE_INTERFACE)
    foreign = identity_in(tmp_path / "foreign")
    steps.credentials = IssuedCredentials(foreign.trust, now_ms)
    with pytest.raises(NeedsOperator, match=accepted + "CERTIFICATE_VERIFY_FAILED"):
        await steps.do(INITIALIZE_INTERFACE)


async def test_a_certificate_of_the_plane_that_the_device_does_not_trust_needs_an_operator(
    steps: GnoiSteps, tmp_path: Path
) -> None:
    """And one that was renewed in its files is used by the next attempt."""
    identity, foreign = steps.service.identity, identity_in(tmp_path / "foreign")
    files = ClientFiles(foreign.served.cert, foreign.served.key)
    steps.credentials = FileCredentials(identity.trust, files)
    with pytest.raises(NeedsOperator, match=r"^certificate: 127.0.0.1:\d+ does not accept that of the plane"):
        async with asyncio.timeout(EVENTUALLY_S):
            while True:
                with suppress(Unreachable):  # a connection that breaks may hide why
                    await steps.do(INITIALIZE_INTERFACE)
    for renewed, file in zip(identity.served, files, strict=True):
        file.write_bytes(renewed.read_bytes())
    await steps.do(INITIALIZE_INTERFACE)
    files.key.unlink()
    with pytest.raises(NeedsOperator, match=r"^bmc_client_cert: .* cannot be read"):
        await steps.do(INITIALIZE_INTERFACE)
    steps.credentials = no_credentials
    with pytest.raises(NeedsOperator, match=r"^certificate: gNOI needs the settings bmc_ca"):
        await steps.do(INITIALIZE_INTERFACE)

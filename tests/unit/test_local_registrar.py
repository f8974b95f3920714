"""Statements of simulated devices within a process equal those through the API."""

from __future__ import annotations

import pytest

from commands.requests import dpus
from deploy.process.local_registrar import LocalRegistrar
from eventstore.avro.codec import decode
from schemas.api import dpuplane_pb2 as pb
from schemas.events import DpuRegistered, Envelope
from tests.support.memory_plane import plane

pytestmark = pytest.mark.virtual_clock


async def test_a_local_registration_has_the_subject_of_one_through_the_api() -> None:
    """All events of a DPU have one subject, whether it was registered locally or through the API."""
    request = pb.RegisterDpuRequest(zone="z1", dpu="d1", node="n1", serial="s1", bmc_address="simulated:d1")
    wanted = dpus.register(request, lambda subject: Envelope("", subject, "", 0)).event
    async with plane() as made:
        registrar = LocalRegistrar(await made.add("r1"), now_ms=made.now_ms, rng=made.rng())
        await registrar.register("z1", "d1", "n1", "s1", "simulated:d1")
        events = [decode(record.value) for record in made.log.contents.records[made.partition("z1")]]
        (stated,) = [event for event in events if isinstance(event, DpuRegistered)]
        assert stated.envelope.subject == wanted.envelope.subject == "d1"

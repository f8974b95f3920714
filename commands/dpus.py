"""Requests about DPUs, as statements. Their key is the zone, as for its nodes: one partition decides both."""

from __future__ import annotations

from commands.shapes import BadRequest, Enveloping, Statement, require
from eventstore.log import ZONES
from projections import names
from schemas.api import dpuplane_pb2 as pb
from schemas.events import DpuRegistered, LifecycleRequested


def register(request: pb.RegisterDpuRequest, envelope: Enveloping) -> Statement:
    require(names.check_zone("zone", request.zone))
    require(names.check_name("dpu", request.dpu))
    if request.node:
        require(names.check_name("node", request.node))
    require(names.check_text("serial", request.serial))
    require(names.check_bmc_address("bmc_address", request.bmc_address))
    event = DpuRegistered(
        envelope=envelope(request.dpu),
        zone=request.zone,
        dpu=request.dpu,
        node=request.node,
        serial=request.serial,
        bmc_address=request.bmc_address,
    )
    return Statement(ZONES, request.zone, event)


def requesting(request: pb.RequestLifecycleRequest, envelope: Enveloping, zone: str) -> LifecycleRequested:
    """What is wanted of a DPU in a zone, which is the request's or where it was found. Raises BadRequest."""
    verb = _verb(request)
    require(names.check_name("dpu", request.dpu))
    require(names.check_text("image", request.image))
    if request.image and verb != "provision":
        raise BadRequest(f"image: {names.shown(request.image)} goes with provision only, not with {verb}")
    return LifecycleRequested(envelope(request.dpu), zone, request.dpu, verb, request.image)


def stated(event: LifecycleRequested) -> Statement:
    """The record, now that its zone is known. Raises BadRequest."""
    require(names.check_zone("zone", event.zone))
    return Statement(ZONES, event.zone, event)


def _verb(request: pb.RequestLifecycleRequest) -> str:
    verbs = pb.RequestLifecycleRequest.Verb
    if request.request == verbs.unspecified or request.request not in verbs.values():
        raise BadRequest(f"request: {int(request.request)} must be one of {', '.join(verbs.keys()[1:])}")
    return verbs.Name(request.request)

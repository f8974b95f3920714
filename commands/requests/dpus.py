"""Requests about DPUs, as events. Their key is the zone, as for its nodes: one partition decides both.

A BMC or a provisioner could be made to connect to an address in a request, so images and BMC addresses have stricter
rules here than in the folds. An image must be a name that the BMC looks up, never an address. A BMC's address must not
contain credentials, and must not be the address of a cloud's metadata service, which serves credentials.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from commands.requests.validation import EnvelopeFactory, InvalidRequest, NewEvent, require, require_zone
from eventstore.log import ZONES
from projections import field_checks
from projections.zones.dpus.install_interfaces import check_bmc_address
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import LIFECYCLE_VERBS
from schemas.events import DpuRegistered, LifecycleRequested

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}(?:[:@][A-Za-z0-9][A-Za-z0-9._:+-]{0,123})?")
_VERBS = {number: name for name, number in LIFECYCLE_VERBS.items()}
_METADATA = frozenset(map(ip_address, ("169.254.169.254", "169.254.170.2", "fd00:ec2::254")))
_NAT64 = IPv6Network("64:ff9b::/96")
"""The prefix of addresses that a NAT64 gateway translates to the IPv4 address in their last 32 bits."""


def register(request: pb.RegisterDpuRequest, envelope: EnvelopeFactory) -> NewEvent:
    require(field_checks.check_zone("zone", request.zone))
    require(field_checks.check_name("dpu", request.dpu))
    if request.node:
        require(field_checks.check_name("node", request.node))
    require(field_checks.check_text("serial", request.serial))
    require(check_bmc_address("bmc_address", request.bmc_address) or _check_dialed(request.bmc_address))
    event = DpuRegistered(
        envelope=envelope(request.dpu),
        zone=request.zone,
        dpu=request.dpu,
        node=request.node,
        serial=request.serial,
        bmc_address=request.bmc_address,
    )
    return NewEvent(ZONES, request.zone, event)


def request_lifecycle(request: pb.RequestLifecycleRequest, envelope: EnvelopeFactory) -> NewEvent:
    """Request a lifecycle change of a DPU. The caller names the zone, because the zone is the key: a command that is
    repeated under its id must go to the same partition.
    """
    verb = _verb(request)
    require_zone(request.zone, "GetDpu")
    require(field_checks.check_name("dpu", request.dpu))
    require(field_checks.check_text("image", request.image) or _check_image(request.image))
    if request.image and verb != "provision":
        raise InvalidRequest(f"image: {field_checks.quoted(request.image)} goes with provision only, not with {verb}")
    event = LifecycleRequested(envelope(request.dpu), request.zone, request.dpu, verb, request.image)
    return NewEvent(ZONES, request.zone, event)


def _verb(request: pb.RequestLifecycleRequest) -> str:
    verb = _VERBS.get(request.verb)
    if verb is None:
        raise InvalidRequest(f"verb: {int(request.verb)} must be one of {', '.join(_VERBS.values())}")
    return verb


def _check_image(image: str) -> str | None:
    if not image or (_IMAGE.fullmatch(image) and ".." not in image):
        return None
    return (
        f"image: {field_checks.quoted(image)} must be an image name such as bf-bundle-2.10 or"
        " bf-bundle@sha256:1f2e, with"
        " letters, digits, '.', '_', '+' and '-' only, not an address"
    )


def _check_dialed(address: str) -> str | None:
    """The fault of an address that a provisioner is to connect to."""
    if "://" not in address:
        return None
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").encode("ascii").decode()  # a resolver would read Unicode digits as ASCII
    except ValueError:
        return f"bmc_address: {field_checks.quoted(address)} must be a URL such as redfish://HOST:PORT"
    if "@" in parts.netloc:
        return (
            f"bmc_address: {field_checks.quoted(address)} must not contain credentials: the log would keep them"
            " for ever"
        )
    if _is_metadata(host):
        return (
            f"bmc_address: {field_checks.quoted(address)} must be the address of a BMC, not of a cloud metadata service"
        )
    return None


def _is_metadata(host: str) -> bool:
    address = _address_of(host.partition("%")[0].removesuffix("."))
    return address in _METADATA


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a resolver reads in this text, or None if it is a name to look up."""
    try:
        address = ip_address(host)
    except ValueError:
        return _parsed_as_c(host)
    if not isinstance(address, IPv6Address):
        return address
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.ipv4_mapped or address


def _parsed_as_c(host: str) -> IPv4Address | None:
    """Parse an IPv4 address as C's inet_aton does: it accepts fewer than four parts, and octal or hexadecimal parts."""
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None

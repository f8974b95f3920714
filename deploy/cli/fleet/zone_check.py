"""Whether the plane has a zone: an unknown zone in a command may be a mistyped name."""

from __future__ import annotations

from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import NotFoundError, Refused
from schemas.api import dpuplane_pb2 as pb


def is_known(client: Client, zone: str) -> bool:
    """Whether the zone has a node or a DPU, or labels or limits."""
    try:
        known_zone(client, zone)
    except Refused:
        return False
    return True


def known_zone(client: Client, zone: str, *, otherwise: str = "") -> pb.Zone:
    """Query a zone. Raises Refused for an unknown zone; `otherwise` is advice at the end of the message."""
    try:
        found: pb.Zone = client.query("GetZone", pb.GetZoneRequest(zone=zone))
    except NotFoundError as error:
        raise Refused("; ".join(filter(None, (error.message, otherwise)))) from error
    return found

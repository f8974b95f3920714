"""`dpuplane freeze` and `dpuplane thaw`: the emergency brake."""

from __future__ import annotations

import click

from deploy.cli.answers import exit_status, finish
from deploy.cli.client import Client
from deploy.cli.failures import NotKnown
from deploy.cli.known import ZONE
from deploy.cli.options import commands
from projections.names import shown
from schemas.api import dpuplane_pb2 as pb

_ZONE = click.argument("zone", type=ZONE, default="")


@click.command()
@_ZONE
@commands
def freeze(*, client: Client, output: str, zone: str) -> None:
    """Stop every write to devices of a zone, or of all zones if none is given. The log goes on.

    Example: dpuplane freeze rack7
    """
    answer: pb.Answer = client.command("Freeze", pb.FreezeRequest(zone=zone))
    if zone and exit_status(answer) == 0 and not _is_inhabited(client, zone):
        click.echo(f"zone: {shown(zone)} has no node and no DPU; it is frozen from its first one on", err=True)
    finish(answer, output)


@click.command()
@_ZONE
@commands
def thaw(*, client: Client, output: str, zone: str) -> None:
    """End the freeze of a zone, or the freeze of all if none is given.

    Example: dpuplane thaw rack7
    """
    finish(client.command("Thaw", pb.ThawRequest(zone=zone)), output)


def _is_inhabited(client: Client, zone: str) -> bool:
    try:
        found: pb.Zone = client.query("ShowZone", pb.ShowZoneRequest(zone=zone))
    except NotKnown:
        return False
    return found.nodes + found.dpus > 0

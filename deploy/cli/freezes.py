"""`dpuplane freeze` and `dpuplane thaw`: the emergency brake."""

from __future__ import annotations

import click

from deploy.cli.answers import exit_status, finish
from deploy.cli.client import Client
from deploy.cli.failures import Refused
from deploy.cli.known import ZONE
from deploy.cli.options import commands
from deploy.cli.zone_check import is_known
from projections.names import shown
from schemas.api import dpuplane_pb2 as pb

_ZONE = click.argument("zone", type=ZONE, default="")


@click.command()
@_ZONE
@click.option("--create", is_flag=True, help="Freeze a zone that nobody knows too, from its first node or DPU on.")
@commands
def freeze(*, client: Client, output: str, zone: str, create: bool) -> None:
    """Stop every write to devices of a zone, or of all zones if none is given. The log goes on.

    A zone that nobody knows is refused, as its name may be mistyped. `dpuplane zones show` tells what waits in a frozen
    zone.

    Example: dpuplane freeze rack7
    """
    known = not zone or is_known(client, zone)
    if not known and not create:
        raise Refused(f"zone: {shown(zone)} is not known; --create freezes it from its first node or DPU on")
    answer: pb.Answer = client.command("Freeze", pb.FreezeRequest(zone=zone))
    if not known and exit_status(answer) == 0:
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

"""`dpuplane freeze` and `dpuplane thaw`: the emergency brake."""

from __future__ import annotations

import click

from deploy.cli.answers import finish
from deploy.cli.client import Client
from deploy.cli.options import commands
from schemas.api import dpuplane_pb2 as pb


@click.command()
@click.argument("zone", default="")
@commands
def freeze(*, client: Client, output: str, zone: str) -> None:
    """Stop every write to devices of a zone, or of all zones if none is given. The log goes on.

    Example: dpuplane freeze rack7
    """
    finish(client.command("Freeze", pb.FreezeRequest(zone=zone)), output)


@click.command()
@click.argument("zone", default="")
@commands
def thaw(*, client: Client, output: str, zone: str) -> None:
    """End the freeze of a zone, or the freeze of all if none is given.

    Example: dpuplane thaw rack7
    """
    finish(client.command("Thaw", pb.ThawRequest(zone=zone)), output)

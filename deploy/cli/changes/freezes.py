"""`dpuplane freeze` and `dpuplane thaw`: stop and resume all writes to devices."""

from __future__ import annotations

import click

from deploy.cli.fleet.zone_check import is_known
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import ZONE
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.options import command_options
from deploy.cli.shared.results import exit_status, finish
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb

_ZONE = click.argument("zone", type=ZONE, required=False)
_ALL = click.option("--all", "all_zones", is_flag=True, help="Every zone, including those created later.")


def _check_one(zone: str | None, all_zones: bool) -> str:
    """The zone, empty for all zones. Raises UsageError unless either a zone or --all is given."""
    if (zone is not None) == all_zones:
        raise click.UsageError("give a zone, or --all for every zone" + (", and not both" if all_zones else ""))
    return zone or ""


@click.command()
@_ZONE
@_ALL
@click.option("--create", is_flag=True, help="Also freeze an unknown zone, from its first node or DPU on.")
@command_options
def freeze(*, client: Client, output: str, zone: str | None, all_zones: bool, create: bool) -> None:
    """Stop every write to devices of a zone, or of all zones (--all). The log goes on.

    An unknown zone is refused, because its name may be mistyped. `dpuplane zones show` lists what waits in a frozen
    zone.

    Example: dpuplane freeze rack7
    """
    name = _check_one(zone, all_zones)
    if all_zones and create:
        raise click.UsageError("--create is for one zone that is not known: leave it out with --all")
    known = all_zones or is_known(client, name)
    if not known and not create:
        raise Refused(f"zone: {quoted(name)} is not known; --create freezes it from its first node or DPU on")
    answer: pb.CommandResult = client.command("FreezeWrites", pb.FreezeWritesRequest(zone=name, all_zones=all_zones))
    if not known and exit_status(answer) == 0:
        click.echo(f"zone: {quoted(name)} has no node and no DPU; it is frozen from its first one on", err=True)
    finish(answer, output)


@click.command()
@_ZONE
@_ALL
@command_options
def thaw(*, client: Client, output: str, zone: str | None, all_zones: bool) -> None:
    """End the freeze of a zone, or the one freeze of every zone (--all).

    Example: dpuplane thaw rack7
    """
    name = _check_one(zone, all_zones)
    finish(client.command("ThawWrites", pb.ThawWritesRequest(zone=name, all_zones=all_zones)), output)

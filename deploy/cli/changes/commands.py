"""`dpuplane commands`: the outcome of a command whose response was lost."""

from __future__ import annotations

import click

from deploy.cli.changes.holds import of_the_command
from deploy.cli.shared import param_types
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import list_all_pages, show_options
from deploy.cli.shared.output import Output
from deploy.cli.shared.results import finish
from schemas.api import dpuplane_pb2 as pb


@click.group()
def commands() -> None:
    """Look up commands by id. Repeated commands with one id take effect at most once.

    Example: dpuplane commands show 0197b2a4-7c00-7000-8000-000000000001
    """


@commands.command()
@click.argument("command_id", callback=param_types.command_id)
@show_options
def show(*, client: Client, output: Output, command_id: str) -> None:
    """Show the outcome of a command. An unknown outcome becomes definite by itself within minutes.

    If an id was used for several concurrent commands, the outcome in each partition of the log is listed.

    Example: dpuplane commands show 0197b2a4-7c00-7000-8000-000000000001
    """
    answer: pb.CommandResult = client.query("GetCommand", pb.GetCommandRequest(command_id=command_id))
    found = list_all_pages(client, "ListHolds", pb.ListHoldsRequest(), pb.ListHoldsResponse, "holds")
    parts = [hold for hold in of_the_command(found.holds, command_id) if hold.command_id != command_id]
    if parts:
        said = f"it is part of an import; {len(parts)} holds of other parts are open"
        click.echo(f"{said}: dpuplane holds list --command {command_id}", err=True)
    finish(answer, output.format)

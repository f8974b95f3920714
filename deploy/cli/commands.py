"""`dpuplane commands`: what became of a command whose answer was lost."""

from __future__ import annotations

import click

from deploy.cli import values
from deploy.cli.answers import finish
from deploy.cli.client import Client
from deploy.cli.options import looks_back
from schemas.api import dpuplane_pb2 as pb


@click.group()
def commands() -> None:
    """Commands: each has an id, and takes effect at most once under it.

    Example: dpuplane commands show 0197b2a4-7c00-7000-8000-000000000001
    """


@commands.command()
@click.argument("command_id", callback=values.command_id)
@looks_back
def show(*, client: Client, output: str, command_id: str) -> None:
    """Show what became of a command. Unknown becomes definite by itself, within minutes.

    If an id was used for several commands at once, the outcome in each partition of the log is listed.

    Example: dpuplane commands show 0197b2a4-7c00-7000-8000-000000000001
    """
    finish(client.query("ShowCommand", pb.ShowCommandRequest(command_id=command_id)), output)

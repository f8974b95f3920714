"""`dpuplane networks`: staged changes of the networks of a source."""

from __future__ import annotations

import click

from deploy.cli.changes.staging import print_staged
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import command_options, show_options
from deploy.cli.shared.output import Output
from deploy.cli.shared.results import finish
from schemas.api import dpuplane_pb2 as pb

_Verb = pb.RequestStagesRequest.Verb
_SOURCE = click.argument("source", default="local")


@click.group()
def networks() -> None:
    """Watch, pause, resume and undo changes of interfaces, chains and address pools in stages. SOURCE is the cluster
    that has the objects, by default this plane.

    The annotation dpuplane.io/network-stages of the DPFOperatorConfig, such as 1,1%,10%,100%, states the stages of all
    changes, dpuplane.io/network-bake-time how long each lasts at least, and dpuplane.io/network-failure-budget how many
    DPUs may fail before a change is held.

    Example: dpuplane networks status
    """


@networks.command()
@_SOURCE
@show_options
def status(*, client: Client, output: Output, source: str) -> None:
    """Show the last staged change of networks: its stage, its DPUs, and why it is held.

    Example: dpuplane networks status
    """
    found: pb.StagedChange = client.query("GetStagedChange", pb.GetStagedChangeRequest(source=source))
    print_staged(found, output, "source", source)


@networks.command()
@_SOURCE
@command_options
def pause(*, client: Client, output: str, source: str) -> None:
    """Pause the staged change of networks: no further stage begins.

    Example: dpuplane networks pause
    """
    _request(client, output, source, _Verb.VERB_PAUSE)


@networks.command()
@_SOURCE
@command_options
def resume(*, client: Client, output: str, source: str) -> None:
    """Resume a staged change that is paused, or held because too many DPUs failed. Those do not count again.

    Example: dpuplane networks resume
    """
    _request(client, output, source, _Verb.VERB_RESUME)


@networks.command()
@_SOURCE
@command_options
def undo(*, client: Client, output: str, source: str) -> None:
    """Roll back the staged change of networks: all DPUs return to the networks before it, at once. It has effect until
    the objects change: they stay as they are, so change the manifests as well.

    Example: dpuplane networks undo
    """
    _request(client, output, source, _Verb.VERB_UNDO)


def _request(client: Client, output: str, source: str, verb: pb.RequestStagesRequest.Verb) -> None:
    finish(client.command("RequestStages", pb.RequestStagesRequest(source=source, verb=verb)), output)

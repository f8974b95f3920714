"""Staged changes: the options of the commands that begin one of a policy, and the commands that control it, which
`networks` has, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import POLICY
from deploy.cli.shared.options import command_options, show_options
from deploy.cli.shared.output import Output
from deploy.cli.shared.param_types import Seconds
from deploy.cli.shared.results import finish
from projections.sizes import MAX_BAKE_MS
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import short_name
from schemas.api.times import to_duration

_Verb = pb.RequestStagesRequest.Verb
_OPTIONS = (
    click.option(
        "--stages",
        metavar="SIZE,SIZE,...",
        help="Change the DPUs in stages: the share that has the change after each stage, as a number or percentage, or"
        " KEY=VALUE for the DPUs of all zones with a label. The last one is 100%.",
    ),
    click.option(
        "--bake-time",
        type=Seconds(0, MAX_BAKE_MS / 1_000),
        default=0.0,
        help="Least duration of each stage, in seconds or with a unit, such as 10m.",
    ),
    click.option(
        "--failure-budget",
        default="0",
        show_default=True,
        metavar="SIZE",
        help="Hold the change if more DPUs than this number or percentage fail: they refuse the table, go back to an"
        " older one, or do not report it in time.",
    ),
)


def staging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that may begin a staged change."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def staging_of(stages: str | None, bake_time: float, failure_budget: str) -> pb.Staging | None:
    """The stages that the options give; None without `--stages`. Raises UsageError."""
    if stages is None:
        if bake_time or failure_budget != "0":
            raise click.UsageError("--bake-time and --failure-budget need --stages")
        return None
    sizes = [size.strip() for size in stages.split(",")]
    return pb.Staging(stages=sizes, bake_time=to_duration(round(bake_time * 1_000)), failure_budget=failure_budget)


@click.command()
@show_options
def status(*, client: Client, output: Output) -> None:
    """Show the last staged change of a policy: its stage, its DPUs, and why it is held.

    Example: dpuplane policies status
    """
    found: pb.StagedChange = client.query("GetStagedChange", pb.GetStagedChangeRequest())
    print_staged(found, output, "policy", found.policy)


def print_staged(found: pb.StagedChange, output: Output, kind: str, name: str) -> None:
    """Print a staged change of a policy or of the networks of a source: what it is of, and its name."""

    def print_text() -> None:
        phase = short_name(pb.StagedChange.Phase.DESCRIPTOR.values_by_number[found.phase])
        stage = f"{found.stage}/{len(found.stages)}" + (f" ({found.stages[found.stage - 1]})" if found.stage else "")
        heads = (kind, "phase", "stage", "dpus", "installed", "waiting", "failed", "since")
        counts = (found.dpus, found.installed, found.waiting, len(found.failed))
        cells = (name, phase, stage, *counts, out.time_text(found.stage_time))
        out.print_table(heads, [cells], headers=output.headers)
        if found.message:
            click.echo(found.message)

    output.print_one(found, name, print_text)


@click.command()
@click.argument("name", type=POLICY)
@command_options
def pause(*, client: Client, output: str, name: str) -> None:
    """Pause the staged change of a policy: no further stage begins.

    Example: dpuplane policies pause web
    """
    _request(client, output, name, _Verb.VERB_PAUSE)


@click.command()
@click.argument("name", type=POLICY)
@command_options
def resume(*, client: Client, output: str, name: str) -> None:
    """Resume a staged change that is paused, or held because too many DPUs failed. Those do not count again.

    Example: dpuplane policies resume web
    """
    _request(client, output, name, _Verb.VERB_RESUME)


@click.command()
@click.argument("name", type=POLICY)
@command_options
def undo(*, client: Client, output: str, name: str) -> None:
    """Roll back the staged change of a policy: all DPUs return to the policy before it, at once.

    Example: dpuplane policies undo web
    """
    _request(client, output, name, _Verb.VERB_UNDO)


COMMANDS: Sequence[click.Command] = (status, pause, resume, undo)
"""The commands that `dpuplane policies` gets from this module."""


def _request(client: Client, output: str, name: str, verb: pb.RequestStagesRequest.Verb) -> None:
    finish(client.command("RequestStages", pb.RequestStagesRequest(policy=name, verb=verb)), output)

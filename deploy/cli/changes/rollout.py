"""`dpuplane rollout`: the rollouts of DPUSets and DPUDeployments, in the grammar of `kubectl rollout`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deploy.cli.resources.arguments import OBJECTS
from deploy.cli.resources.kinds import Named, full_kind, named_objects, object_name
from deploy.cli.resources.manifests import DEFAULT_NAMESPACE
from deploy.cli.resources.options import namespace_option
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import command_options, show_options
from deploy.cli.shared.output import Output
from deploy.cli.shared.results import finish
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import short_name

_KINDS = ("DPUSet", "DPUDeployment")
_OBJECT = click.argument("objects", nargs=-1, required=True, metavar="KIND/NAME", type=OBJECTS)
_Verb = pb.RequestRolloutRequest.Verb


@click.group()
def rollout() -> None:
    """Watch, pause, resume and undo the rollouts of DPUSets and DPUDeployments.

    Example: dpuplane rollout status dpudeployment/services -n dpf
    """


@rollout.command()
@_OBJECT
@namespace_option
@show_options
def status(*, client: Client, output: Output, objects: Sequence[str], namespace: str) -> None:
    """Show how far a rollout is: its wave, its DPUs by state, and what it waits for. `dpuplane wait KIND/NAME
    --for=condition=DPUsUpdated` waits for its end.

    Example: dpuplane rollout status dpuset/rack-7 -n dpf
    """
    named = _named(objects)
    found = _rollout(client, named, namespace)

    def print_text() -> None:
        heads = ("dpuset", "state", "wave", "dpus", "updated", "updating", "failed", "outdated", "unavailable")
        out.print_table(heads, [_cells(each) for each in found.sets], headers=output.headers)
        for each in found.sets:
            if each.message:
                click.echo(each.message)

    output.print_one(found, object_name(named.kind, named.name), print_text)


@rollout.command()
@_OBJECT
@namespace_option
@show_options
def history(*, client: Client, output: Output, objects: Sequence[str], namespace: str) -> None:
    """List the revisions of a rollout: the last ten templates, when each began and ended, and who stated it.

    Example: dpuplane rollout history dpuset/rack-7 -n dpf
    """
    named = _named(objects)
    found = _rollout(client, named, namespace)

    def print_text() -> None:
        heads = ("dpuset", "revision", "began", "ended", "result", "by", "template")
        rows = [_revision_cells(each, revision) for each in found.sets for revision in each.revisions]
        out.print_table(heads, rows, headers=output.headers)

    output.print_one(found, object_name(named.kind, named.name), print_text)


@rollout.command()
@_OBJECT
@namespace_option
@command_options
def pause(*, client: Client, output: str, objects: Sequence[str], namespace: str) -> None:
    """Pause a rollout: no further DPU gets another image. DPUs that are being installed go on, and new DPUs get their
    first installation.

    Example: dpuplane rollout pause dpuset/rack-7 -n dpf
    """
    request = pb.RequestRolloutRequest(name=_name(_named(objects), namespace), verb=_Verb.VERB_PAUSE)
    _request(client, output, request)


@rollout.command()
@_OBJECT
@namespace_option
@command_options
def resume(*, client: Client, output: str, objects: Sequence[str], namespace: str) -> None:
    """Resume a rollout that is paused, or held because too many DPUs failed. Those do not count again.

    Example: dpuplane rollout resume dpuset/rack-7 -n dpf
    """
    request = pb.RequestRolloutRequest(name=_name(_named(objects), namespace), verb=_Verb.VERB_RESUME)
    _request(client, output, request)


@rollout.command()
@_OBJECT
@click.option(
    "--to-revision", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="0 is the one before."
)
@namespace_option
@command_options
def undo(*, client: Client, output: str, objects: Sequence[str], namespace: str, to_revision: int) -> None:
    """Return to an earlier revision, in waves and within the same limits. It has effect until the template of the
    DPUSet changes: the object itself stays as it is, so change the manifest as well.

    Example: dpuplane rollout undo dpuset/rack-7 -n dpf --to-revision 3
    """
    name = _name(_named(objects), namespace)
    _request(client, output, pb.RequestRolloutRequest(name=name, verb=_Verb.VERB_UNDO, revision=to_revision))


def _named(objects: Sequence[str]) -> Named:
    """The DPUSet or DPUDeployment of the arguments. Raises UsageError."""
    named = named_objects(objects)
    if len(named) != 1 or not named[0].name:
        raise click.UsageError("give one KIND/NAME, such as dpuset/rack-7")
    if named[0].kind.name not in _KINDS:
        raise click.UsageError(f"{named[0].kind.name} has no rollout; the kinds with rollouts are {', '.join(_KINDS)}")
    return named[0]


def _name(named: Named, namespace: str) -> pb.ResourceName:
    return pb.ResourceName(kind=full_kind(named.kind), namespace=namespace or DEFAULT_NAMESPACE, name=named.name)


def _rollout(client: Client, named: Named, namespace: str) -> pb.Rollout:
    found: pb.Rollout = client.query("GetRollout", pb.GetRolloutRequest(name=_name(named, namespace)))
    return found


def _request(client: Client, output: str, request: pb.RequestRolloutRequest) -> None:
    answer: pb.CommandResult = client.command("RequestRollout", request)
    if output == "table" and answer.outcome == pb.OUTCOME_DONE:
        kind, word = request.name.kind, short_name(_Verb.DESCRIPTOR.values_by_number[request.verb])
        click.echo(f"{kind.lower()}/{request.name.name} {_DONE[word]}{answer.reason and f': {answer.reason}'}")
        return
    finish(answer, output)


_DONE = {"pause": "paused", "resume": "resumed", "undo": "rolled back"}


def _cells(each: pb.SetRollout) -> Sequence[object]:
    state = short_name(pb.SetRollout.State.DESCRIPTOR.values_by_number[each.state])
    wave = f"{each.wave}/{len(each.waves)} ({each.waves[each.wave - 1]})"
    unavailable = f"{each.unavailable} (at most {each.max_unavailable})"
    return (each.name, state, wave, each.dpus, each.updated, each.updating, each.failed, each.outdated, unavailable)


def _revision_cells(each: pb.SetRollout, revision: pb.RolloutRevision) -> Sequence[object]:
    result = revision.result or "under way"
    times = out.time_text(revision.begin_time), out.time_text(revision.end_time)
    return (each.name, revision.revision, *times, result, revision.actor or "-", revision.template)

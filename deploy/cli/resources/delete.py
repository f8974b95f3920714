"""`dpuplane delete`: objects by name, or those of manifests."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deploy.cli.resources.arguments import OBJECTS
from deploy.cli.resources.kept_secrets import remove
from deploy.cli.resources.kinds import Named, full_kind, named_objects, object_name
from deploy.cli.resources.manifest_files import files_option, read_files
from deploy.cli.resources.manifests import DEFAULT_NAMESPACE, Manifests
from deploy.cli.resources.options import namespace_option
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import REFUSED, Refused
from deploy.cli.shared.options import command_options
from deploy.cli.shared.results import exit_status, merged_result, results_of
from deploy.serialization import message_to_dict
from projections.field_checks import printable
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

_REQUEST_OBJECTS = 1_000


@click.command(
    epilog="""\b
Examples: dpuplane delete bfb bf-bundle -n dpf
          dpuplane delete -f manifests"""
)
@click.argument("objects", nargs=-1, metavar="[KIND NAME...]", type=OBJECTS)
@files_option(required=False)
@namespace_option
@click.option("--ignore-not-found", is_flag=True, help="Do not fail for objects that do not exist.")
@command_options
def delete(
    *,
    client: Client,
    output: str,
    objects: Sequence[str],
    files: Sequence[str],
    recursive: bool,
    namespace: str,
    ignore_not_found: bool,
) -> None:
    """Delete objects by name, or the objects of manifests. An object that others refer to stays until the last of them
    is gone.
    """
    if bool(objects) == bool(files):
        raise click.UsageError("either KIND NAME... or -f must be given")
    found = _read(files, namespace, recursive=recursive) if files else None
    if found is None:
        named = _of_words(objects, namespace)
    else:
        named = [(Named(each.kind, each.name), each.namespace) for each in found.objects]
    parts = [named[start : start + _REQUEST_OBJECTS] for start in range(0, len(named), _REQUEST_OBJECTS)]
    if len(parts) > 1:
        client.use_one_command_id()
    answers, missing = [], 0
    for part in parts:
        request = pb.DeleteResourcesRequest(
            resources=[pb.ResourceName(kind=full_kind(each.kind), namespace=at, name=each.name) for each, at in part]
        )
        answer: pb.CommandResult = client.command("DeleteResources", request)
        names = ["/".join(("local", full_kind(each.kind), at, each.name)) for each, at in part]
        for (each, _), item in zip(part, results_of(names, answer), strict=True):
            is_missing = item.outcome == pb.OUTCOME_UNCHANGED and bool(item.reason)
            missing += is_missing and not ignore_not_found
            if output == "table" and not (is_missing and ignore_not_found):
                _print_line(each, item, is_missing=is_missing)
        answers.append((names, answer))
    whole = merged_result(answers) if answers else pb.CommandResult()
    if found is not None and found.secrets:
        _remove_secrets(client, found, output)
    if output != "table":
        out.print_value(message_to_dict(whole), output)
    click.get_current_context().exit(exit_status(whole) or (REFUSED if missing else 0))


def _of_words(objects: Sequence[str], namespace: str) -> list[tuple[Named, str]]:
    named = named_objects(objects)
    if not all(each.name for each in named):
        raise click.UsageError("NAME: must be given after KIND")
    return [(each, namespace or DEFAULT_NAMESPACE if each.kind.is_namespaced else "") for each in dict.fromkeys(named)]


def _remove_secrets(client: Client, found: Manifests, output: str) -> None:
    """Remove the Secrets that the server keeps; the others are passed over."""
    removed = {*remove(client, found.secrets)}
    for each in found.secrets:
        if each.key not in removed:
            click.echo(f"passed over: {printable(each.note)}", err=True)
        elif output == "table":
            click.echo(f"secret/{each.name} deleted")


def _read(files: Sequence[str], namespace: str, *, recursive: bool) -> Manifests:
    """The objects of manifests, which need not be valid otherwise. Raises Refused."""
    found = read_files(files, namespace, recursive=recursive, is_checked=False)
    secrets = {each.note for each in found.secrets}
    for passed_over in found.passed_over:
        if passed_over not in secrets:
            click.echo(f"passed over: {printable(passed_over)}", err=True)
    for fault in found.faults:
        click.echo(printable(fault), err=True)
    if found.faults:
        raise Refused("the files have faults, so nothing was deleted")
    if not found.objects and not found.secrets:
        raise Refused("the files have no object of a kind that the plane has")
    return found


def _print_line(named: Named, item: pb.ItemResult, *, is_missing: bool) -> None:
    name = object_name(named.kind, named.name)
    if is_missing:
        click.echo(f"{name} does not exist", err=True)
    elif item.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED):
        click.echo(f"{name} {f'is being deleted: {item.note}' if item.note else 'deleted'}")
    else:
        click.echo(f"{name} {outcome_name(item.outcome)}: {item.reason}", err=True)

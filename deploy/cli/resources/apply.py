"""`dpuplane apply` and `dpuplane diff`: the objects of manifests.

Every object is checked here, and by the server in a dry run against the present objects, before anything is applied. So
a faulty file changes nothing, and all its faults are reported at once.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from deploy.cli.resources.kept_secrets import keep, take_named
from deploy.cli.resources.kinds import full_kind, object_name
from deploy.cli.resources.manifest_files import files_option, read_files
from deploy.cli.resources.manifests import Manifest, Manifests
from deploy.cli.resources.objects import stated_of
from deploy.cli.resources.options import namespace_option
from deploy.cli.resources.plan_steps import plan_lines
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import REFUSED, Refused
from deploy.cli.shared.options import command_options, query_options_in
from deploy.cli.shared.results import exit_status, merged_result, results_of
from deploy.serialization import message_to_dict, yaml_text
from eventstore.bounded_batches import bounded_batches
from projections.field_checks import printable
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

_REQUEST_OBJECTS = 500
_REQUEST_BYTES = 100_000
"""Maximum size of the objects of one request: their defaults may double it, and a record has a maximum of 256 kB."""
_PLAN_OBJECTS = 1_000
_PLAN_BYTES = 500_000
"""Maximum number and size of the objects of a plan: they are in one request, which has at most 1 MB."""
_DIFFERS = 1


class _NotCompared(click.ClickException):
    """Some objects have faults, so what apply would change is not known."""

    exit_code = 2


class _Planned(NamedTuple):
    """An object without faults, and what applying it would change."""

    manifest: Manifest
    change: pb.ResourceChange

    @property
    def action(self) -> str:
        if not self.change.HasField("before"):
            return "created"
        return "unchanged" if self.change.before == self.change.after else "configured"


@click.command(
    epilog="""\b
Examples: dpuplane apply -f manifests
          dpuplane apply -f manifests/image.yaml -n dpf --dry-run"""
)
@files_option(required=True)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Print what would happen; change nothing.")
@click.option("--keep-going", is_flag=True, help="Apply the other objects if some have faults.")
@command_options
def apply(
    *,
    client: Client,
    output: str,
    files: Sequence[str],
    recursive: bool,
    namespace: str,
    dry_run: bool,
    keep_going: bool,
) -> None:
    """Create the objects of manifests, or change them to what the manifests state. Their order does not matter.

    Every object is checked first, with the defaults and rules of its kind, and against the present object. If one has a
    fault, nothing is applied. Objects of kinds that the plane does not have are passed over and named. Of the Secrets,
    those that objects name are kept by the server in files of its own; they are never in the log.
    """
    found = read_files(files, namespace, recursive=recursive)
    secrets = take_named(client, found)
    planned, steps = _plan(client, found, with_steps=dry_run)
    _print_notes(found)
    if found.faults and not keep_going:
        raise Refused(f"{_counted(found.faults)}, so nothing was applied; --keep-going applies the other objects")
    if not planned and not found.faults and not secrets:
        raise Refused("the files have no object of a kind that the plane has")
    if dry_run:
        whole = pb.CommandResult(outcome=pb.OUTCOME_DONE)
        for each in planned:
            _print_line(output, each, f"{each.action} (dry run)")
            whole.dry_run.resources.append(each.change)
        whole.dry_run.steps.extend(steps)
        if output == "table":
            _print_steps(steps)
            _print_secrets([each.name for each in secrets], "kept (dry run)")
    else:
        kept = [*keep(client, secrets)]  # first: what follows from the objects may need them at once
        if output == "table":
            _print_secrets(kept, "kept")
        whole = merged_result(list(_applied(client, planned, output))) if planned else pb.CommandResult()
    if output != "table":
        out.print_value(message_to_dict(whole), output)
    status = exit_status(whole) if planned and not dry_run else 0
    click.get_current_context().exit(status or (REFUSED if found.faults else 0))


@click.command(epilog="Example: dpuplane diff -f manifests")
@files_option(required=True)
@namespace_option
@query_options_in("diff")
def diff(*, client: Client, output: str, files: Sequence[str], recursive: bool, namespace: str) -> None:
    """Show what `apply` would change: a unified diff of YAML, and what would happen to each DPU, service and chain, in
    order. Exit status: 0 nothing; 1 something; 2 an object has a fault.
    """
    assert output == "diff"
    found = read_files(files, namespace, recursive=recursive)
    take_named(client, found)
    planned, steps = _plan(client, found, with_steps=True)
    lines = [line for each in planned for line in _difference(each)]
    for line in lines:
        click.echo(_in_color(line))
    _print_steps(steps)
    _print_notes(found)
    if found.faults:
        raise _NotCompared(f"{_counted(found.faults)}, so `apply` would refuse the files")
    click.get_current_context().exit(_DIFFERS if lines else 0)


def _plan(client: Client, found: Manifests, *, with_steps: bool) -> tuple[list[_Planned], list[pb.PlanStep]]:
    """What applying the objects would change, by a dry run; and the steps that would follow. Faults of objects are
    added to `found`, and these objects are left out."""
    planned: list[_Planned] = []
    steps: list[pb.PlanStep] = []
    parts = list(_requests(found.objects))
    for part in parts:
        answer = _dry_run(client, part, plan=with_steps and len(parts) == 1)
        for manifest, change in zip(part, answer.dry_run.resources, strict=True):
            place = f"{manifest.place}: {manifest.title}"
            found.faults.extend(f"{place}: {fault}" for fault in change.faults)
            if not change.faults:
                planned.append(_Planned(manifest, change))
        steps += answer.dry_run.steps
    changed = [each.manifest for each in planned if each.action != "unchanged"]
    if with_steps and changed and (len(parts) > 1 or found.faults):
        steps = _steps_of(client, changed)
    return planned, steps


def _steps_of(client: Client, changed: Sequence[Manifest]) -> list[pb.PlanStep]:
    """The steps of these objects together. One request has all of them: they depend on each other."""
    if len(changed) > _PLAN_OBJECTS or sum(map(_size, changed)) > _PLAN_BYTES:
        most = f"{_PLAN_OBJECTS} objects of {_PLAN_BYTES // 1_000} kB"
        click.echo(f"no plan: {len(changed)} objects would change, and a plan takes at most {most}", err=True)
        return []
    return [*_dry_run(client, changed, plan=True).dry_run.steps]


def _dry_run(client: Client, part: Sequence[Manifest], *, plan: bool) -> pb.CommandResult:
    request = pb.ApplyResourcesRequest(
        command_id=client.command_id, resources=map(_message, part), plan=plan, dry_run=True
    )
    answer: pb.CommandResult = client.command("ApplyResources", request)
    return answer


def _applied(client: Client, planned: Sequence[_Planned], output: str) -> Iterator[tuple[list[str], pb.CommandResult]]:
    """The results of the requests, each with the names of its objects. Prints the result of each object."""
    parts = list(_requests([each.manifest for each in planned]))
    if len(parts) > 1:
        client.use_one_command_id()
    by_key = {each.manifest.key: each for each in planned}
    for part in parts:
        answer: pb.CommandResult = client.command(
            "ApplyResources", pb.ApplyResourcesRequest(resources=map(_message, part))
        )
        names = ["/".join(("local", *manifest.key)) for manifest in part]
        for manifest, item in zip(part, results_of(names, answer), strict=True):
            action = by_key[manifest.key].action if item.outcome == pb.OUTCOME_DONE else outcome_name(item.outcome)
            _print_line(output, by_key[manifest.key], action, item.reason)
        yield names, answer


def _requests(objects: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    """The objects of each request."""
    return bounded_batches(objects, _size, items_max=_REQUEST_OBJECTS, bytes_max=_REQUEST_BYTES)


def _size(manifest: Manifest) -> int:
    return len(json.dumps(manifest.spec)) + sum(len(value) for value in manifest.annotations.values())


def _message(manifest: Manifest) -> pb.ResourceSpec:
    return pb.ResourceSpec(
        kind=full_kind(manifest.kind),
        api_version=manifest.kind.api_version,
        namespace=manifest.namespace,
        name=manifest.name,
        labels=manifest.labels,
        annotations=manifest.annotations,
        spec=json.dumps(manifest.spec),
    )


def _print_notes(found: Manifests) -> None:
    """Print what was passed over, and the faults."""
    for passed_over in found.passed_over:
        click.echo(f"passed over: {printable(passed_over)}", err=True)
    for fault in found.faults:
        click.echo(printable(fault), err=True)


def _print_secrets(names: Sequence[str], action: str) -> None:
    for name in names:
        click.echo(f"secret/{name} {action}")


def _print_line(output: str, planned: _Planned, action: str, reason: str = "") -> None:
    if output == "table":
        said = f": {reason}" if reason else ""
        name = object_name(planned.manifest.kind, planned.manifest.name)
        click.echo(f"{name} {action}{said}", err=bool(reason))


def _print_steps(steps: Sequence[pb.PlanStep]) -> None:
    if steps:
        click.echo(out.heading("Plan, in this order:"))
    for line in plan_lines(steps):
        click.echo(f"  {line}")


def _counted(faults: Sequence[str]) -> str:
    return f"{len(faults)} faults" if len(faults) > 1 else "1 fault"


def _difference(planned: _Planned) -> Iterator[str]:
    """The lines of a unified diff between the present and the wanted object."""
    if planned.action == "unchanged":
        return
    namespace = f"{planned.manifest.namespace}/" if planned.manifest.namespace else ""
    name = f"{namespace}{object_name(planned.manifest.kind, planned.manifest.name)}"
    change = planned.change
    before = _yaml(stated_of(change.before)) if change.HasField("before") else []
    yield from difflib.unified_diff(
        before, _yaml(stated_of(change.after)), f"present/{name}", f"wanted/{name}", lineterm=""
    )


def _yaml(document: dict[str, Any]) -> list[str]:
    return yaml_text(document, sort_keys=True).splitlines()


def _in_color(line: str) -> str:
    color = {"-": "red", "+": "green", "@": "cyan"}.get(line[0])
    return click.style(line, fg=color) if color is not None and out.wants_color(sys.stdout) else line

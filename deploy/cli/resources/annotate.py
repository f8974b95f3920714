"""`dpuplane annotate`: annotations of objects, by which people answer what the plane asks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from deploy.cli.resources.arguments import OBJECTS
from deploy.cli.resources.kinds import Named, find_kind, full_kind, named_objects, object_name
from deploy.cli.resources.manifests import DEFAULT_NAMESPACE
from deploy.cli.resources.options import namespace_option
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import REFUSED, Refused
from deploy.cli.shared.options import command_options, list_all_pages, selector_option
from deploy.cli.shared.results import exit_status, merged_result
from deploy.serialization import message_to_dict
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb


class _Changes(NamedTuple):
    """The annotations to set and to remove."""

    wanted: dict[str, str]
    removed: frozenset[str]


@click.command(
    epilog="""\b
Examples: dpuplane annotate bfb bf-bundle example.org/owner=net -n dpf
          dpuplane annotate bfb/bf-bundle example.org/owner- -n dpf
          dpuplane annotate bfb --all example.org/owner=ops --overwrite -n dpf"""
)
@click.argument("words", nargs=-1, metavar="KIND [NAME]... KEY=VALUE|KEY-...", type=OBJECTS)
@namespace_option
@selector_option("objects with these labels")
@click.option("--all", "is_all", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("--overwrite", is_flag=True, help="Replace the values of annotations that exist.")
@command_options
def annotate(
    *,
    client: Client,
    output: str,
    words: Sequence[str],
    namespace: str,
    selector: str,
    is_all: bool,
    overwrite: bool,
) -> None:
    """Set (KEY=VALUE) or remove (KEY-) annotations of objects. An edit of an object by somebody else in the meantime is
    kept, and a manifest without these annotations does not remove them.
    """
    named, changes = _parsed(words)
    chosen = _chosen(client, named, namespace or DEFAULT_NAMESPACE, selector, is_all=is_all)
    if len(chosen) > 1:
        client.use_one_command_id()
    answers, status = [], 0
    for found in chosen:
        title = object_name(find_kind(found.kind), found.name)
        try:
            answer = _edited(client, found, title, changes, overwrite=overwrite)
        except Refused as refusal:
            if len(chosen) == 1:
                raise
            click.echo(f"{title} {refusal.message}", err=True)
            status = REFUSED
            continue
        status = max(status, exit_status(answer))
        answers.append((["/".join(("local", found.kind, found.namespace, found.name))], answer))
        if output == "table":
            has_changed = answer.outcome == pb.OUTCOME_DONE
            click.echo(f"{title} {'annotated' if has_changed else answer.reason or 'not changed'}", err=not has_changed)
    if output != "table":
        out.print_value(message_to_dict(merged_result(answers) if answers else pb.CommandResult()), output)
    click.get_current_context().exit(status)


def _chosen(
    client: Client, named: Sequence[Named], namespace: str, selector: str, *, is_all: bool
) -> list[pb.Resource]:
    """The objects to annotate. Raises UsageError and Refused."""
    names = [each for each in named if each.name]
    if bool(names) + bool(selector) + is_all != 1:
        raise click.UsageError("NAME, --selector, --all: exactly one of them must be given")
    if names:
        return [_by_name(client, each, namespace) for each in names]
    kind = named[0].kind
    wanted = pb.ListResourcesRequest(
        kind=full_kind(kind), namespace=namespace if kind.is_namespaced else "", label_selector=selector
    )
    listed = list_all_pages(client, "ListResources", wanted, pb.ListResourcesResponse, "resources").resources
    found = sorted((each for each in listed if not each.derived), key=lambda each: each.name)
    if not found:
        raise Refused(f"no {kind.plural} in namespace {namespace} that could be annotated")
    return found


def _by_name(client: Client, named: Named, namespace: str) -> pb.Resource:
    at = namespace if named.kind.is_namespaced else ""
    query = pb.GetResourceRequest(kind=full_kind(named.kind), namespace=at, name=named.name)
    found: pb.Resource = client.query("GetResource", query)
    return found


def _edited(client: Client, found: pb.Resource, title: str, changes: _Changes, *, overwrite: bool) -> pb.CommandResult:
    """The result of the edit. The plane refuses it if the object has changed since it was read."""
    if found.derived:
        raise Refused(f"{title} follows from {found.owner.kind.partition('.')[0]} {found.owner.name}; annotate that")
    present = dict(found.annotations)
    differing = [key for key, value in changes.wanted.items() if present.get(key, value) != value]
    if differing and not overwrite:
        raise Refused(f"{differing[0]} is already {quoted(present[differing[0]])}; --overwrite replaces it")
    wanted = {key: value for key, value in (present | changes.wanted).items() if key not in changes.removed}
    given = pb.ResourceSpec(
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        labels=found.labels,
        annotations=wanted,
        spec=found.spec,
        revision=found.revision,
    )
    answer: pb.CommandResult = client.command("ApplyResources", pb.ApplyResourcesRequest(resources=[given]))
    return answer


def _parsed(words: Sequence[str]) -> tuple[list[Named], _Changes]:
    """The objects and the changes that the arguments name. Raises UsageError."""
    count = next((n for n, word in enumerate(words) if "=" in word or word.endswith("-")), len(words))
    objects, changes = words[:count], words[count:]
    if not objects or not changes:
        raise click.UsageError("KIND, NAME and at least one KEY=VALUE or KEY- must be given")
    wanted, removed = {}, set()
    for word in changes:
        key, equals, value = word.partition("=")
        if equals:
            wanted[key] = value
        elif word.endswith("-") and len(word) > 1:
            removed.add(word[:-1])
        else:
            raise click.UsageError(f"{quoted(word)} must be KEY=VALUE or KEY-")
    if both := sorted(removed & wanted.keys()):
        raise click.UsageError(f"{both[0]} must not be both set and removed")
    return named_objects(objects), _Changes(wanted, frozenset(removed))

"""`dpuplane get` and `dpuplane describe`: objects of custom resources, as kubectl shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from deploy.cli.resources.arguments import OBJECTS
from deploy.cli.resources.kinds import Named, full_kind, named_objects
from deploy.cli.resources.objects import list_of, manifest_of, table_of
from deploy.cli.resources.options import namespaces_option
from deploy.cli.resources.status_lines import cause_lines, child_lines, condition_lines, observation_lines, owner_text
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import list_all_pages, list_options, selector_option, show_options
from deploy.cli.shared.output import Output
from deploy.serialization import yaml_text
from projections.field_checks import is_printable, quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind

_TEXT_SHOWN = 1_000


@click.command(
    epilog="""\b
Examples: dpuplane get dpusets -A
          dpuplane get dpusets,dpus -n dpf
          dpuplane get all -A
          dpuplane get bfb bf-bundle -n dpf -o yaml"""
)
@click.argument("objects", nargs=-1, metavar="KIND [NAME]...", type=OBJECTS)
@namespaces_option
@selector_option("objects with these labels")
@list_options
def get(
    *, client: Client, output: Output, limit: int | None, objects: Sequence[str], namespace: str, selector: str
) -> None:
    """List the objects of a kind, or print some of them. A kind has the names that kubectl takes: DPUSet, dpuset,
    dpusets, dpusets.provisioning.dpu.nvidia.com. KIND,KIND are several kinds, and `all` are all of them. KIND/NAME
    names an object too.
    """
    named = named_objects(objects)
    if any(each.name for each in named):
        if selector:
            raise click.UsageError("--selector: must not be given with a NAME")
        found = _by_name(client, named, namespace)
    else:
        found = [each for one in named for each in _listed(client, one.kind, namespace, selector, limit)]
    if not found and output.format in ("table", "wide"):
        _print_none(named, namespace)
        return
    _print(found, named, output, is_one=len(named) == 1 and bool(named[0].name), with_namespace=not namespace)


@click.command(epilog="Example: dpuplane describe dpuset rack7 -n dpf")
@click.argument("objects", nargs=-1, metavar="KIND [NAME]...", type=OBJECTS)
@namespaces_option
@show_options
def describe(*, client: Client, output: Output, objects: Sequence[str], namespace: str) -> None:
    """Show objects in detail: what they state, their conditions, what they wait for down to the objects that are to
    blame, what they want, what they refer to and what refers to them.
    """
    named = kinds = named_objects(objects)
    if not any(each.name for each in named):
        listed = [(kind, each) for kind, _ in kinds for each in _listed(client, kind, namespace, "", None)]
        named = [Named(kind, each.name) for kind, each in listed]
        found = [_one(client, each, listed[number][1].namespace) for number, each in enumerate(named)]
    else:
        found = _by_name(client, named, namespace)
    if output.format not in ("table", "wide"):
        _print(found, named, output, is_one=len(found) == 1, with_namespace=not namespace)
        return
    if not found:
        _print_none(kinds, namespace)
    for number, each in enumerate(found):
        if number:
            click.echo()
        _describe(each)


def _print_none(named: Sequence[Named], namespace: str) -> None:
    where = f"namespace {namespace}" if namespace else "any namespace"
    kinds = [each.kind.plural for each in named]
    what = "objects" if len(kinds) == len(KINDS) else " or ".join(kinds)
    click.echo(f"no {what} in {where}", err=True)


def _by_name(client: Client, named: Sequence[Named], namespace: str) -> list[pb.Resource]:
    """The objects with these names. Raises NotFoundError."""
    if any(each.kind.is_namespaced for each in named) and not namespace:
        raise click.UsageError("--all-namespaces: must not be given with a NAME")
    return [_one(client, each, namespace) for each in named]


def _one(client: Client, named: Named, namespace: str) -> pb.Resource:
    if not named.name:
        raise click.UsageError("NAME: must be given after each KIND")
    at = namespace if named.kind.is_namespaced else ""
    found: pb.Resource = client.query(
        "GetResource", pb.GetResourceRequest(kind=full_kind(named.kind), namespace=at, name=named.name)
    )
    return found


def _listed(client: Client, kind: Kind, namespace: str, selector: str, limit: int | None) -> list[pb.Resource]:
    wanted = pb.ListResourcesRequest(
        kind=full_kind(kind), namespace=namespace if kind.is_namespaced else "", label_selector=selector
    )
    found = list_all_pages(client, "ListResources", wanted, pb.ListResourcesResponse, "resources", limit=limit)
    return sorted(found.resources, key=lambda each: (each.namespace, each.name))


def _print(
    found: Sequence[pb.Resource], named: Sequence[Named], output: Output, *, is_one: bool, with_namespace: bool
) -> None:
    if output.format in ("json", "yaml"):
        out.print_value(manifest_of(found[0]) if is_one else list_of(found), output.format)
        return
    now_ms = time.time_ns() // 1_000_000
    asked, present = dict.fromkeys(each.kind for each in named), {each.kind for each in found}
    kinds = [kind for kind in asked if full_kind(kind) in present or len(asked) == 1]
    for number, kind in enumerate(kinds):
        if number and output.format != "name":
            click.echo()
        is_placed = with_namespace and kind.is_namespaced
        table = table_of(kind, now_ms, with_namespace=is_placed, with_kind=len(kinds) > 1)
        output.print_list({}, [each for each in found if each.kind == full_kind(kind)], table)


def _describe(found: pb.Resource) -> None:
    """Print an object in detail."""
    fields = [
        ("Name", found.name),
        *([("Namespace", found.namespace)] if found.namespace else []),
        ("Kind", found.kind.partition(".")[0]),
        ("API version", found.api_version),
        ("Labels", out.labels_text(found.labels) or "none"),
        ("Annotations", _annotations_text(found.annotations) or "none"),
        ("Created", out.time_text(found.create_time)),
        ("Changed", f"{out.time_text(found.update_time)} by {_author(found)}"),
        *([("Wanted by", owner_text(found.owner))] if found.HasField("owner") else []),
        *([("Phase", found.phase)] if found.phase else []),
        *(
            [("Deleted", f"{out.time_text(found.delete_time)}, {_waits(found)}")]
            if found.HasField("delete_time")
            else []
        ),
        ("Generation", found.generation),
        ("UID", found.uid),
    ]
    out.print_fields(fields)
    _print_part("Spec", _yaml_lines(manifest_of(found)["spec"]))
    _print_part("Observed", observation_lines(found))
    _print_part("Conditions", condition_lines(found.conditions))
    _print_part("Waits for (* is to blame)", cause_lines(found.causes))
    _print_part("Children", child_lines(found.children))
    _print_part("Refers to", (_reference(each) for each in found.references))
    _print_part("Referred to by", (f"{each.kind.partition('.')[0]} {each.name}" for each in found.referrers))


def _author(found: pb.Resource) -> str:
    return "its owner" if found.derived else _line(found.actor) or "its cluster"


def _waits(found: pb.Resource) -> str:
    return "waits for the objects that use it" if found.referrers else "waits"


def _reference(reference: pb.ResourceReference) -> str:
    missing = ", which does not exist" if reference.missing else ""
    return f"{reference.kind.partition('.')[0]} {_line(reference.name)} ({_line(reference.path)}){missing}"


def _annotations_text(annotations: Mapping[str, str]) -> str:
    return out.labels_text({key: _line(value) for key, value in annotations.items()})


def _line(text: str) -> str:
    """Free text of an object on one line. Control characters would make a terminal show something else."""
    return text if is_printable(text) else quoted(text, _TEXT_SHOWN)


def _print_part(name: str, lines: Iterator[str]) -> None:
    text = list(lines)
    if text:
        click.echo(out.heading(f"{name}:"))
        for line in text:
            click.echo(f"  {line}")


def _yaml_lines(value: dict[str, Any]) -> Iterator[str]:
    yield from (yaml_text(value, sort_keys=True) if value else "").splitlines()

"""`dpuplane nodes`: nodes, whose addresses are in the rule tables."""

from __future__ import annotations

import click

from deploy.cli.fleet.dpu_selection import confirm_selection
from deploy.cli.fleet.dry_runs import dry_run_option, finish_dry_run
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import NODE, ZONE
from deploy.cli.shared.errors import NotFoundError
from deploy.cli.shared.options import (
    check_zone_of_id,
    command_options,
    key_values,
    list_all_pages,
    list_options,
    print_located,
    selector_option,
    show_options,
)
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.results import Part, finish, finish_items
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb

_MAX_NAMES = 1_000
_TABLE = Table(
    lambda node: node.name,
    (
        Column("name", lambda node: node.name),
        Column("zone", lambda node: node.zone),
        Column("addresses", lambda node: ",".join(node.addresses)),
        Column("held", lambda node: node.hold_state),
        Column("conflicts", lambda node: ",".join(node.conflicts)),
        Column("created", lambda node: out.time_text(node.create_time), wide=True),
        Column("uid", lambda node: node.uid, wide=True),
        Column("withheld", lambda node: node.withheld, wide=True),
        Column("labels", lambda node: out.labels_text(node.labels)),
    ),
)


@click.group()
def nodes() -> None:
    """List, show, join and remove nodes, which may reach the DPUs.

    Example: dpuplane nodes join rack7-n3 --zone rack7 --address 10.7.0.3
    """


@nodes.command("list")
@click.option("--zone", default="", type=ZONE, help="Only nodes of this zone.")
@selector_option("nodes with these labels")
@list_options
def list_nodes(*, client: Client, output: Output, limit: int | None, zone: str, selector: str) -> None:
    """List nodes, including those that left and that a hold keeps in the rule tables.

    A node is held while a hold (`dpuplane holds`) keeps it in the tables, or keeps its newest state out of them. It
    conflicts with other nodes that have one of its addresses.

    \b
    Examples:
      dpuplane nodes list --zone rack7 --output json
      dpuplane nodes list -l 'tier in (web,db),!retired' -o name
    """
    wanted = pb.ListNodesRequest(zone=zone, label_selector=selector)
    found = list_all_pages(client, "ListNodes", wanted, pb.ListNodesResponse, "nodes", by=("name",), limit=limit)
    output.print_list(found, found.nodes, _TABLE)


@nodes.command()
@click.argument("name", type=NODE)
@show_options
def show(*, client: Client, output: Output, name: str) -> None:
    """Show one node.

    Example: dpuplane nodes show rack7-n3
    """
    node: pb.Node = client.query("GetNode", pb.GetNodeRequest(name=name))
    output.print_one(node, node.name, lambda: out.print_fields(_fields(node)))


def _fields(node: pb.Node) -> list[tuple[str, object]]:
    return [
        ("name", node.name),
        ("zone", node.zone),
        ("addresses", ", ".join(node.addresses)),
        ("labels", out.labels_text(node.labels)),
        ("created", out.time_text(node.create_time)),
        ("uid", node.uid),
        ("held", node.hold_state or "no"),
        ("conflicts", ", ".join(node.conflicts)),
        *([("withheld", node.withheld)] if node.withheld else []),
    ]


@nodes.command()
@click.argument("name", type=NODE)
@click.option("--zone", required=True, type=ZONE, help="Zone (rack) of the node.")
@click.option("--address", "addresses", multiple=True, help="Address of the node; at most one IPv4 and one IPv6.")
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=key_values, help="A label; repeatable.")
@command_options
def join(
    *, client: Client, output: str, name: str, zone: str, addresses: tuple[str, ...], labels: dict[str, str]
) -> None:
    """Join a node to a zone, or replace its addresses and labels.

    \b
    Example: dpuplane nodes join rack7-n3 --zone rack7 --address 10.7.0.3 --label model=A10
    """
    node = pb.NodeSpec(name=name, addresses=addresses, labels=labels)
    finish(client.command("JoinNodes", pb.JoinNodesRequest(zone=zone, nodes=[node])), output)


@nodes.command()
@click.argument("names", type=NODE, nargs=-1, metavar="[NODE]...")
@click.option("--zone", default="", type=ZONE, help="Zone of the nodes; looked up for each node if not given.")
@selector_option("nodes with these labels, instead of names")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for a confirmation of the selection.")
@dry_run_option
@command_options
def leave(
    *, client: Client, output: str, names: tuple[str, ...], zone: str, selector: str, yes: bool, dry_run: bool
) -> None:
    """Remove nodes from their zone.

    The command ends when the fleet fold has decided the leave: `held` means that the leave is over its budget, and the
    rule tables keep the nodes until two people approve (`dpuplane holds`). `unchanged` means that the node is not in
    that zone.
    --command-id needs --zone: an id is bound to one zone.

    \b
    Examples:
      dpuplane nodes leave rack7-n3 rack7-n4
      dpuplane nodes leave -l model=A10 --zone rack7 --yes
    """
    if bool(names) == bool(selector):
        raise click.UsageError("give nodes by name, or --selector" + (", and not both" if names else ""))
    if selector:
        groups = _selected(client, zone, selector, yes=yes or dry_run)
    else:
        if not dry_run:
            check_zone_of_id(client, zone)
        unique = list(dict.fromkeys(names))
        groups = [(zone, unique)] if zone else _by_zone(client, unique)
    parts = [_leave(client, found, part, dry_run=dry_run) for found, group in groups for part in _parts(group)]
    if dry_run:
        finish_dry_run(parts, output)
    finish_items(parts, output)


def _selected(client: Client, zone: str, selector: str, *, yes: bool) -> list[tuple[str, list[str]]]:
    """The selected nodes by zone, after a confirmation. Raises UsageError, NotFoundError and ConfirmationRequired."""
    if client.command_id:
        raise click.UsageError("--command-id needs names of nodes: a selection may differ at the next call")
    wanted = pb.ListNodesRequest(zone=zone, label_selector=selector)
    found = list_all_pages(client, "ListNodes", wanted, pb.ListNodesResponse, "nodes", by=("zone", "name")).nodes
    if not found:
        raise NotFoundError("no node matches; nothing was requested")
    confirm_selection(f"leave {len(found)} nodes", [f"{node.zone}/{node.name}" for node in found], yes=yes)
    groups: dict[str, list[str]] = {}
    for node in found:
        groups.setdefault(node.zone, []).append(node.name)
    return [*groups.items()]


def _parts(names: list[str]) -> list[list[str]]:
    return [names[start : start + _MAX_NAMES] for start in range(0, len(names), _MAX_NAMES)]


def _leave(client: Client, zone: str, names: list[str], *, dry_run: bool) -> Part:
    if not zone:
        about = quoted(names[0]) if len(names) == 1 else "it"
        nowhere = f"node: no zone that {client.server} knows of has {about}; nothing was appended"
        return names, pb.CommandResult(outcome=pb.OUTCOME_REFUSED, reason=nowhere)
    return names, client.command("LeaveNodes", pb.LeaveNodesRequest(zone=zone, names=names, dry_run=dry_run))


def _by_zone(client: Client, unique: list[str]) -> list[tuple[str, list[str]]]:
    """Names by zone; unknown names are under the empty zone."""
    located: dict[str, str] = {}
    for start in range(0, len(unique), _MAX_NAMES):
        request = pb.LocateNodesRequest(names=unique[start : start + _MAX_NAMES])
        located.update(client.query("LocateNodes", request).zones)
    groups: dict[str, list[str]] = {}
    for name in unique:
        groups.setdefault(located.get(name, ""), []).append(name)
    print_located(zone for zone in groups if zone)
    return sorted(groups.items())

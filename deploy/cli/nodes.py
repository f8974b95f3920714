"""`dpuplane nodes`: the nodes whose addresses the rule tables are made of."""

from __future__ import annotations

import click

from deploy.cli import output as out
from deploy.cli.answers import finish, merged
from deploy.cli.client import Client
from deploy.cli.options import commands, key_values, paged, queries
from schemas.api import dpuplane_pb2 as pb

_MAX_NAMES = 1_000


@click.group()
def nodes() -> None:
    """Nodes: who may reach the DPUs.

    Example: dpuplane nodes join rack7-n3 --zone rack7 --address 10.7.0.3
    """


@nodes.command("list")
@click.option("--zone", default="", help="Of this zone only.")
@queries
def list_nodes(*, client: Client, output: str, zone: str) -> None:
    """List nodes.

    Example: dpuplane nodes list --zone rack7 --output json
    """
    found = paged(client, "ListNodes", pb.ListNodesRequest(zone=zone), pb.NodeList, "nodes", by=("name",))
    if output != "table":
        out.print_value(out.to_plain(found), output)
        return
    out.print_table(
        ("name", "zone", "addresses", "held", "labels"),
        (
            (node.name, node.zone, ",".join(node.addresses), "held" if node.held else "", out.pairs(node.labels))
            for node in found.nodes
        ),
    )


@nodes.command()
@click.argument("name")
@queries
def show(*, client: Client, output: str, name: str) -> None:
    """Show one node.

    Example: dpuplane nodes show rack7-n3
    """
    node: pb.Node = client.query("ShowNode", pb.ShowNodeRequest(name=name))
    if output != "table":
        out.print_value(out.to_plain(node), output)
        return
    out.print_fields(
        (
            ("name", node.name),
            ("zone", node.zone),
            ("addresses", ", ".join(node.addresses)),
            ("labels", out.pairs(node.labels)),
            ("created_ms", node.created_ms),
            ("uid", node.uid),
            ("held", "yes" if node.held else "no"),
            ("conflicts", ", ".join(node.conflicts)),
        )
    )


@nodes.command()
@click.argument("name")
@click.option("--zone", required=True, help="The zone (rack) it is in.")
@click.option("--address", "addresses", multiple=True, help="Its address; give one IPv4 and one IPv6 at most.")
@click.option("--label", "labels", multiple=True, metavar="K=V", callback=key_values, help="A label; repeatable.")
@commands
def join(
    *, client: Client, output: str, name: str, zone: str, addresses: tuple[str, ...], labels: dict[str, str]
) -> None:
    """Let a node join a zone (or state a node's addresses and labels anew).

    Example: dpuplane nodes join rack7-n3 --zone rack7 --address 10.7.0.3 --label model=A10
    """
    node = pb.NodeSpec(name=name, addresses=addresses, labels=labels)
    finish(client.command("JoinNodes", pb.JoinNodesRequest(zone=zone, nodes=[node])), output)


@nodes.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--zone", default="", help="The zone they are in; looked up if not given.")
@commands
def leave(*, client: Client, output: str, names: tuple[str, ...], zone: str) -> None:
    """Let nodes leave.

    The answer comes when the whole fleet has taken it: `held` means that the leave is over its budget, and the rule
    tables keep the nodes until two principals approve (`dpuplane holds`).

    Example: dpuplane nodes leave rack7-n3 rack7-n4
    """
    answers = []
    for found_zone, group in _by_zone(client, names, zone):
        for start in range(0, len(group), _MAX_NAMES):
            part = group[start : start + _MAX_NAMES]
            answer = client.command("LeaveNodes", pb.LeaveNodesRequest(zone=found_zone, names=part))
            answers.append((part, answer))
    finish(merged(answers), output)


def _by_zone(client: Client, names: tuple[str, ...], zone: str) -> list[tuple[str, list[str]]]:
    """Names by zone. Those that are nowhere go without one: the plane may remember this very command."""
    unique = list(dict.fromkeys(names))
    if zone or len(unique) == 1:
        return [(zone, unique)]
    located: dict[str, str] = {}
    for start in range(0, len(unique), _MAX_NAMES):
        request = pb.LocateNodesRequest(names=unique[start : start + _MAX_NAMES])
        located.update(client.query("LocateNodes", request).zones)
    groups: dict[str, list[str]] = {}
    for name in unique:
        groups.setdefault(located.get(name, ""), []).append(name)
    return sorted(groups.items())

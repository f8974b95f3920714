"""`dpuplane cliques`: the indices of cliques."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import CLIQUE, DOMAIN, NODE
from deploy.cli.shared.errors import Refused, Unreachable
from deploy.cli.shared.options import command_options, list_all_pages, list_options, show_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.param_types import INT32, Time
from deploy.cli.shared.results import exit_status, finish, finish_items
from deploy.cli.shared.sentence_groups import group_sentences
from projections.cliques.files import merge_hosts
from projections.field_checks import PATH_QUOTED, quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp
from schemas.events import MAX_ITEMS

_DOMAIN = click.argument("domain", type=DOMAIN)
_CLIQUE = click.argument("clique", type=CLIQUE)
_NODE = click.argument("node", type=NODE)
_NODES = click.argument("nodes", type=NODE, nargs=-1, required=True, metavar="NODE...")
_UID = click.option("--uid", default="", help="Uid of the claiming pod (its incarnation).")
_MAX_CHARACTERS = 8 << 20
"""Maximum size of a hosts file in characters. Without it, reading a device file such as /dev/zero would never end."""


def _whole(_context: click.Context, _option: click.Parameter, file: TextIO | None) -> str | None:
    """The content of a file. It is read once, before the first output, because with `--watch` every output needs it."""
    if file is None:
        return None
    try:
        text = file.read(_MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise click.BadParameter(f"{quoted(file.name, PATH_QUOTED)} must be text in UTF-8") from None
    if len(text) > _MAX_CHARACTERS:
        raise click.BadParameter(f"{quoted(file.name, PATH_QUOTED)} must be at most {_MAX_CHARACTERS} characters")
    return text


def _name(clique: pb.Clique) -> str:
    return f"{clique.domain}/{clique.clique}"


_TABLE = Table(
    _name,
    (
        Column("domain", lambda clique: clique.domain),
        Column("clique", lambda clique: clique.clique),
        Column("capacity", lambda clique: clique.capacity),
        Column("members", lambda clique: len(clique.members)),
        Column("ready", lambda clique: sum(member.ready for member in clique.members)),
        Column("waiting", lambda clique: len(clique.waiting)),
        Column("nodes", lambda clique: ",".join(f"{m.index}={m.node}" for m in clique.members), wide=True),
    ),
)


@click.group()
def cliques() -> None:
    """Claim and release the indices of cliques. A clique has indices 0 to capacity-1, each held by at most one node.

    Example: dpuplane cliques claim domain-1 clique-a node-3
    """


@cliques.command("list")
@click.option("--domain", default="", type=DOMAIN, help="Only cliques of this domain.")
@list_options
def list_cliques(*, client: Client, output: Output, limit: int | None, domain: str) -> None:
    """List cliques.

    Example: dpuplane cliques list --domain domain-1
    """
    wanted, by = pb.ListCliquesRequest(domain=domain), ("domain", "clique")
    found = list_all_pages(client, "ListCliques", wanted, pb.ListCliquesResponse, "cliques", by=by, limit=limit)
    output.print_list(found, found.cliques, _TABLE)


@cliques.command()
@_DOMAIN
@_CLIQUE
@show_options
def show(*, client: Client, output: Output, domain: str, clique: str) -> None:
    """Show the index table of a clique, and its queue.

    Example: dpuplane cliques show domain-1 clique-a --output json
    """
    found: pb.Clique = client.query("GetClique", pb.GetCliqueRequest(domain=domain, clique=clique))
    output.print_one(found, _name(found), lambda: _print_indices(found))


def _print_indices(found: pb.Clique) -> None:
    click.echo(f"{_name(found)}: {len(found.members)} of {found.capacity} indices taken")
    rows = [(member.index, member.node, "ready" if member.ready else "", member.address) for member in found.members]
    waiting = [(f"queue {w.queue_position}", w.node, "waiting", "") for w in found.waiting]
    out.print_table(("index", "node", "state", "address"), [*rows, *waiting])


@cliques.command()
@_DOMAIN
@_CLIQUE
@click.option("--file", "part", type=click.Choice(["both", "peers", "hosts"]), default="both", show_default=True)
@click.option(
    "--merge",
    type=click.File(encoding="utf-8"),
    callback=_whole,
    metavar="HOSTS",
    help="Print this hosts file with its mapping replaced.",
)
@show_options
def config(*, client: Client, output: Output, domain: str, clique: str, part: str, merge: str | None) -> None:
    """Print the peers file and the hosts mapping of a clique.

    Example: dpuplane cliques config domain-1 clique-a --file hosts
    """
    if merge is not None and (output.format != "table" or part == "peers"):
        raise click.UsageError("--merge prints a hosts file: omit --output and --file peers")
    found: pb.CliqueConfig = client.query("GetCliqueConfig", pb.GetCliqueConfigRequest(domain=domain, clique=clique))
    output.print_one(found, f"{domain}/{clique}", lambda: _print_config(found, part, merge))


def _print_config(found: pb.CliqueConfig, part: str, merge: str | None) -> None:
    if merge is not None:
        click.echo(merge_hosts(merge, found.hosts), nl=False)
    elif part == "both":
        click.echo(f"# peers file\n{found.peers}\n# hosts mapping\n{found.hosts}", nl=not found.hosts.endswith("\n"))
    else:
        click.echo(getattr(found, part), nl=False)


@cliques.command()
@_DOMAIN
@_CLIQUE
@_NODES
@click.option(
    "--address",
    default="",
    help="Address of the node's daemon, for the hosts mapping. Without it and --uid, the present address stays.",
)
@_UID
@click.option("--created", type=Time(), default=0, help="Creation time of that incarnation; needs --uid.")
@command_options
def claim(
    *,
    client: Client,
    output: str,
    domain: str,
    clique: str,
    nodes: tuple[str, ...],
    address: str,
    uid: str,
    created: int,
) -> None:
    """Claim indices for nodes, in this order. A node need not have joined; if no zone has it, a warning says so.

    \b
    Examples:
      dpuplane cliques claim domain-1 clique-a node-3 --address 10.7.0.3
      dpuplane cliques claim domain-1 clique-b node-4 node-5
    """
    _require_one_node(nodes, {"--address": address, "--uid": uid, "--created": created})

    def request(names: Sequence[str]) -> pb.ClaimIndicesRequest:
        create_time = to_timestamp(created)
        claims = [pb.ClaimSpec(node=node, address=address, uid=uid, create_time=create_time) for node in names]
        return pb.ClaimIndicesRequest(domain=domain, clique=clique, claims=claims)

    parts = [(names, client.command("ClaimIndices", request(names))) for names in _parts(nodes)]
    unknown = _unknown(client, [node for names, answer in parts if exit_status(answer) == 0 for node in names])
    fault = "is not known in any zone; the claim was made all the same"
    for sentence in group_sentences(f"node {quoted(node)} {fault}" for node in unknown):
        click.echo(f"warning: {sentence}", err=True)
    finish_items(parts, output)


def _require_one_node(nodes: Sequence[str], options: Mapping[str, object]) -> None:
    """Raises UsageError if an option that describes one pod is given with several nodes."""
    given = [option for option, value in options.items() if value]
    if len(nodes) > 1 and given:
        raise click.UsageError(f"{given[0]} describes the pod of one node: claim or release that node by itself")


def _parts(nodes: Sequence[str]) -> list[list[str]]:
    """The nodes of each request: each node once, at most MAX_ITEMS per request."""
    unique = list(dict.fromkeys(nodes))
    return [unique[start : start + MAX_ITEMS] for start in range(0, len(unique), MAX_ITEMS)]


def _unknown(client: Client, nodes: Sequence[str]) -> list[str]:
    """The nodes that no zone has. Empty if the query fails, because its failure does not affect the claims."""
    located: set[str] = set()
    try:
        for names in _parts(nodes):
            located.update(client.query("LocateNodes", pb.LocateNodesRequest(names=names)).zones)
    except (Refused, Unreachable):
        return []
    return [node for node in nodes if node not in located]


@cliques.command()
@_DOMAIN
@_CLIQUE
@_NODES
@_UID
@command_options
def release(*, client: Client, output: str, domain: str, clique: str, nodes: tuple[str, ...], uid: str) -> None:
    """Release the indices of nodes, or their places in the queue.

    Example: dpuplane cliques release domain-1 clique-a node-3 node-4
    """
    _require_one_node(nodes, {"--uid": uid})

    def request(names: Sequence[str]) -> pb.ReleaseIndicesRequest:
        releases = [pb.ReleaseSpec(node=node, uid=uid) for node in names]
        return pb.ReleaseIndicesRequest(domain=domain, clique=clique, releases=releases)

    finish_items([(names, client.command("ReleaseIndices", request(names))) for names in _parts(nodes)], output)


@cliques.command()
@_DOMAIN
@_CLIQUE
@click.argument("capacity", type=INT32)
@command_options
def capacity(*, client: Client, output: str, domain: str, clique: str, capacity: int) -> None:
    """Set the number of indices of a clique.

    Example: dpuplane cliques capacity domain-1 clique-a 36
    """
    request = pb.SetCliqueCapacityRequest(domain=domain, clique=clique, capacity=capacity)
    finish(client.command("SetCliqueCapacity", request), output)


@cliques.command()
@_DOMAIN
@_CLIQUE
@_NODE
@click.option("--not", "not_ready", is_flag=True, help="Report that the daemon is not ready.")
@_UID
@command_options
def ready(*, client: Client, output: str, domain: str, clique: str, node: str, not_ready: bool, uid: str) -> None:
    """Report whether the daemon of a member is ready.

    Example: dpuplane cliques ready domain-1 clique-a node-3
    """
    request = pb.ReportDaemonReadinessRequest(domain=domain, clique=clique, node=node, uid=uid, ready=not not_ready)
    finish(client.command("ReportDaemonReadiness", request), output)

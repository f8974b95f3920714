"""`dpuplane holds`: changes over their budget, which wait for two people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from deploy.cli.shared import output as out
from deploy.cli.shared import param_types
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.options import command_options, list_all_pages, list_options, show_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.param_types import INT64
from deploy.cli.shared.results import finish, merged_result
from eventstore.ids import is_part_of
from projections.pages import MAX_PAGE
from schemas.api import dpuplane_pb2 as pb

_ZONES_SHOWN = 5


@click.group()
def holds() -> None:
    """List, approve and reject holds. A change over its budget takes effect only after two people have approved it.

    Example: dpuplane holds list
    """


@holds.command("list")
@click.option(
    "--command", "of_command", default="", callback=param_types.command_id, help="Only holds of this command."
)
@list_options
def list_holds(*, client: Client, output: Output, limit: int | None, of_command: str) -> None:
    """List the open holds.

    An import, or a command with many names, is sent as many commands. --command takes the id that they share.

    Example: dpuplane holds list --output json
    """
    found = list_all_pages(
        client,
        "ListHolds",
        pb.ListHoldsRequest(),
        pb.ListHoldsResponse,
        "holds",
        limit=None if of_command else limit,
    )
    if of_command:
        asked_for = of_the_command(found.holds, of_command)[:limit]
        del found.holds[:]
        found.holds.extend(asked_for)
    output.print_list(found, found.holds, _TABLE)


def _zones(hold: pb.Hold) -> str:
    return ",".join([*hold.zones[:_ZONES_SHOWN], *(["..."] if len(hold.zones) > _ZONES_SHOWN else [])])


_TABLE = Table(
    lambda hold: hold.hold,
    (
        Column("hold", lambda hold: hold.hold),
        Column("kind", lambda hold: hold.kind),
        Column("nodes", lambda hold: hold.node_count),
        Column("addresses", lambda hold: hold.addresses),
        Column("zones", _zones),
        Column("asked by", lambda hold: hold.requested_by),
        Column("command", lambda hold: hold.command_id),
        Column("approved by", lambda hold: ",".join(hold.approved_by)),
        Column("hash", lambda hold: hold.hash),
        Column("since", lambda hold: out.time_text(hold.create_time), wide=True),
        Column("subject", lambda hold: hold.subject, wide=True),
        Column("reason", lambda hold: hold.reason),
    ),
)
"""The columns that an approver needs. A hold that has changed needs new approvals. The zones are shown because a change
of a hold may be visible in its zones only."""


def of_the_command(found: Iterable[pb.Hold], command_id: str) -> list[pb.Hold]:
    """The holds with the id of this command, or of a part of this command."""
    return [hold for hold in found if is_part_of(hold.command_id, command_id)]


@holds.command()
@click.argument("hold", type=INT64)
@show_options
def show(*, client: Client, output: Output, hold: int) -> None:
    """Show one hold, with all its nodes.

    A rejected hold is shown as long as it keeps nodes in their earlier state.

    Example: dpuplane holds show 31
    """
    found: pb.Hold = client.query("GetHold", pb.GetHoldRequest(hold=hold))
    request = pb.ListHoldNodesRequest(hold=hold, page_size=MAX_PAGE)
    nodes = list_all_pages(client, "ListHoldNodes", request, pb.ListHoldNodesResponse, "nodes", by=("name",)).nodes
    del found.nodes[:]
    found.nodes.extend(node.name for node in nodes)
    output.print_one(found, hold, lambda: _print_hold(found, nodes))


def _print_hold(found: pb.Hold, nodes: Sequence[pb.HoldNode]) -> None:
    since = out.time_text(found.create_time)
    out.print_fields(
        (
            ("hold", found.hold),
            ("state", f"rejected by {found.rejected_by}" if found.rejected_by else f"open since {since}"),
            ("kind", found.kind),
            ("reason", found.reason),
            ("asked by", found.requested_by),
            ("command", found.command_id),
            ("approved by", ", ".join(found.approved_by)),
            ("hash", found.hash),
            ("addresses", found.addresses),
            ("zones", ", ".join(found.zones)),
            ("nodes", len(nodes)),
        )
    )
    if nodes:
        out.print_table(("node", "zone"), ((node.name, node.zone) for node in nodes))


def _chosen(function: Callable[..., None]) -> Callable[..., None]:
    """Add the parameters that choose one hold, the holds of a command, or all holds."""
    function = click.option("--all", "all_holds", is_flag=True, help="Every open hold.")(function)
    function = click.option(
        "--command",
        "of_command",
        default="",
        callback=param_types.command_id,
        help="Every hold of this command, such as an import.",
    )(function)
    return click.argument("hold", type=INT64, required=False)(function)


def _selected(client: Client, hold: int | None, of_command: str, *, all_holds: bool) -> list[pb.Hold]:
    """The chosen open holds, in their present state."""
    if sum((hold is not None, bool(of_command), all_holds)) != 1:
        raise click.UsageError("give one of HOLD, --command ID and --all")
    found = list_all_pages(client, "ListHolds", pb.ListHoldsRequest(), pb.ListHoldsResponse, "holds")
    if of_command:
        chosen = of_the_command(found.holds, of_command)
    else:
        chosen = [each for each in found.holds if all_holds or each.hold == hold]
    return chosen


@holds.command()
@_chosen
@click.option(
    "--hash",
    "seen",
    default="",
    help="The hash that you saw; refused if the hold has changed since.  [the present one]",
)
@command_options
def approve(*, client: Client, output: str, hold: int | None, of_command: str, all_holds: bool, seen: str) -> None:
    """Approve a hold. It needs two people other than the requester: see --as.

    Example: dpuplane holds approve 31 --as alice
    """
    if seen and hold is not None:
        finish(client.command("ApproveHold", pb.ApproveHoldRequest(hold=hold, hash=seen)), output)
        return
    if seen:
        raise click.UsageError("--hash needs exactly one HOLD")
    found = _selected(client, hold, of_command, all_holds=all_holds)
    if not found and client.command_id:
        earlier: pb.CommandResult = client.query("GetCommand", pb.GetCommandRequest(command_id=client.command_id))
        if earlier.outcome != pb.OUTCOME_UNKNOWN:  # this approval may have closed the hold
            finish(earlier, output)
            return
    if not found:
        raise _none_of(hold, of_command)
    _each(client, "ApproveHold", [pb.ApproveHoldRequest(hold=each.hold, hash=each.hash) for each in found], output)


@holds.command()
@_chosen
@command_options
def reject(*, client: Client, output: str, hold: int | None, of_command: str, all_holds: bool) -> None:
    """Reject a hold for good: the addresses that are allowed now stay, and the change has no effect.

    A node whose leave is rejected stays in the tables until it joins again; then it may leave again. A node whose
    change is rejected keeps its earlier state until it makes another change.

    Example: dpuplane holds reject 31 --as alice
    """
    if hold is not None and not of_command and not all_holds:
        finish(client.command("RejectHold", pb.RejectHoldRequest(hold=hold)), output)
        return
    found = _selected(client, hold, of_command, all_holds=all_holds)
    if not found:
        raise _none_of(hold, of_command)
    _each(client, "RejectHold", [pb.RejectHoldRequest(hold=each.hold) for each in found], output)


def _none_of(hold: int | None, of_command: str) -> Refused:
    if hold is not None:
        fault = f"{hold} is not open"
    else:
        fault = f"command {of_command} has no open hold" if of_command else "no hold is open"
    return Refused(f"hold: {fault}; see `dpuplane holds list`")


def _each(client: Client, method: str, requests: Sequence[Any], output: str) -> None:
    """Send one command per hold, and print one result."""
    if len(requests) > 1 and client.command_id:
        raise click.UsageError(f"--command-id needs exactly one command, and this call sends {len(requests)}")
    answers = [((f"hold {request.hold}",), client.command(method, request)) for request in requests]
    finish(merged_result(answers), output)

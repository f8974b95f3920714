"""`dpuplane holds`: withdrawals over their budget, which wait for two principals."""

from __future__ import annotations

import click

from deploy.cli import output as out
from deploy.cli.answers import finish
from deploy.cli.client import Client
from deploy.cli.failures import Refused
from deploy.cli.options import commands, looks_back
from deploy.cli.values import INT64
from deploy.plain import to_plain
from schemas.api import dpuplane_pb2 as pb

_ZONES_SHOWN = 5


@click.group()
def holds() -> None:
    """Holds: a change that would deny too many addresses at once is kept from the devices until two people agree.

    Example: dpuplane holds list
    """


@holds.command("list")
@looks_back
def list_holds(*, client: Client, output: str) -> None:
    """List what is held.

    Example: dpuplane holds list --output json
    """
    found: pb.HoldList = client.query("ListHolds", pb.ListHoldsRequest())
    if output != "table":
        out.print_value(to_plain(found), output)
        return
    heads = ("hold", "kind", "nodes", "addresses", "zones", "asked by", "approved by", "hash", "reason")
    out.print_table(heads, map(_row, found.holds))


def _row(hold: pb.Hold) -> tuple[object, ...]:
    """What an approver has to look at. One that is asked for anew may differ from what they saw in its zones alone."""
    zones = ",".join([*hold.zones[:_ZONES_SHOWN], *(["..."] if len(hold.zones) > _ZONES_SHOWN else [])])
    who = (hold.requested_by, ",".join(hold.approved_by))
    return hold.hold, hold.kind, hold.node_count, hold.addresses, zones, *who, hold.hash, hold.reason


@holds.command()
@click.argument("hold", type=INT64)
@click.option(
    "--hash", "seen", default="", help="The hash that you saw; refused if the hold has changed since.  [as it is now]"
)
@commands
def approve(*, client: Client, output: str, hold: int, seen: str) -> None:
    """Let a held withdrawal go. It takes two principals: see --as.

    Example: dpuplane holds approve 31 --as alice
    """
    if not seen:
        found: pb.HoldList = client.query("ListHolds", pb.ListHoldsRequest())
        seen = next((h.hash for h in found.holds if h.hold == hold), "")
    if not seen and client.command_id:
        earlier: pb.Answer = client.query("ShowCommand", pb.ShowCommandRequest(command_id=client.command_id))
        if earlier.outcome != pb.Answer.unknown:  # this very approval may be what closed it
            finish(earlier, output)
    if not seen:
        raise Refused(f"hold: {hold} is not open; see `dpuplane holds list`")
    finish(client.command("ApproveHold", pb.ApproveHoldRequest(hold=hold, hash=seen)), output)


@holds.command()
@click.argument("hold", type=INT64)
@commands
def reject(*, client: Client, output: str, hold: int) -> None:
    """Refuse a change that is held, for good: what was allowed stays, and what would have replaced it does not count.

    A node whose leave is rejected stays in the tables until it joins again, and may then leave anew. A node whose
    change is rejected counts as it was, until it states another one.

    Example: dpuplane holds reject 31 --as alice
    """
    finish(client.command("RejectHold", pb.RejectHoldRequest(hold=hold)), output)

"""`dpuplane explain`: why a DPU allows or denies a node, step by step from the join to the hardware."""

from __future__ import annotations

import click

from deploy.cli.fleet.rules import ports_text
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import DPU, NODE, ZONE
from deploy.cli.shared.options import show_options
from deploy.cli.shared.output import Output
from schemas.api import dpuplane_pb2 as pb


@click.command(epilog="Example: dpuplane explain rack7-n3 rack7-dpu-0000")
@click.argument("node", type=NODE)
@click.argument("dpu", type=DPU)
@click.option("--zone", default="", type=ZONE, help="Zone of the DPU; looked up if not given.")
@show_options
def explain(*, client: Client, output: Output, node: str, dpu: str, zone: str) -> None:
    """Show whether DPU allows NODE, the policy that decides, and the steps that are done.

    The verdict is that of the rule table of the DPU's zone: for each address of the node, the protocols and ports that
    are allowed or denied. A rule takes these steps to the DPU: the zone has the node, the fleet has accepted it, the
    table of the DPU's zone has the rule, and the DPU was sent the rule, has received it, has applied it, and has it in
    its hardware. The first missing step shows its reason. With --as-of, the steps of the DPU are those that relays had
    reported at that time.
    """
    found: pb.Explanation = client.query("ExplainAccess", pb.ExplainAccessRequest(node=node, dpu=dpu, zone=zone))
    output.print_one(found, found.verdict, lambda: _print_explanation(found))


def _print_explanation(found: pb.Explanation) -> None:
    if found.addresses:
        out.print_table(
            ("address", "prefix", "action", "priority", "protocol", "ports", "policy", "since version"),
            (
                (a.address, a.prefix, a.action, a.priority, a.protocol, ports_text(a.ports), a.policy, _since(a))
                for a in found.addresses
            ),
        )
        click.echo()
    out.print_table(
        ("step", "reached", "time", "position", "version", "note"),
        (
            (
                step.name,
                "yes" if step.reached else "NO",
                out.time_text(step.reach_time) or "-",
                step.position or "-",
                step.version or "-",
                step.note,
            )
            for step in found.steps
        ),
    )
    click.echo()
    for note in found.notes:
        click.echo(note)
    click.echo(f"{found.node} to {found.dpu} of zone {found.zone}: {found.summary}")
    click.echo(
        f"not there yet: {found.missing_step}: {found.reason}" if found.missing_step else "every step is reached"
    )


def _since(found: pb.ExplainedAddress) -> object:
    """The first version of the table in which the rule has the address."""
    return found.version or "unknown: older than the kept history"

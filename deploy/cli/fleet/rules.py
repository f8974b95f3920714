"""`dpuplane rules`: the rule table of a zone, which all its DPUs must hold."""

from __future__ import annotations

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import ZONE
from deploy.cli.shared.options import show_options
from deploy.cli.shared.output import Output
from schemas.api import dpuplane_pb2 as pb


@click.group()
def rules() -> None:
    """Print rule tables: the addresses that may reach the DPUs of a zone.

    Example: dpuplane rules show rack7
    """


@rules.command()
@click.argument("zone", type=ZONE)
@show_options
def show(*, client: Client, output: Output, zone: str) -> None:
    """Show the rule table of a zone, in the order in which its rules apply.

    Example: dpuplane rules show rack7 --output json
    """
    pages: list[pb.Rules] = client.query("GetRules", pb.GetRulesRequest(zone=zone))
    whole = pages[0]
    for page in pages[1:]:
        whole.rules.extend(page.rules)
    output.print_one(whole, whole.zone, lambda: _print_rules(whole))


def _print_rules(whole: pb.Rules) -> None:
    count = "1 rule" if len(whole.rules) == 1 else f"{len(whole.rules)} rules"
    click.echo(f"zone {whole.zone}, version {whole.version}, digest {whole.digest}, {count}")
    out.print_table(
        ("prefix", "action", "priority", "protocol", "ports", "policy"),
        (
            (rule.prefix, rule.action, rule.priority, rule.protocol, ports_text(rule.ports), rule.policy)
            for rule in whole.rules
        ),
    )


def ports_text(ports: object) -> str:
    """Port ranges on one line."""
    return ",".join(
        str(r.first) if r.first == r.last else f"{r.first}-{r.last}"
        for r in ports  # type: ignore[attr-defined]
    )

"""`--dry-run`: prints the effect of a command on the rule tables, with the exit status of the command."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deploy.cli.fleet.rules import ports_text
from deploy.cli.shared import output as out
from deploy.cli.shared.results import Part, exit_status, merged_result, sentence
from deploy.serialization import message_to_dict
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

_SHOWN = 20
"""Maximum number of zones or prefixes that one line of the table lists."""

dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Print the effect on every zone's table, and whether it would be held; change nothing.",
)


def finish_dry_run(parts: Sequence[Part], output: str) -> None:
    """Print the effect that each command would have if it were the only one, and exit."""
    whole = merged_result(parts)
    if output == "table":
        for names, answer in parts:
            _print(names, answer)
    else:
        whole.dry_run.effects.extend([] if len(parts) == 1 else [e for _, a in parts for e in a.dry_run.effects])
        whole.dry_run.budget = next((answer.dry_run.budget for _, answer in parts if answer.dry_run.budget), "")
        whole.dry_run.addresses = max(answer.dry_run.addresses for _, answer in parts)
        out.print_value(message_to_dict(whole), output)
    click.get_current_context().exit(exit_status(whole))


def _print(names: Sequence[str], answer: pb.CommandResult) -> None:
    would = answer.dry_run
    about = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    click.echo(f"{about}: would be {sentence(answer)}")
    for item in answer.items:
        click.echo(f"  {item.name}: {outcome_name(item.outcome)}: {item.reason}")
    if would.budget:
        click.echo(f"  held by the {would.budget} budget; if it is approved:")
    if not would.effects:
        click.echo("  no rule table would change")
    for effect in would.effects:
        zones = ", ".join(effect.zones[:_SHOWN])
        more = effect.zone_count - min(_SHOWN, len(effect.zones))
        click.echo(
            f"  zone{'s' if effect.zone_count > 1 else ''} {zones}{f' and {more} more' if more else ''}:"
            f" addresses that become allowed: {effect.addresses_allowed}, denied: {effect.addresses_denied}"
        )
        for rule in effect.rules:
            _print_rule(rule)


def _print_rule(rule: pb.RuleEffect) -> None:
    traffic = " ".join(filter(None, [rule.protocol, ports_text(rule.ports)]))
    click.echo(
        f"    {rule.action} {traffic}, priority {rule.priority}, policy {rule.policy}:"
        f" prefixes added: {rule.prefixes_added}, removed: {rule.prefixes_removed}"
    )
    for sign, prefixes, count in (
        ("+", rule.added, rule.prefixes_added),
        ("-", rule.removed, rule.prefixes_removed),
    ):
        for prefix in prefixes[:_SHOWN]:
            click.echo(f"      {sign} {prefix}")
        if count > _SHOWN:
            click.echo(f"      {sign} and {count - _SHOWN} more prefixes")

"""`dpuplane topics`: the permissions that each role needs on the topics of the log, as commands for Kafka's ACLs."""

from __future__ import annotations

import re

import click

from deploy.cli.shared import output as out
from deploy.composition.topics import TOPICS
from deploy.kafka.acls import GRANTED_ROLES, arguments_of, commands_of
from projections.field_checks import quoted

_PRINCIPAL = re.compile(r"[A-Za-z]+:[^\s*][^\r\n]*")


@click.group(epilog="\b\nExample: dpuplane topics acls --role relay --principal User:relay")
def topics() -> None:
    """Print the permissions of each role on the topics of the log."""


def _principal(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    if not _PRINCIPAL.fullmatch(given):
        raise click.BadParameter(f"{quoted(given)} must be KIND:NAME of one principal, as in User:relay")
    return given


@topics.command(epilog="\b\nExample: dpuplane topics acls --role relay --principal User:relay")
@click.option("--role", type=click.Choice(GRANTED_ROLES), required=True, help="Role of the principal's processes.")
@click.option(
    "--principal", callback=_principal, required=True, metavar="USER", help="Principal in Kafka's notation: User:NAME."
)
@click.option(
    "--topic-prefix", metavar="NAME", default="dpuplane", show_default=True, help="Prefix of the log's topics."
)
@click.option("--bootstrap", metavar="HOST:PORT", default="localhost:9092", show_default=True, help="The cluster.")
@click.option(
    "--command-config", metavar="FILE", default="", help="Configuration with which kafka-acls.sh authenticates."
)
@click.option(
    "--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format of the result."
)
def acls(*, role: str, principal: str, topic_prefix: str, bootstrap: str, command_config: str, output: str) -> None:
    """Print the least permissions of a role in Kafka, as kafka-acls.sh commands; nothing is changed.

    Role `reader` is for commands that read the log directly: verify, replay, events, history, checkpoint, backup,
    upgrade.
    """
    grants = list(arguments_of(TOPICS, role, principal, topic_prefix))
    if output != "table":
        out.print_value({"commands": grants}, output)
        return
    for line in commands_of(grants, bootstrap, command_config):
        click.echo(line)

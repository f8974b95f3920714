"""How a client command ends badly: a sentence on stderr, and an exit status that says which kind."""

from __future__ import annotations

from collections.abc import Collection

import click

REFUSED = 1
UNKNOWN = 3


class Refused(click.ClickException):
    """The plane (or the file given) said no; nothing took effect."""

    exit_code = REFUSED


class ConfirmationRequired(click.ClickException):
    """What was asked for needs an option that confirms it; nothing took effect."""

    exit_code = 2


LIST_COMMANDS = {
    "zone": "zones list",
    "node": "nodes list",
    "name": "nodes list",
    "dpu": "dpus list",
    "clique": "cliques list",
    "domain": "cliques list",
    "policy": "policies list",
    "hold": "holds list",
}
"""What shows the names that there are, by the field that was wrong."""


class NotFoundError(click.ClickException):
    """The plane has nothing of the name that was asked for. A command about it would be refused, with this status."""

    exit_code = REFUSED

    def format_message(self) -> str:
        there = LIST_COMMANDS.get(self.message.partition(":")[0])
        return f"{self.message}; see `dpuplane {there}`" if there else self.message


class Unreachable(click.ClickException):
    """Nobody answered, or what was done is not known; the sentence says what to try next."""

    exit_code = UNKNOWN


class StillFolding(Unreachable):
    """The answer comes when the log is folded up to the moment that was asked about."""


SENT_COMMAND_IDS = "deploy.cli.stated"
"""Where a context has the ids of the commands that were sent, for whoever cannot print what became of them."""

_IDS_SHOWN = 5


def retry_advice(command_id: str) -> str:
    """How a command of which nobody knows what became is asked about and repeated."""
    if not command_id:
        return ""
    return f"ask `dpuplane commands show {command_id}`, or repeat the command with --command-id {command_id}"


def unknown_outcome_note(command_ids: Collection[str]) -> str:
    """What is to be known of commands whose answer cannot be printed; nothing if there are none."""
    if not command_ids:
        return ""
    first, *others = command_ids
    if not others:
        return f"; the command may have taken effect: {retry_advice(first)}"
    more = f" and {len(command_ids) - _IDS_SHOWN} more" if len(command_ids) > _IDS_SHOWN else ""
    shown = f"{', '.join((first, *others)[:_IDS_SHOWN])}{more}"
    return f"; {len(command_ids)} commands may have taken effect: ask `dpuplane commands show` about {shown}"

"""Errors that end a client command: a sentence on stderr, and an exit status by kind."""

from __future__ import annotations

from collections.abc import Collection

import click

from eventstore.reasons import Reason

REFUSED = 1
UNKNOWN = 3


class Refused(click.ClickException):
    """The plane refused the command, or the file is invalid; nothing took effect."""

    exit_code = REFUSED


class ConfirmationRequired(click.ClickException):
    """The command needs an option or an answer that confirms it; nothing took effect."""

    exit_code = 2


LIST_COMMANDS = {
    Reason.ZONE_NOT_FOUND: "zones list",
    Reason.NODE_NOT_FOUND: "nodes list",
    Reason.DPU_NOT_FOUND: "dpus list",
    Reason.CLIQUE_NOT_FOUND: "cliques list",
    Reason.HOLD_NOT_FOUND: "holds list",
}
"""For each reason code of an unknown name, the command that lists the existing names."""


class NotFoundError(click.ClickException):
    """The plane has no object with this name. A command about an unknown name is refused with the same exit status."""

    exit_code = REFUSED

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self._reason = reason

    def format_message(self) -> str:
        there = LIST_COMMANDS.get(self._reason) if self._reason is not None else None
        return f"{self.message}; see `dpuplane {there}`" if there else self.message


class Unreachable(click.ClickException):
    """No server responded, or the outcome is unknown; the sentence names the next step."""

    exit_code = UNKNOWN


class StillFoldingError(Unreachable):
    """The server is still folding the log up to the point of an as-of query; the client asks again."""


SENT_COMMAND_IDS = "deploy.cli.sent_command_ids"
"""Key in the click context for the ids of the sent commands. An error message names these commands if their results
cannot be printed."""

_IDS_SHOWN = 5


def retry_advice(command_id: str) -> str:
    """How to look up, or to repeat, a command whose outcome is unknown; empty without an id."""
    if not command_id:
        return ""
    return f"check it with `dpuplane commands show {command_id}`, or repeat the command with --command-id {command_id}"


def unknown_outcome_note(command_ids: Collection[str]) -> str:
    """A note about sent commands whose results cannot be printed; empty if there are none."""
    if not command_ids:
        return ""
    first, *others = command_ids
    if not others:
        return f"; the command may have taken effect: {retry_advice(first)}"
    more = f" and {len(command_ids) - _IDS_SHOWN} more" if len(command_ids) > _IDS_SHOWN else ""
    shown = f"{', '.join((first, *others)[:_IDS_SHOWN])}{more}"
    return f"; {len(command_ids)} commands may have taken effect: check them with `dpuplane commands show` {shown}"

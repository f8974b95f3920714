"""How a client command ends badly: a sentence on stderr, and an exit status that says which kind."""

from __future__ import annotations

import click

REFUSED = 1
UNKNOWN = 3


class Refused(click.ClickException):
    """The plane (or the file given) said no; nothing took effect."""

    exit_code = REFUSED


LISTS = {
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


class NotKnown(click.ClickException):
    """The plane has nothing of the name that was asked for. A command about it would be refused, with this status."""

    exit_code = REFUSED

    def format_message(self) -> str:
        there = LISTS.get(self.message.partition(":")[0])
        return f"{self.message}; see `dpuplane {there}`" if there else self.message


class Unreachable(click.ClickException):
    """Nobody answered, or what was done is not known; the sentence says what to try next."""

    exit_code = UNKNOWN


class StillFolding(Unreachable):
    """The answer comes when the log is folded up to the moment that was asked about."""

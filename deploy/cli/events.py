"""`dpuplane events`: the log itself, for people and for scripts."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import click

from deploy.cli.client import Client
from deploy.cli.options import queries
from deploy.cli.places import failing, place_of_status, reads_log
from deploy.log_events import Wanted, as_json, lines
from deploy.opening import LogPlace, open_to_read
from eventstore.log import FOLDED_TOPICS
from schemas.api import dpuplane_pb2 as pb

_FILTERS = (
    click.option("--topic", "topics", multiple=True, type=click.Choice(FOLDED_TOPICS), help="Only this topic."),
    click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type, as NodesJoined."),
    click.option("--subject", default="", help="Only events about this subject."),
    click.option("--actor", default="", help="Only events of this principal."),
    click.option("--command", "command", default="", metavar="UUIDv7", help="Only events of this command."),
    click.option("--since", "since_ms", type=int, default=0, metavar="MS", help="Only from this append time on."),
)


def filters(function: Any) -> Any:
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@click.group()
def events() -> None:
    """Read the log's events, as lines of JSON."""


@events.command(epilog="Example: dpuplane events tail --type NodesJoined --type NodesLeft")
@filters
@reads_log
@queries
def tail(client: Client, output: str, place: LogPlace | None, **wanted: Any) -> None:
    """Print events from the beginning (or --since) on, and then as they are appended, until interrupted."""
    _print(place or _asked(client), _wanted(**wanted), follow=True)


@events.command(epilog="Example: dpuplane events export --data plane --topic zones > zones.jsonl")
@filters
@reads_log
@queries
def export(client: Client, output: str, place: LogPlace | None, **wanted: Any) -> None:
    """Print all events that are in the log now."""
    _print(place or _asked(client), _wanted(**wanted), follow=False)


def _wanted(*, topics: tuple[str, ...], command: str, **rest: Any) -> Wanted:
    return Wanted(topics=topics or FOLDED_TOPICS, command_id=command, **rest)


def _asked(client: Client) -> LogPlace:
    return place_of_status(client.query("ShowStatus", pb.ShowStatusRequest()), client.server)


def _print(place: LogPlace, wanted: Wanted, *, follow: bool) -> None:
    async def run() -> None:
        async with open_to_read(place, rng=random.Random()) as log:
            async for line in lines(log, wanted, follow=follow):
                sys.stdout.write(f"{as_json(line)}\n")
                if follow:
                    sys.stdout.flush()

    with failing():
        asyncio.run(run())

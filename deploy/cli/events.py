"""`dpuplane events`: the log itself, for people and for scripts."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any, get_args

import click
import yaml

from deploy.cli.client import Client
from deploy.cli.options import queries
from deploy.cli.places import failing, place_of_status, reads_log
from deploy.cli.values import Moment, command_id
from deploy.log_events import Wanted, as_json, lines
from deploy.opening import LogPlace, open_to_read
from eventstore.log import FOLDED_TOPICS
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Event

_TYPES = {event.__name__: event.__name__ for event in get_args(Event)} | {"undecodable": "undecodable"}

_FILTERS = (
    click.option("--topic", "topics", multiple=True, type=click.Choice(FOLDED_TOPICS), help="Only this topic."),
    click.option(
        "--type",
        "types",
        multiple=True,
        type=click.Choice(_TYPES),
        metavar="TYPE",
        help="Only events of this type, as NodesJoined.",
    ),
    click.option("--subject", default="", help="Only events about this subject."),
    click.option("--actor", default="", help="Only events of this principal."),
    click.option("--command", callback=command_id, default="", metavar="UUIDv7", help="Only events of this command."),
    click.option(
        "--since",
        "since_ms",
        type=Moment(),
        default=0,
        metavar="TIME",
        help="Only from this append time on: ISO 8601, UTC if it names no zone, or milliseconds since the epoch.",
    ),
)


def filters(function: Any) -> Any:
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@click.group()
def events() -> None:
    """Read the log's events, in order per partition: a line of JSON each, or a YAML document.

    \b
    Example: dpuplane events tail --type NodesJoined --since 2026-11-21T09:30:00Z
    """


@events.command(epilog="Example: dpuplane events tail --type NodesJoined --type NodesLeft")
@filters
@reads_log
@queries
def tail(client: Client, output: str, place: LogPlace | None, **wanted: Any) -> None:
    """Print events from the beginning (or --since) on, and then as they are appended, until interrupted."""
    _print(place or _asked(client), _wanted(**wanted), output, follow=True)


@events.command(epilog="Example: dpuplane events export --data plane --topic zones > zones.jsonl")
@filters
@reads_log
@queries
def export(client: Client, output: str, place: LogPlace | None, **wanted: Any) -> None:
    """Print all events that are in the log now."""
    _print(place or _asked(client), _wanted(**wanted), output, follow=False)


def _wanted(*, topics: tuple[str, ...], command: str, **rest: Any) -> Wanted:
    return Wanted(topics=topics or FOLDED_TOPICS, command_id=command, **rest)


def _asked(client: Client) -> LogPlace:
    return place_of_status(client.query("ShowStatus", pb.ShowStatusRequest()), client.server)


def _print(place: LogPlace, wanted: Wanted, output: str, *, follow: bool) -> None:
    async def run() -> None:
        async with open_to_read(place, rng=random.Random()) as log:
            async for line in lines(log, wanted, follow=follow):
                sys.stdout.write(_spelled(line, output))
                if follow:
                    sys.stdout.flush()

    with failing():
        asyncio.run(run())


def _spelled(line: dict[str, object], output: str) -> str:
    if output != "yaml":
        return f"{as_json(line)}\n"
    return yaml.safe_dump(line, sort_keys=False, allow_unicode=True, explicit_start=True)

"""`dpuplane history`: all events of one node, DPU, clique or zone, with their principals."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import click

from deploy.cli.operations.log_options import log_errors, log_options
from deploy.cli.operations.remote_log import open_events
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import ZONE
from deploy.cli.shared.errors import NotFoundError
from deploy.cli.shared.options import query_options
from deploy.cli.shared.progress import ProgressLine
from deploy.composition.roles import folds_of
from deploy.host.storage import LogSource
from deploy.operations.past.history import Happening, history, homes_of_dpu, of_home
from eventstore.as_of import format_time
from eventstore.log import EventLog
from projections.decisions.items import DecisionItem
from projections.field_checks import quoted


@click.command("history", epilog="Example: dpuplane history rack7-n3")
@click.argument("subject")
@click.option("--zone", default="", type=ZONE, help="Zone of the DPU, if several DPUs have this name.")
@log_options
@query_options
def history_command(*, client: Client, output: str, log_source: LogSource | None, subject: str, zone: str) -> None:
    """Print all events of SUBJECT, oldest first: a node, a DPU, a zone, or a clique as DOMAIN/CLIQUE.

    The command folds the log from its beginning. It prints time, position in the log, principal, command id and
    decision of each event.
    """
    with log_errors():
        happened = asyncio.run(_read(open_events(client, log_source), subject))
    if not happened:
        raise NotFoundError(
            f"subject: {quoted(subject)} occurs in no event; it must be a node, DPU, zone or DOMAIN/CLIQUE"
        )
    happened = _in_zone(happened, subject, zone)
    if output != "table":
        out.print_value({"subject": subject, "happened": [_as_dict(found) for found in happened]}, output)
        return
    heads = ("time", "position", "event", "actor", "command", "outcome", "decided")
    out.print_table(heads, (_row(subject, found) for found in happened))


def _in_zone(happened: list[Happening], subject: str, zone: str) -> list[Happening]:
    """The events of the DPU with this name in the zone. Without a zone, all events are returned, and a note is
    printed if several zones had a DPU with this name."""
    homes = homes_of_dpu(happened, subject)
    if zone and zone not in homes:
        raise NotFoundError(f"subject: {quoted(subject)} was never a DPU of zone {quoted(zone)}")
    if zone:
        return of_home(happened, homes, zone)
    if len({*homes.values()}) > 1:
        names = f"{quoted(subject)} is or was the name of a DPU in each of the zones {', '.join(homes)}"
        click.echo(f"{names}; select one with --zone", err=True)
    return happened


async def _read(opening: AbstractAsyncContextManager[EventLog], subject: str) -> list[Happening]:
    with ProgressLine("history") as progress:

        def on_progress(done: int, total: int) -> None:
            progress.show(f"{done:,} of {total:,} records", done / max(total, 1))

        async with opening as log:
            return await history(log, folds_of(log.partition_count), subject, on_progress)


def _as_dict(found: Happening) -> dict[str, object]:
    items = [{"kind": item.kind, "subject": item.subject, **{"detail": dict(item.detail)}} for item in found.items]
    return {**found._asdict(), "items": items}


def _row(subject: str, found: Happening) -> tuple[object, ...]:
    time = format_time(found.time_ms)
    text = "; ".join(_item_text(subject, item) for item in found.items)
    if found.reason and found.reason not in text:
        text += f" ({found.reason})"
    position = f"{found.partition}/{found.offset}"
    return time, position, found.event, found.actor, found.command_id or "-", found.outcome, text


def _item_text(subject: str, item: DecisionItem) -> str:
    words = [item.kind, *([item.subject] if item.subject != subject else [])]
    return " ".join([*words, *(f"{key}={value}" for key, value in item.detail.items())])

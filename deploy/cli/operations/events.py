"""`dpuplane events`: prints and exports the events of the log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, NamedTuple

import click

from deploy.atomic_files import atomic_write
from deploy.cli.operations.log_options import log_errors, log_options
from deploy.cli.operations.remote_log import open_events
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import query_options_in
from deploy.cli.shared.output import check_stdout_reader, print_value
from deploy.cli.shared.param_types import Time, as_of, command_id, not_empty
from deploy.cli.shared.progress import ProgressLine
from deploy.cli.shared.watch import EVERY_S
from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.host.storage import LogSource
from deploy.operations.export.events import EXPORTED_TYPES, EventFilter, admitted_lines, as_json, batches, lines
from deploy.operations.export.events import tail as tailed
from deploy.operations.export.parquet import ParquetFile
from deploy.operations.export.rows import rows
from deploy.operations.past.folded_decisions import decision_batches, decision_lines
from deploy.serialization import yaml_text
from eventstore.as_of import format_time
from eventstore.log import Batch, EventLog

LAST_MAX = 100_000
_ALL = "--from-beginning"

_FILTERS = (
    click.option("--topic", "topics", multiple=True, type=click.Choice(TOPICS.with_events), help="Only this topic."),
    click.option(
        "--decisions",
        is_flag=True,
        help="Print the decision about each event, not the event. The log is folded again for this, and the decisions "
        "are those in the topic decisions on Kafka. Each has the time and the position of its event.",
    ),
    click.option(
        "--type",
        "types",
        multiple=True,
        type=click.Choice(sorted(EXPORTED_TYPES)),
        metavar="TYPE",
        help="Only events of this type, such as NodesJoined.",
    ),
    click.option(
        "--subject",
        callback=not_empty,
        default="",
        help="Only events about this zone, DPU, DOMAIN/CLIQUE or policy. For one node use `dpuplane history`.",
    ),
    click.option("--actor", callback=not_empty, default="", help="Only events of this principal."),
    click.option("--command", callback=command_id, default="", metavar="UUIDv7", help="Only events of this command."),
    click.option(
        "--since",
        "since_ms",
        type=Time(),
        default=0,
        metavar="TIME",
        help="Only events from this append time on: a time in ISO 8601 (UTC if it names no zone), in milliseconds, or "
        "10m for 10 minutes ago.",
    ),
    click.option(
        "--from",
        "start",
        callback=as_of,
        metavar="POSITION|TIME",
        help="Only events from this position or time on.",
    ),
    click.option("--until", callback=as_of, metavar="POSITION|TIME", help="Only events before this position or time."),
)


def filters(function: Any) -> Any:
    for option in reversed(_FILTERS):
        function = option(function)
    return function


@click.group()
def events() -> None:
    """Read the log's events, in order per partition: one line of JSON each (jsonl), or a YAML document.

    They come through the API, unless --data, --kafka, --config or a variable names the log.

    \b
    Example: dpuplane events tail --type NodesJoined --since 10m
    """


@events.command(epilog="Example: dpuplane events tail -n 20 --type NodesJoined --type NodesLeft")
@click.option(
    "-n", "last", type=click.IntRange(0, LAST_MAX), metavar="N", help="Begin with the last N of these events."
)
@click.option("--from-beginning", is_flag=True, help="Begin with the first event of the log.")
@filters
@log_options
@query_options_in("jsonl", "yaml")
def tail(
    client: Client, output: str, log_source: LogSource | None, last: int | None, from_beginning: bool, **wanted: Any
) -> None:
    """Print events as they are appended, until interrupted.

    Begins at the present end of the log; earlier with -n, --since, --from or --from-beginning.
    """
    given = {"-n": last is not None, "--since": wanted["since_ms"], "--from": wanted["start"], _ALL: from_beginning}
    starts = [option for option, value in given.items() if value not in (0, None, False)]
    if len(starts) > 1:
        raise click.UsageError(f"{starts[1]} and {starts[0]} both set the start: omit one")
    if wanted["until"] is not None and not starts:
        raise click.UsageError(
            f"--until: give -n, --since, --from or {_ALL} too: without one of them, tail begins at the end of the log"
        )
    if last and wanted["decisions"]:
        raise click.UsageError("-n: give --since or --from with --decisions: the log can only be folded in its order")
    from_end = None if starts and last is None else last or 0
    _print(open_events(client, log_source), _wanted(**wanted), output, wanted["decisions"], follow=True, last=from_end)


@events.command(epilog="Example: dpuplane events export --format parquet --out log.parquet")
@filters
@click.option(
    "--format",
    "kind",
    type=click.Choice(["lines", "parquet"]),
    default="lines",
    show_default=True,
    help="Lines of JSON, or a Parquet file (pip install 'dpuplane[analytics]').",
)
@click.option("--out", "path", type=click.Path(dir_okay=False, path_type=Path), help="File to write atomically.")
@click.option("--explode", is_flag=True, help="One row per node of an event, instead of one row per event.")
@log_options
@query_options_in("jsonl", "json", "yaml")
def export(
    *,
    client: Client,
    output: str,
    log_source: LogSource | None,
    kind: str,
    path: Path | None,
    explode: bool,
    **wanted: Any,
) -> None:
    """Print all present events of the log, or write them to a file; with -o json or yaml as one list.

    A Parquet file has one row per event: topic, partition, offset, appended_at, type, subject, actor, command_id,
    issued_at, and `event`, the other fields in JSON. With --explode, a join of a thousand nodes has a thousand rows,
    with item, node, zone, state, created_at, uid, address4, address6 and labels.
    """
    if kind == "parquet" and path is None:
        raise click.UsageError("give --out FILE with --format parquet: the format is binary")
    if explode and kind != "parquet":
        raise click.UsageError("give --format parquet with --explode: a line of JSON has a whole event")
    if path is None:
        _print(open_events(client, log_source), _wanted(**wanted), output, wanted["decisions"], follow=False)
        return
    with log_errors(), ProgressLine("export") as progress:
        export = _Export(open_events(client, log_source), _wanted(**wanted), wanted["decisions"], path)
        written = asyncio.run(_write(export, progress, kind=kind, explode=explode))
    if output == "jsonl":
        click.echo(f"{written:,} rows in {path}")
    else:
        print_value({"out": str(path), "rows": written}, output)


class _Export(NamedTuple):
    """An export: the log, the selected events, and the file."""

    opening: AbstractAsyncContextManager[EventLog]
    wanted: EventFilter
    decisions: bool
    path: Path


def _wanted(*, topics: tuple[str, ...], command: str, decisions: bool, **rest: Any) -> EventFilter:
    if decisions and topics:
        raise click.UsageError("--topic: leave it out with --decisions, which folds every topic that decides something")
    wanted = EventFilter(topics=topics, command_id=command, **rest)
    for option, first in (("--since", wanted.since_ms), ("--from", wanted.start)):
        if isinstance(first, int) and isinstance(wanted.until, int) and first > wanted.until:
            raise click.UsageError(f"{option}: {format_time(first)} is later than --until, {format_time(wanted.until)}")
    return wanted


def _lines(
    log: EventLog, wanted: EventFilter, decisions: bool, *, follow: bool, last: int | None
) -> AsyncGenerator[dict[str, object], None]:
    if decisions:
        return decision_lines(log, folds_of(log.partition_count), wanted, follow=follow, from_end=last is not None)
    return lines(log, wanted, follow=follow) if last is None else tailed(log, wanted, last=last)


def _print(
    opening: AbstractAsyncContextManager[EventLog],
    wanted: EventFilter,
    output: str,
    decisions: bool,
    *,
    follow: bool,
    last: int | None = None,
) -> None:
    """Print the selected events. With `last`, print only that many of the last events of the log, then new events."""

    async def show() -> None:
        async with opening as log:
            count = 0
            async for line in _lines(log, wanted, decisions, follow=follow, last=last):
                sys.stdout.write(_spelled(line, output, is_first=not count, is_endless=follow))
                count += 1
                if follow:
                    sys.stdout.flush()
            sys.stdout.write(_ending(output, count))

    with log_errors():
        asyncio.run(_while_read(show()) if follow else show())


async def _while_read(showing: Coroutine[Any, Any, None]) -> None:
    """Print until the end, or until stdout has no reader. The reader is checked at intervals, because a write would
    fail only at the next event, perhaps much later."""

    async def look() -> None:
        while True:
            check_stdout_reader()
            await asyncio.sleep(EVERY_S)

    tasks = (asyncio.create_task(showing), asyncio.create_task(look()))
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    done.pop().result()


async def _write(export: _Export, progress: ProgressLine, *, kind: str, explode: bool) -> int:
    opening, wanted, decisions, path = export
    with atomic_write(path) as partial:
        async with opening as log:
            folds, report = folds_of(log.partition_count), progress.show
            if decisions:
                found = decision_batches(log, folds, wanted, follow=False, report=report)
            else:
                found = batches(log, wanted, follow=False, report=report)
            if kind == "lines":
                return await _write_lines(found, wanted, partial)
            with ParquetFile(partial, explode=explode) as table:
                async with aclosing(found):
                    async for partition, records in found:
                        table.add(rows(partition, records, wanted, explode=explode))
        return table.rows


async def _write_lines(found: AsyncGenerator[Batch, None], wanted: EventFilter, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        async with aclosing(found):
            async for partition, records in found:
                for line in admitted_lines(wanted, partition, records):
                    file.write(f"{as_json(line)}\n")
                    count += 1
    return count


def _spelled(line: dict[str, object], output: str, *, is_first: bool, is_endless: bool) -> str:
    """The text of an event: a line of JSON, a YAML document, or an item of one list."""
    if output == "yaml":
        value = line if is_endless else [line]
        return yaml_text(value, explicit_start=is_endless)
    if output == "json":
        return ("[" if is_first else ",\n") + as_json(line)
    return f"{as_json(line)}\n"


def _ending(output: str, count: int) -> str:
    if output == "json" and count:
        return "]\n"
    return "" if count or output == "jsonl" else "[]\n"

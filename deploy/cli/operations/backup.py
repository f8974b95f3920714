"""`dpuplane backup` and `dpuplane restore`: copy the whole log into a folder, and create a log from that folder."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import click
import msgspec

from deploy.cli.operations.log_options import log_errors, log_options, log_source_of_status
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import query_options
from deploy.cli.shared.param_types import Folder
from deploy.cli.shared.progress import ProgressLine
from deploy.host.storage import LogSource
from deploy.operations.audit.backups import create_backup, restore_backup
from schemas.api import dpuplane_pb2 as pb

_FOLDER = Folder()


@click.command(epilog="Example: dpuplane backup --out backup-1")
@click.option("--out", "folder", type=_FOLDER, required=True, help="Folder to write; it must be empty or absent.")
@log_options
@query_options
def backup(client: Client, output: str, log_source: LogSource | None, folder: Path) -> None:
    """Copy the whole log into a folder while processes write it, at one consistent cut.

    Saved state is not copied: it is folded again from the log. `dpuplane restore` creates a log from the folder, on
    either engine. An incomplete copy has no manifest.json and is not accepted as a backup.
    """
    with log_errors():
        where = log_source or log_source_of_status(client.query("GetStatus", pb.GetStatusRequest()), client.server)
        with ProgressLine("backup") as progress:
            made = asyncio.run(
                create_backup(where, folder, time.time_ns() // 1_000_000, random.Random(), progress.show)
            )
    records = sum(copied.records for copied in made.partitions.values())
    if output != "table":
        out.print_value({"out": str(folder), "records": records, **msgspec.to_builtins(made)}, output)
        return
    size = sum(copied.bytes for copied in made.partitions.values())
    out.print_fields(
        [
            ("log", f"{made.log_id}, generation {made.generation}"),
            ("copied", f"{records:,} records of {len(made.partitions)} partitions, {size:,} bytes"),
            ("written", str(folder)),
        ]
    )


@click.command(epilog="Example: dpuplane restore --from backup-1 --data plane-2")
@click.option("--from", "folder", type=_FOLDER, required=True, help="Folder of a backup.")
@click.option(
    "--generation",
    type=click.IntRange(1, 1 << 53),
    help="Generation of the new log; above that of every log that DPUs may have seen.  [the time in ms]",
)
@click.option("--thawed", is_flag=True, help="Write to devices at once, without `dpuplane thaw --all`.")
@click.option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@log_options
def restore(log_source: LogSource | None, folder: Path, generation: int | None, thawed: bool, output: str) -> None:
    """Create a log from a backup, in an empty folder (--data) or under a new prefix of topics (--kafka,
    --topic-prefix).

    Every record is checked against the backup's hashes before anything is written. The new log has a later generation,
    so that every DPU accepts its tables as newer. It starts frozen: no device is written to before
    `dpuplane thaw --all`. Run `dpuplane verify` first: it names the devices whose tables are newer than the backup.
    """
    if log_source is None:
        raise click.UsageError("give --data DIR, or --kafka HOST:PORT,... and --topic-prefix NAME, as the target")
    with log_errors(), ProgressLine("restore") as progress:
        restored = asyncio.run(
            restore_backup(
                folder,
                log_source,
                generation=generation,
                frozen=not thawed,
                now_ms=time.time_ns() // 1_000_000,
                rng=random.Random(),
                report=progress.show,
            )
        )
    origin = restored.origin
    if output != "table":
        as_dict = {"log_id": origin.log_id, "generation": origin.generation, "parent": origin.parent}
        out.print_value(
            {**as_dict, "records": restored.records, "frozen": not thawed, "place": str(log_source)}, output
        )
        return
    out.print_fields(
        [
            ("log", f"{origin.log_id}, generation {origin.generation}"),
            ("restored", f"{restored.records:,} records to {log_source}"),
            ("devices", "are written to at once" if thawed else "are not written to until `dpuplane thaw --all`"),
        ]
    )

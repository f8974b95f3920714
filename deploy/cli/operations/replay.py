"""`dpuplane replay`: folds the log again, up to any position or time, and prints the digests."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from deploy.cli.operations.log_options import log_errors, log_options, log_source_of_status
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import query_options
from deploy.cli.shared.param_types import as_of
from deploy.cli.shared.progress import ProgressLine
from deploy.composition.roles import folds_of
from deploy.host.storage import LogSource, open_log_to_read
from deploy.telemetry.logs import logging_here
from eventstore.as_of import AsOf, check_not_in_future
from eventstore.folding.origin import wait_for_origin
from eventstore.log import EventLog, Partition
from eventstore.recovery.cuts import cut_of
from eventstore.recovery.replay import ReplayResult, replay
from schemas.api import dpuplane_pb2 as pb


@click.command(name="replay", epilog="Example: dpuplane replay --data plane")
@click.option(
    "--as-of",
    callback=as_of,
    metavar="POSITION|TIME",
    help="Stop at this position or time.  [the present end of the log]",
)
@log_options
@query_options
def replay_command(client: Client, output: str, log_source: LogSource | None, as_of: AsOf | None) -> None:
    """Fold the log again; print the position and the digest of every partition, and the speed.

    POSITION is the token of a response; TIME is ISO 8601, UTC if it names no zone, or milliseconds since the epoch.
    """
    where = log_source or log_source_of_status(client.query("GetStatus", pb.GetStatusRequest()), client.server)
    level = "WARNING" if sys.stderr.isatty() else "INFO"  # a terminal shows the progress line
    with log_errors(), logging_here(level):
        replayed = asyncio.run(_replay(where, as_of))
    if output != "table":
        out.print_value(_as_dict(replayed), output)
    else:
        out.print_table(
            ("partition", "position", "fold", "quarantined", "digest"),
            [
                (str(p), f.position, f.version, f.quarantined, f.halted or _digest(replayed, p))
                for p, f in sorted(replayed.partitions.items())
            ],
        )
        rate = replayed.records / replayed.seconds if replayed.seconds else 0.0
        click.echo(f"{replayed.records:,} records, {replayed.bytes:,} bytes, {replayed.seconds:.2f} s, {rate:,.0f}/s")
    sys.exit(1 if any(folded.halted for folded in replayed.partitions.values()) else 0)


async def _replay(log_source: LogSource, as_of: AsOf | None) -> ReplayResult:
    async with open_log_to_read(log_source, rng=random.Random()) as log:
        until = None if as_of is None else await _cut(log, as_of)
        with ProgressLine("replay") as progress:
            return await replay(log, folds_of(log.partition_count), until=until, report=progress.show)


async def _cut(log: EventLog, as_of: AsOf) -> Mapping[Partition, int]:
    check_not_in_future(as_of, time.time_ns() // 1_000_000)
    origin = await wait_for_origin(log)
    return (await cut_of(log, origin.log_id, log.topics.folded, as_of)).offsets


def _digest(replayed: ReplayResult, partition: Partition) -> str:
    digests = replayed.digests.get(partition, {})
    return digests[max(digests)] if digests else ""


def _as_dict(replayed: ReplayResult) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(partition),
                "position": folded.position,
                "digest": _digest(replayed, partition),
                "fold_version": folded.version,
                "quarantined": folded.quarantined,
                "halted": folded.halted,
            }
            for partition, folded in sorted(replayed.partitions.items())
        ],
        "records": replayed.records,
        "bytes": replayed.bytes,
        "seconds": replayed.seconds,
    }

"""`dpuplane checkpoint`: a small signed file about the content of the log, for `verify --checkpoint`."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from deploy.atomic_files import atomic_write
from deploy.cli.operations.log_options import log_errors, log_options, log_source_of_status
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import query_options
from deploy.cli.shared.progress import ProgressLine
from deploy.host.storage import LogSource, open_log_to_read
from deploy.operations.audit.audit_checkpoints import CheckpointContent, describe_log, new_keys, signed
from schemas.api import dpuplane_pb2 as pb

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(
    invoke_without_command=True,
    epilog="Example: dpuplane checkpoint --key plane.key --out plane.checkpoint",
)
@click.option("--key", type=_FILE, help="Ed25519 private key in PEM; `checkpoint keygen` creates one.")
@click.option("--out", "path", type=_FILE, help="File to write.")
@click.option(
    "--hashes/--no-hashes",
    default=True,
    show_default=True,
    help="Also write a hash of every record (8 bytes each) to FILE.hashes: `verify` then names a differing record.",
)
@log_options
@query_options
@click.pass_context
def checkpoint(
    context: click.Context,
    *,
    client: Client,
    output: str,
    log_source: LogSource | None,
    key: Path | None,
    path: Path | None,
    hashes: bool,
) -> None:
    """Write a signed file about the present content of every partition that is kept for ever.

    Keep the file and the key out of reach of everyone who can write to the log. `dpuplane verify --checkpoint FILE`
    later proves that the log still begins with this content, and names the first record that differs.
    """
    if context.invoked_subcommand is not None:
        return
    if key is None or path is None:
        raise click.UsageError("give --key FILE to sign with and --out FILE to write")
    with log_errors():
        where = log_source or log_source_of_status(client.query("GetStatus", pb.GetStatusRequest()), client.server)
        made = asyncio.run(_write(where, key, path, hashes=hashes))
    _print(made, path, output)


@checkpoint.command(epilog="Example: dpuplane checkpoint keygen --key plane.key")
@click.option(
    "--key", type=_FILE, required=True, help="File of the private key; the public key is written to FILE.pub."
)
def keygen(key: Path) -> None:
    """Create the private key that signs, and the public key that verifies."""
    public = key.with_name(f"{key.name}.pub")
    with log_errors():
        new_keys(key, public)
    click.echo(f"{key} signs, {public} verifies")


async def _write(log_source: LogSource, key: Path, path: Path, *, hashes: bool) -> CheckpointContent:
    beside = path.with_name(f"{path.name}.hashes")
    async with open_log_to_read(log_source, rng=random.Random()) as log:
        with (
            atomic_write(path) as partial,
            atomic_write(beside) if hashes else nullcontext() as kept,
            ProgressLine("checkpoint") as progress,
        ):
            made = await describe_log(log, time.time_ns() // 1_000_000, kept, progress.show)
            partial.write_bytes(signed(made, key))
    return made


def _print(made: CheckpointContent, path: Path, output: str) -> None:
    records = sum(attestation.end for attestation in made.partitions.values())
    if output != "table":
        as_dict: dict[str, Any] = {
            "out": str(path),
            "log_id": made.log_id,
            "generation": made.generation,
            "records": records,
            "partitions": {name: attestation.end for name, attestation in made.partitions.items()},
        }
        out.print_value(as_dict, output)
        return
    out.print_fields(
        [
            ("log", f"{made.log_id}, generation {made.generation}"),
            ("signed", f"{records:,} records of {len(made.partitions)} partitions"),
            ("written", str(path)),
        ]
    )

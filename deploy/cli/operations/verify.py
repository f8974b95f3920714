"""`dpuplane verify`: folds the whole log again, and compares replicas and devices with it."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import msgspec

from deploy.cli.operations.log_options import log_errors, log_options, log_source_of_status
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import Refused, Unreachable
from deploy.cli.shared.options import query_options
from deploy.cli.shared.progress import ProgressLine
from deploy.cli.shared.sentence_groups import group_sentences
from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.host.storage import LogSource, open_log_to_read
from deploy.operations.audit.audit_checkpoints import ProofResult, load, prove
from deploy.operations.audit.verification import (
    DeviceComparison,
    RefoldedLog,
    ReplicaDigest,
    compare_devices,
    refold_log,
)
from eventstore.folding.origin import wait_for_origin
from eventstore.log import Partition
from eventstore.replicas.lineage import lineage_of
from projections.rules.rule import Held, Holdings
from schemas.api import dpuplane_pb2 as pb

SHOWN = 50
TRIES = 5
BETWEEN_TRIES_S = 1.0


class Live(NamedTuple):
    """The reports of the running plane; empty if it does not run."""

    replica_digests: list[ReplicaDigest]
    devices: Holdings
    is_running: bool
    log_id: str = ""


class Verdict(NamedTuple):
    """The compared items, and every difference as one sentence."""

    fresh: RefoldedLog
    devices: DeviceComparison
    is_running: bool

    @property
    def differences(self) -> list[str]:
        return [*self.fresh.differences, *self.devices.differences]


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog="Example: dpuplane verify --data plane")
@click.option("--checkpoint", type=_FILE, help="Prove only that the log begins with the records of this checkpoint.")
@click.option("--public-key", type=_FILE, help="Public key of the checkpoint.")
@log_options
@query_options
def verify(
    client: Client, output: str, log_source: LogSource | None, checkpoint: Path | None, public_key: Path | None
) -> None:
    """Fold the log again; compare every digest with the live state, every DPU with its table, and zones with fleet.

    The command reads the log directly, and asks a server (--server) for the digests of replicas and DPUs. With --data
    or --kafka and without a server, it only folds the log and compares zones with fleet: each node must have the same
    zone and state in both, and a node that left must be in no zone. It prints each difference, and one line about all
    that is equal; exit status 1 if there is a difference. With --checkpoint it folds nothing. It compares the log with
    the signed hashes and prints whether they differ; with the file FILE.hashes, it names the first record that differs.
    """
    if (checkpoint is None) != (public_key is None):
        raise click.UsageError("give both --checkpoint FILE and --public-key FILE")
    if checkpoint is not None and public_key is not None:
        _verify_checkpoint(client, log_source, output, checkpoint, public_key)
    with log_errors():
        verdict = asyncio.run(_verify(client, log_source))
    differences = verdict.differences
    if output == "table":
        out.print_fields(_rows(verdict))
    else:
        out.print_value(_as_dict(verdict), output)
    _end(differences)


def _verify_checkpoint(
    client: Client, log_source: LogSource | None, output: str, checkpoint: Path, public_key: Path
) -> NoReturn:
    with log_errors():
        statement = load(checkpoint, public_key)
        where = log_source or log_source_of_status(client.query("GetStatus", pb.GetStatusRequest()), client.server)
        hashes = checkpoint.with_name(f"{checkpoint.name}.hashes")

        async def run() -> ProofResult:
            with ProgressLine("verify") as progress:
                async with open_log_to_read(where, rng=random.Random()) as log:
                    return await prove(log, statement, hashes if hashes.exists() else None, progress.show)

        proven = asyncio.run(run())
    if output == "table":
        rows = [("signed", f"log {statement.log_id}, generation {statement.generation}")]
        rows += [("restored to", proven.restored)] if proven.restored else []
        out.print_fields([*rows, ("proven", f"{proven.records:,} records are as they were signed")])
    else:
        out.print_value({**msgspec.to_builtins(proven), "equal": not proven.differences}, output)
    _end(proven.differences)


def _end(differences: list[str]) -> NoReturn:
    lines = group_sentences(differences)
    for line in lines[:SHOWN]:
        click.echo(line, err=True)
    if len(lines) > SHOWN:
        all_of_them = f"{len(differences):,} differences in total; -o json lists them"
        click.echo(f"and {len(lines) - SHOWN:,} more lines; {all_of_them}", err=True)
    sys.exit(1 if differences else 0)


async def _verify(client: Client, log_source: LogSource | None) -> Verdict:
    """Fold the log and compare it with the live plane, at most TRIES times while only devices differ: devices need some
    seconds to receive changes while the log grows."""
    for left in reversed(range(TRIES)):
        live, where = _live(client, log_source)
        async with open_log_to_read(where, rng=random.Random()) as log:
            origin = await wait_for_origin(log)
            if live.is_running and live.log_id != origin.log_id:
                is_of = f"{client.server} serves log {live.log_id}, and this is log {origin.log_id}"
                raise Refused(f"log: {is_of}; name a server of this log with --server, or omit the place of the log")
            with ProgressLine("verify") as progress:
                fresh = await refold_log(log, folds_of(log.partition_count), live.replica_digests, progress.show)
            lineage = lineage_of(origin)
        devices = compare_devices(fresh, lineage, live.devices)
        if fresh.differences or not devices.differences or not left:
            break
        await asyncio.sleep(BETWEEN_TRIES_S)
    return Verdict(fresh, devices, live.is_running)


def _live(client: Client, log_source: LogSource | None) -> tuple[Live, LogSource]:
    try:
        status = client.query("GetStatus", pb.GetStatusRequest())
        held: dict[str, dict[str, Held]] = {}
        for page in client.query("ListDevices", pb.ListDevicesRequest()):
            for device in page.devices:
                has = Held(device.epoch, device.version, bytes.fromhex(device.digest))
                held.setdefault(device.zone, {})[device.dpu] = has
    except Unreachable:
        if log_source is None:
            raise
        return Live([], {}, False), log_source
    claims = [
        ReplicaDigest(replica.name, _partition(part.partition), part.digest_position, part.digest)
        for replica in status.replicas
        for part in replica.partitions
        if part.partition.split("/")[0] in TOPICS.deciding and not part.halted
    ]
    return Live(claims, held, True, status.log_id), log_source or log_source_of_status(status, client.server)


def _partition(text: str) -> Partition:
    topic, _, number = text.partition("/")
    return Partition(topic, int(number))


def _rows(verdict: Verdict) -> list[tuple[str, str]]:
    replayed, devices = verdict.fresh.replayed, verdict.devices
    rows = [("folded", f"{replayed.records:,} records, {replayed.bytes:,} bytes, in {replayed.seconds:.2f} s")]
    nodes = verdict.fresh.agreement
    rows.append(("nodes equal in zones and fleet", f"{nodes.equal:,}"))
    rows.append(("nodes under way or held", f"{nodes.pending:,} under way, {nodes.held:,} held"))
    if nodes.leave_rejected or nodes.change_rejected:
        counts = f"{nodes.leave_rejected:,} leave rejected, {nodes.change_rejected:,} change rejected"
        rows.append(("nodes of rejected holds", counts))
    if verdict.is_running:
        rows.append(("states compared", f"{verdict.fresh.replica_digests}"))
        rows.append(("DPUs equal to the log", f"{devices.equal:,}"))
        rows.append(("DPUs not connected", f"{len(devices.absent):,}"))
    else:
        rows.append(("plane", "not running: states and DPUs were not compared"))
    rows.append(("differences", f"{len(verdict.differences)}"))
    return rows


def _as_dict(verdict: Verdict) -> dict[str, Any]:
    replayed, devices, nodes = verdict.fresh.replayed, verdict.devices, verdict.fresh.agreement
    return {
        "records": replayed.records,
        "bytes": replayed.bytes,
        "seconds": replayed.seconds,
        "running": verdict.is_running,
        "states_compared": verdict.fresh.replica_digests,
        "nodes_equal": nodes.equal,
        "nodes_pending": nodes.pending,
        "nodes_held": nodes.held,
        "nodes_leave_rejected": nodes.leave_rejected,
        "nodes_change_rejected": nodes.change_rejected,
        "nodes_differing": [{"what": group.what, "names": list(group.names)} for group in nodes.groups],
        "devices_equal": devices.equal,
        "devices_absent": len(devices.absent),
        "differences": verdict.differences,
        "equal": not verdict.differences,
    }

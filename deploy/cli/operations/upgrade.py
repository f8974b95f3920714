"""`dpuplane upgrade`: upgrades fold versions once every process supports the new ones, or previews the upgrade."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import click

from commands.fold_versions import first_missing_version
from deploy.cli.operations.log_options import log_errors, log_options, log_source_of_status
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import REFUSED
from deploy.cli.shared.options import command_options
from deploy.cli.shared.results import Part, exit_status, finish, merged_result, sentence
from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.host.storage import LogSource, open_log_to_read
from deploy.operations.audit.upgrade_preview import PartitionPreview, preview_upgrade
from deploy.telemetry.logs import logging_here
from schemas.api import dpuplane_pb2 as pb

NOTHING = "nothing to upgrade: every partition has the latest fold version of this program"


@click.command(epilog="Example: dpuplane upgrade --dry-run")
@click.option("--topic", type=click.Choice(TOPICS.folded), help="Only this topic.  [every topic]")
@click.option("--version", type=click.IntRange(1), help="The new fold version.  [the latest of this program]")
@click.option("--dry-run", is_flag=True, help="Preview the effect, and list replicas that are not ready.")
@log_options
@command_options
def upgrade(
    *, client: Client, output: str, log_source: LogSource | None, topic: str | None, version: int | None, dry_run: bool
) -> None:
    """Upgrade the fold version of the log's partitions: later rules apply from the next record on.

    Replace every process first: the plane refuses while a live replica lacks the rules, and names it. An upgrade cannot
    be undone. --dry-run folds the log in this process, and shows the changes of states and rule tables that the upgrade
    alone would cause; exit status 1 if it would be refused.
    """
    if (
        log_source is not None and not dry_run
    ):  # an upgrade cannot be undone, and this one would be of another log than the given one
        raise click.UsageError(
            "--data and --kafka need --dry-run: without it, the plane at --server upgrades its own log"
        )
    status: pb.Status = client.query("GetStatus", pb.GetStatusRequest())
    wanted = _wanted(status, topic, version)
    if dry_run:
        _show(client, status, log_source, wanted, output)
        return
    if not wanted:
        finish(pb.CommandResult(outcome=pb.OUTCOME_UNCHANGED, reason=NOTHING), output)
    parts: list[Part] = []
    for name, to_version in wanted.items():
        answer = client.command("UpgradeFoldVersion", pb.UpgradeFoldVersionRequest(topic=name, version=to_version))
        parts.append(([name], answer))
        if exit_status(answer):
            break
        if len(wanted) > 1:
            click.echo(f"{name}: {sentence(answer)}", err=True)
    finish(merged_result(parts), output)


def _wanted(status: pb.Status, topic: str | None, version: int | None) -> dict[str, int]:
    """The new version of each topic; topics that already have it are left out."""
    latest: dict[str, int] = {}
    for fold in folds_of(status.log.partition_count):
        latest[fold.topic] = max(fold.version, latest.get(fold.topic, 0))
    now = _versions(status)
    found = {name: version or latest[name] for name in TOPICS.folded if topic in (None, name)}
    return {name: to_version for name, to_version in found.items() if now.get(name, to_version) < to_version}


def _versions(status: pb.Status) -> dict[str, int]:
    """The lowest fold version of each topic's partitions, on the responding replica."""
    found: dict[str, int] = {}
    for replica in status.replicas:
        if replica.name == status.replica:
            for part in replica.partitions:
                topic = part.partition.partition("/")[0]
                found[topic] = min(part.fold_version, found.get(topic, part.fold_version))
    return found


def _unready(status: pb.Status, wanted: dict[str, int]) -> list[str]:
    """Live replicas that lack rules of the upgrade, one sentence each."""
    now, found = _versions(status), []
    for replica in status.replicas:
        for topic, to_version in wanted.items():
            supports = list(replica.supports[topic].versions) if topic in replica.supports else None
            if lacks := first_missing_version(supports, now.get(topic, 1), to_version):
                found.append(f"{replica.name} ({replica.version}) does not support fold version {lacks} of {topic}")
    return found


def _show(client: Client, status: pb.Status, log_source: LogSource | None, wanted: dict[str, int], output: str) -> None:
    where = log_source or log_source_of_status(status, client.server)
    with log_errors(), logging_here("CRITICAL"):  # the table lists halted partitions
        changes = asyncio.run(_dry_run(where, wanted))
    unready = _unready(status, wanted)
    if output == "table":
        _print(changes, unready)
    else:
        as_dict = [{**each._asdict(), "partition": str(each.partition)} for each in changes]
        for each in as_dict:
            each["rows"] = [found._asdict() for found in each["rows"]]
            each["tables"] = [found._asdict() for found in each["tables"]]
        out.print_value({"raises": as_dict, "unready": unready, "ready": not unready}, output)
    refused = unready or any(each.halted for each in changes)
    click.get_current_context().exit(REFUSED if refused else 0)


async def _dry_run(log_source: LogSource, wanted: dict[str, int]) -> list[PartitionPreview]:
    async with open_log_to_read(log_source, rng=random.Random()) as log:
        return await preview_upgrade(log, folds_of(log.partition_count), wanted) if wanted else []


def _print(changes: Sequence[PartitionPreview], unready: Sequence[str]) -> None:
    if not changes:
        click.echo(NOTHING)
    rows: list[tuple[Any, ...]] = [
        (
            str(each.partition),
            each.from_version,
            each.to_version,
            sum(found.total for found in each.rows),
            len(each.tables),
            each.halted,
        )
        for each in changes
    ]
    if rows:
        out.print_table(("partition", "from", "to", "rows changed", "rule tables changed", "halts"), rows)
    for each in changes:
        for found in each.rows:
            click.echo(f"{each.partition}: {found.total:,} rows of {found.table}: {', '.join(found.keys)}")
        for zone in each.tables:
            click.echo(f"zone {zone.zone}: {zone.added:,} prefixes added, {zone.removed:,} removed")
            for example in zone.examples:
                click.echo(f"  {example}")
    for said in unready:
        click.echo(f"not ready: {said}", err=True)

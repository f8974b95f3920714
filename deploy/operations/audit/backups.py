"""Creates and restores backups of a whole log. No file is overwritten."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from deploy.atomic_files import atomic_write, sync_folder
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER, LogSource, open_log_to_read
from eventstore.errors import PermanentError
from eventstore.folding.origin import wait_for_origin
from eventstore.kafka.clients import Clients
from eventstore.progress import ReportProgress
from eventstore.recovery.backup import FORMAT, MANIFEST, Manifest, check, copy, load_manifest
from eventstore.recovery.restore import RestoreResult, plan_restore, restore_to_folder, restore_to_kafka
from projections.field_checks import quoted

_CLOSE_S = 5.0


async def create_backup(
    log_source: LogSource, folder: Path, now_ms: int, rng: random.Random, report: ReportProgress
) -> Manifest:
    """Copy a log into a folder. Raises PermanentError if the folder is not empty."""
    _check_empty(folder, "out")
    async with open_log_to_read(log_source, rng=rng) as log:
        origin = await wait_for_origin(log)
        _make(folder, "out")
        try:
            copied = await copy(log, folder, report)
        except OSError as error:
            raise PermanentError(f"out: {folder} cannot be written: {error.strerror or error}") from error
    manifest = Manifest(
        format=FORMAT,
        log_id=origin.log_id,
        generation=origin.generation,
        parent=origin.parent,
        partition_count=origin.partition_count,
        made_at_ms=now_ms,
        partitions=copied,
    )
    with atomic_write(folder / MANIFEST) as path:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


async def restore_backup(
    folder: Path,
    log_source: LogSource,
    *,
    generation: int | None,
    frozen: bool,
    now_ms: int,
    rng: random.Random,
    report: ReportProgress,
) -> RestoreResult:
    """Create a log from a backup, in an empty folder or in new topics. Raises PermanentError, also if the records of a
    partition no longer match the manifest."""
    manifest = load_manifest(folder)
    plan = plan_restore(TOPICS, folder, manifest, generation=generation, frozen=frozen, now_ms=now_ms, rng=rng)
    if log_source.data is not None:
        _check_empty(log_source.data, "data", but=f"{LOG_FOLDER}.restoring")
        check(folder, manifest, report)
        _make(log_source.data, "data")
        restored = restore_to_folder(plan, log_source.data / LOG_FOLDER, report)
        sync_folder(log_source.data)
        return restored
    check(folder, manifest, report)
    clients = Clients(log_source.kafka, rng, log_source.security.options)
    try:
        return await restore_to_kafka(plan, clients, log_source.topic_prefix, report)
    finally:
        await clients.close(_CLOSE_S)


def _check_empty(folder: Path, name: str, but: str = "") -> None:
    try:
        found = next((entry.name for entry in folder.iterdir() if entry.name != but), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PermanentError(f"{name}: {folder} cannot be used: {error.strerror}") from error
    if found is not None:
        raise PermanentError(f"{name}: {folder} must be empty, and holds {quoted(found)}: no file is overwritten")


def _make(folder: Path, name: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(f"{name}: {folder} cannot be created: {error.strerror}") from error

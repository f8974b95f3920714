"""Damaged files of the plane, and the settings of a process.

The targets add correct hashes and signatures to the inputs. Otherwise no input would reach the code after these checks.
"""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import msgspec

from deploy.cli.changes.policies import read_policies
from deploy.cli.shared.errors import Refused
from deploy.operations.audit.audit_checkpoints import CheckpointContent, load, new_keys, signed
from deploy.settings.settings import BadSettings, load_settings
from drivers.agents.saved_file import _hash as hash_of_table
from drivers.agents.store import FileTableStore
from eventstore.errors import PermanentError
from eventstore.log import ZONES
from eventstore.recovery.backup import MANIFEST, check, load_manifest, read_records, write_record
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import digest_bytes
from projections.rules.device_table import EMPTY_TABLE, digest_of
from tests.fuzz.framing import split
from tests.fuzz.log_targets import partition, records_of
from tests.fuzz.seeds_log import lifecycle
from tests.fuzz.target import Target, check_refusal
from tests.support.delivered import ran
from tests.support.memory_disk import DiskStore, Saved
from tests.support.toy_records import T0


def _folder() -> Path:
    """A folder of this process, in memory if possible. Each forked process gets its own."""
    return _folder_of(os.getpid())


@lru_cache
def _folder_of(_process: int) -> Path:
    folder = Path(mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def backup_records(data: bytes) -> bool:
    """The records of one partition in a backup. Accepted records are equal after they are written and read again."""
    path = _folder() / "fleet-0.records"
    path.write_bytes(data)
    try:
        records = list(read_records(path))
    except PermanentError as error:
        check_refusal(error)
        return False
    again = BytesIO()
    for record in records:
        write_record(again, record)
    path.write_bytes(again.getvalue())
    assert list(read_records(path)) == records
    return bool(records)


def backup_manifest(data: bytes) -> bool:
    """A backup's manifest, compared with its files. There are no files, so a manifest with records is refused."""
    (_folder() / MANIFEST).write_bytes(data)
    try:
        manifest = load_manifest(_folder())
        check(_folder(), manifest, lambda doing, share: None)
    except PermanentError as error:
        check_refusal(error)
        return False
    return True


def agent_table(data: bytes) -> bool:
    """An agent's persisted table. With any file content, the agent starts with a whole table or without one."""
    path = _folder() / "table"
    path.write_bytes(hash_of_table(data) + data)
    store = FileTableStore(path, "dpu-1", "rack-1")
    table = store.load()
    if table is EMPTY_TABLE:
        return False
    store.save(table)
    assert store.load() == table
    assert len(digest_of(table.rules)) == 16
    return True


def saved_rows(data: bytes) -> bool:
    """The saved state of a zones partition with damaged rows. It is ignored with a log line, or loaded with the right
    digest.

    The number of each part selects what the part replaces: a row, the ids, or the head.
    """
    store, folded = DiskStore(), partition(ZONES)
    store.disk.partitions = _saved().disk.copy()
    saved = store.disk.partitions[folded.partition]
    keys = _keys_of(saved)
    for part in split(data):
        which = part.number % (len(keys) + 2)
        if which < len(keys):
            table, key = keys[which]
            saved.rows[table][key] = part.content
        elif which == len(keys):
            saved.ids = {T0 // 60_000: [part.content]}
        else:
            saved.head = part.content
    found = ran(load_partition(folded, store))
    if found is not None:
        head = store.head(folded.partition)
        assert head is not None and digest_bytes(found.digest) == head.digest
        assert found.position == head.position
    return found is not None


@lru_cache
def _saved() -> DiskStore:
    """A saved zones partition with every kind of row."""
    store, folded = DiskStore(), partition(ZONES)
    for record in records_of(lifecycle()):
        folded.fold(record)
    ran(save(folded, store))
    return store


def first_rows(count: int) -> list[tuple[int, bytes]]:
    """The numbers and contents of the first rows, as parts of an input."""
    [saved] = _saved().disk.partitions.values()
    return [(number, saved.rows[table][key]) for number, (table, key) in enumerate(_keys_of(saved)[:count])]


def _keys_of(saved: Saved) -> list[tuple[str, str]]:
    """All rows, by table and key."""
    return sorted((table, key) for table, rows in saved.rows.items() for key in rows)


def checkpoint(data: bytes) -> bool:
    """A checkpoint file, signed with the key of the test."""
    key, public, path = _keys()
    try:
        statement = msgspec.json.decode(data, type=CheckpointContent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        path.write_bytes(data)
    else:
        path.write_bytes(signed(statement, key))
    try:
        found = load(path, public)
    except PermanentError as error:
        check_refusal(error)
        return False
    assert signed(found, key) == path.read_bytes()
    return True


@lru_cache
def _keys() -> tuple[Path, Path, Path]:
    folder = _folder()
    new_keys(folder / "key.pem", folder / "public.pem")
    return folder / "key.pem", folder / "public.pem", folder / "checkpoint"


def settings(data: bytes) -> bool:
    """The settings of a process. An input has lines NAME=VALUE of the environment, an empty line, and a YAML file."""
    lines, _, content = data.partition(b"\n\n")
    environment = {}
    for line in lines.decode(errors="surrogateescape").splitlines():
        name, _, value = line.partition("=")
        environment[f"DPUPLANE_{name}"] = value
    path = _folder() / "config.yaml"
    path.write_bytes(content)
    try:
        found = load_settings({}, path if content else None, environment)
    except BadSettings as error:
        check_refusal(error)
        return False
    assert (found.data is None) == bool(found.kafka)
    assert found.listen.is_loopback or found.insecure or found.tls_cert is not None
    return True


def policies(data: bytes) -> bool:
    """A file of policies, as the command line reads it."""
    try:
        found = read_policies(data.decode(), "policies.yaml")
    except UnicodeDecodeError:
        return False
    except Refused as error:
        check_refusal(error)
        return False
    assert all(policy.message().name == policy.name for policy in found)
    return True


TARGETS = (
    Target("backup-records", backup_records),
    Target("backup-manifest", backup_manifest),
    Target("agent-table", agent_table),
    Target("saved-rows", saved_rows),
    Target("checkpoint", checkpoint),
    Target("settings", settings, max_bytes=2_048),
    Target("policies", policies, max_bytes=2_048),
)

"""A signed checkpoint against logs that were changed without the plane: each change is detected and named."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rocksdict import AccessType

from deploy.cli import cli
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER
from eventstore.embedded.log import EmbeddedLog
from eventstore.embedded.rocks import LogRow, Rocks, open_rocks
from eventstore.log import FLEET_0, Partition, Record
from tests.support.embedded import Clock
from tests.support.sample_log import PARTITIONS, ZONES_0, ZONES_1, write_sample_log


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log, keys, and a checkpoint with a hash of every record, or without them (`rough`)."""
    folder = tmp_path / "plane"
    asyncio.run(write_sample_log(folder, records=40))
    assert run("checkpoint", "keygen", "--key", tmp_path / "key").exit_code == 0
    for name, more in (("fine", ()), ("rough", ("--no-hashes",))):
        made = run("checkpoint", "--key", tmp_path / "key", "--out", tmp_path / name, "--data", folder, *more)
        assert made.exit_code == 0, made.output
    return folder


def verify(data: Path, name: str = "fine", key: str = "key.pub") -> Result:
    beside = data.parent
    return run("verify", "--checkpoint", beside / name, "--public-key", beside / key, "--data", data)


def rewritten(data: Path, partition: Partition, change: Callable[[list[Record]], Iterable[Record]]) -> None:
    """Edit the rows of a partition with the RocksDB library alone."""
    rocks = open_rocks(data / LOG_FOLDER, AccessType.read_write())
    try:
        records = rocks.scan(partition, 0, rocks.bounds(partition).end)
        put(rocks, partition, change(records))
    finally:
        rocks.close()


def copied_up_to(data: Path, ends: dict[Partition, int]) -> None:
    """Replace the log by a copy in which these partitions end earlier."""
    old = (data / LOG_FOLDER).rename(data / "old")
    source, target = (open_rocks(path, AccessType.read_write()) for path in (old, data / LOG_FOLDER))
    try:
        target.write_header(PARTITIONS)
        for partition, bounds in source.all_bounds(TOPICS.all_partitions(PARTITIONS)).items():
            end = ends.get(partition, bounds.end)
            put(target, partition, source.scan(partition, 0, end) if end else [])
    finally:
        source.close()
        target.close()


def put(rocks: Rocks, partition: Partition, records: Iterable[Record]) -> None:
    rocks.write([LogRow(partition, *each) for each in records])


def test_an_unchanged_log_is_proven_even_if_it_has_grown(data: Path) -> None:
    async def grow() -> None:
        async with EmbeddedLog.open(TOPICS, data / LOG_FOLDER, now_ms=Clock(1_800_000_000_000)) as log:
            await log.append(ZONES_0, b"zone-1", b"whatever comes later")

    asyncio.run(grow())
    for name in ("fine", "rough"):
        proven = verify(data, name)
        assert (proven.exit_code, proven.stderr) == (0, ""), proven.output
        assert "records are as they were signed" in proven.stdout


@pytest.mark.parametrize("what", ["value", "key", "time"])
def test_an_edited_record_is_named(data: Path, what: str) -> None:
    def edit(records: list[Record]) -> list[Record]:
        old = records[17]
        new = {
            "value": old._replace(value=old.value[:-1] + bytes((old.value[-1] ^ 1,))),
            "key": old._replace(key=b"zone-3"),
            "time": old._replace(timestamp_ms=old.timestamp_ms + 1),
        }
        return [new[what]]

    rewritten(data, ZONES_0, edit)
    found = verify(data)
    assert found.exit_code == 1
    assert found.stderr == "zones/0: record 17 differs: the record changed\n"
    rough = verify(data, "rough")
    assert rough.exit_code == 1
    assert "zones/0: the first record that differs is one of 0 to 40" in rough.stderr


def test_swapped_records_are_named_by_the_first(data: Path) -> None:
    def swap(records: list[Record]) -> list[Record]:
        one, other = records[5], records[9]
        return [other._replace(offset=one.offset), one._replace(offset=other.offset)]

    rewritten(data, ZONES_1, swap)
    assert verify(data).stderr == "zones/1: record 5 differs: the record changed\n"


def test_a_truncated_log_is_named(data: Path) -> None:
    copied_up_to(data, {ZONES_0: 30})
    found = verify(data)
    assert found.exit_code == 1
    assert (
        found.stderr
        == "zones/0: record 30 and all after it are missing: the log ends at offset 30, and ended at 41 before\n"
    )


def test_an_emptied_log_is_named(data: Path) -> None:
    copied_up_to(data, {FLEET_0: 0})
    found = verify(data)
    assert found.exit_code == 1
    assert (
        found.stderr
        == "fleet/0: record 0 and all after it are missing: the log ends at offset 0, and ended at 11 before\n"
    )


def test_an_inserted_first_record_is_named(data: Path) -> None:
    rewritten(data, FLEET_0, lambda records: [records[0]._replace(value=b"nobody reads this")])
    assert verify(data).stderr == "fleet/0: record 0 differs: the record changed\n"


def test_a_recreated_log_is_another_log(data: Path) -> None:
    before = json.loads((data.parent / "fine").read_text())["statement"]["log_id"]
    shutil.rmtree(data)
    asyncio.run(write_sample_log(data, seed=8))
    found = verify(data)
    assert found.exit_code == 1
    assert f"is not log {before}" in found.stderr


def test_a_changed_checkpoint_or_another_key_is_refused(data: Path) -> None:
    assert run("checkpoint", "keygen", "--key", data.parent / "other").exit_code == 0
    assert "was not signed with the key" in verify(data, key="other.pub").stderr
    path = data.parent / "fine"
    path.write_text(path.read_text().replace('"generation": 1', '"generation": 2'))
    assert "or was changed" in verify(data).stderr
    assert "must hold an Ed25519 public key" in verify(data, key="key").stderr


def test_changed_hashes_are_refused(data: Path) -> None:
    hashes = data.parent / "fine.hashes"
    content = bytearray(hashes.read_bytes())
    content[3] ^= 1
    hashes.write_bytes(content)
    found = verify(data)
    assert found.exit_code == 1
    assert "is not the file of this checkpoint" in found.stderr


def test_a_checkpoint_without_hashes_needs_no_hash_file(data: Path) -> None:
    key, file = data.parent / "key", data.parent / "fine"
    made = run("checkpoint", "--data", data, "--key", key, "--out", file, "--no-hashes")
    assert (made.exit_code, (data.parent / "fine.hashes").exists()) == (0, True), made.output
    proven = verify(data)
    assert (proven.exit_code, proven.stderr) == (0, ""), proven.output


def test_keys_are_readable_by_their_owner_only_and_never_overwritten(data: Path) -> None:
    key = data.parent / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    again = run("checkpoint", "keygen", "--key", key)
    assert again.exit_code == 1
    assert "cannot be created" in again.stderr

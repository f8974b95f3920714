"""Backups of growing logs and their restore: every record at its offset, on either engine, or no log at all."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.cli import cli
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER, LogSource, open_log_to_read
from deploy.operations.audit.backups import create_backup, restore_backup
from drivers.forwarder import Forwarder
from eventstore.avro.codec import decode
from eventstore.embedded.log import EmbeddedLog
from eventstore.folding.origin import wait_for_origin
from eventstore.log import FLEET_0, INSTALLS, ZONES, EventLog, Partition, Record
from eventstore.recovery.attestation import records_before
from eventstore.recovery.backup import Manifest, load_manifest
from eventstore.replicas.beacons import SingleReplica
from eventstore.replicas.lineage import lineage_of
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.fleet.fold import FleetFold
from projections.zones.fold import ZonesFold
from schemas.api import dpuplane_pb2 as pb
from schemas.events import LogCreated, WritesFrozen
from tests.support.embedded import Clock
from tests.support.eventually import until
from tests.support.kafka import KafkaUnderTest
from tests.support.sample_log import PARTITIONS as SAMPLE_PARTITIONS
from tests.support.sample_log import fill, write_sample_log
from tests.support.served import PARTITIONS, Served, now_ms, served

Contents = Mapping[Partition, list[Record]]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--output", "json"])


def ignore_progress(_what: str, _share: float) -> None:
    """Ignore a progress report."""


async def contents(log: EventLog) -> dict[Partition, list[Record]]:
    """All records of the copied topics."""
    found: dict[Partition, list[Record]] = {}
    for partition in (partition for topic in TOPICS.with_events for partition in log.partitions(topic)):
        async with aclosing(records_before(log, partition, await log.end(partition))) as records:
            found[partition] = [record async for record in records]
    return found


async def contents_at(place: LogSource) -> dict[Partition, list[Record]]:
    async with open_log_to_read(place, rng=random.Random(1)) as log:
        return await contents(log)


def assert_restored(before: Contents, after: Contents, manifest: Manifest) -> LogCreated:
    """Check that each copied record except the first has its offset, and that fleet ends with a freeze."""
    origins = set()
    for partition, records in before.items():
        kept = records[: manifest.partitions[str(partition)].records]
        there = list(after[partition])
        if partition == FLEET_0:
            assert isinstance(decode(there.pop().value), WritesFrozen)
        if partition.topic not in TOPICS.deciding:
            kept = [record._replace(offset=place) for place, record in enumerate(kept)]
            assert there == kept
            continue
        origin = decode(there[0].value)
        assert isinstance(origin, LogCreated)
        origins.add(there[0].value)
        assert there[0]._replace(value=kept[0].value) == kept[0]
        assert there[1:] == kept[1:]
    assert len(origins) == 1
    found = decode(origins.pop())
    assert isinstance(found, LogCreated)
    assert found.generation > manifest.generation and found.log_id != manifest.log_id
    assert found.parent.startswith(f"{manifest.generation}@{manifest.log_id}:")
    return found


def test_a_restored_log_has_a_later_generation(tmp_path: Path) -> None:
    old, new, copy = tmp_path / "old", tmp_path / "new", tmp_path / "copy"
    asyncio.run(write_sample_log(old))
    assert run("backup", "--out", copy, "--data", old).exit_code == 0
    restored = run("restore", "--from", copy, "--data", new)
    assert restored.exit_code == 0, restored.output
    said = json.loads(restored.stdout)
    before, after = (asyncio.run(contents_at(LogSource(place))) for place in (old, new))
    origin = assert_restored(before, after, load_manifest(copy))
    assert (said["generation"], said["log_id"], said["frozen"]) == (origin.generation, origin.log_id, True)


def test_a_log_restored_twice_names_both_parents_and_may_skip_a_generation(tmp_path: Path) -> None:
    asyncio.run(write_sample_log(tmp_path / "first"))
    for parent, child, generation in (("first", "second", "2"), ("second", "third", "7")):
        assert run("backup", "--out", tmp_path / f"of {parent}", "--data", tmp_path / parent).exit_code == 0
        where = ("--from", tmp_path / f"of {parent}", "--data", tmp_path / child)
        restored = run("restore", *where, "--thawed", "--generation", generation)
        assert restored.exit_code == 0, restored.output
    said = json.loads(restored.stdout)
    assert (said["generation"], [part.split("@")[0] for part in said["parent"].split()]) == (7, ["2", "1"])
    low = run("restore", "--from", tmp_path / "of second", "--data", tmp_path / "no", "--generation", "2")
    assert (low.exit_code, "generation: 2 must be at least 3" in low.stderr) == (1, True)


def test_two_logs_restored_from_one_backup_are_distinguished_by_every_dpu(tmp_path: Path) -> None:
    asyncio.run(write_sample_log(tmp_path / "old"))
    assert run("backup", "--out", tmp_path / "copy", "--data", tmp_path / "old").exit_code == 0
    for name in ("one", "other"):
        assert run("restore", "--from", tmp_path / "copy", "--data", tmp_path / name).exit_code == 0
    one, other = (asyncio.run(origin_at(tmp_path / name)) for name in ("one", "other"))
    assert one.generation < other.generation, "the later log has the higher generation"
    assert not lineage_of(other).knows(one.generation, 1), "a table of the first log is unknown to the second"


async def origin_at(data: Path) -> LogCreated:
    async with EmbeddedLog.secondary(TOPICS, data / LOG_FOLDER) as log:
        return await wait_for_origin(log)


def test_a_restored_log_still_proves_the_checkpoints_of_its_parent(tmp_path: Path) -> None:
    old, new, copy = tmp_path / "old", tmp_path / "new", tmp_path / "copy"
    asyncio.run(write_sample_log(old))
    runner = CliRunner()
    for arguments in (
        ["checkpoint", "keygen", "--key", f"{tmp_path}/key"],
        ["checkpoint", "--key", f"{tmp_path}/key", "--out", f"{tmp_path}/signed", "--data", str(old)],
    ):
        assert runner.invoke(cli, arguments).exit_code == 0
    assert run("backup", "--out", copy, "--data", old).exit_code == 0
    assert run("restore", "--from", copy, "--data", new).exit_code == 0
    proven = run("verify", "--checkpoint", tmp_path / "signed", "--public-key", tmp_path / "key.pub", "--data", new)
    assert (proven.exit_code, json.loads(proven.stdout)["differences"]) == (0, [])
    generation = asyncio.run(origin_at(new)).generation
    assert json.loads(proven.stdout)["restored"].endswith(f"generation {generation}")


def damage_value(copy: Path) -> None:
    path = copy / "zones-0.records"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_end(copy: Path) -> None:
    path = copy / "fleet-0.records"
    path.write_bytes(path.read_bytes()[:-3])


def damage_manifest(copy: Path) -> None:
    (copy / "manifest.json").unlink()


def damage_file(copy: Path) -> None:
    (copy / "zones-1.records").unlink()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (damage_value, "zones-0.records is damaged"),
        (damage_end, "fleet-0.records ends inside a record"),
        (damage_manifest, "manifest.json cannot be read"),
        (damage_file, "zones-1.records cannot be read"),
    ],
)
def test_a_damaged_backup_creates_no_log(tmp_path: Path, damage: Callable[[Path], None], named: str) -> None:
    asyncio.run(write_sample_log(tmp_path / "old"))
    copy, new = tmp_path / "copy", tmp_path / "new"
    assert run("backup", "--out", copy, "--data", tmp_path / "old").exit_code == 0
    damage(copy)
    refused = run("restore", "--from", copy, "--data", new)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert named in refused.stderr
    assert not (new / LOG_FOLDER).exists()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    asyncio.run(write_sample_log(tmp_path / "old"))
    copy = tmp_path / "copy"
    assert run("backup", "--out", copy, "--data", tmp_path / "old").exit_code == 0
    for refused in (
        run("restore", "--from", copy, "--data", tmp_path / "old"),
        run("backup", "--out", copy, "--data", tmp_path / "old"),
    ):
        assert refused.exit_code == 1
        assert "no file is overwritten" in refused.stderr


def test_an_interrupted_restore_leaves_no_log_and_can_be_repeated(tmp_path: Path) -> None:
    asyncio.run(write_sample_log(tmp_path / "old"))
    copy, new = tmp_path / "copy", tmp_path / "new"
    assert run("backup", "--out", copy, "--data", tmp_path / "old").exit_code == 0
    (new / f"{LOG_FOLDER}.restoring").mkdir(parents=True)
    assert run("restore", "--from", copy, "--data", new).exit_code == 0
    assert [entry.name for entry in new.iterdir()] == [LOG_FOLDER]


async def test_a_copy_of_a_running_plane_contains_every_record_that_it_refers_to(tmp_path: Path) -> None:
    data = tmp_path / "plane"
    async with served(data / LOG_FOLDER) as plane:
        copies = 0

        async def join(worker: int) -> None:
            number = 0
            while copies < 5:
                number += 1
                spec = pb.NodeSpec(
                    name=f"w{worker}-{number}", addresses=[f"10.{worker}.{number // 250}.{number % 250}"]
                )
                await plane.join(f"zone-{worker}", spec)

        async with asyncio.TaskGroup() as tasks:
            for worker in range(6):
                tasks.create_task(join(worker))
            for number in range(5):
                await another_forward(plane)
                manifest = await create_backup(
                    LogSource(data), tmp_path / f"copy{number}", now_ms(), random.Random(1), ignore_progress
                )
                assert manifest.partitions["fleet/0"].end > 1
                copies += 1
    for number in range(5):
        await check_forwarding(tmp_path / f"copy{number}", tmp_path / f"new{number}")


async def another_forward(plane: Served) -> None:
    """Wait for another forward, so that fleet refers to a record of a zone."""
    seen = plane.replica.position(FLEET_0)
    await until(lambda: plane.replica.position(FLEET_0) > seen)


async def check_forwarding(copy: Path, data: Path) -> None:
    """Check that a plane on the restored log forwards every node of its zones to fleet."""
    restored = await restore_backup(
        copy,
        LogSource(data),
        generation=None,
        frozen=True,
        now_ms=now_ms(),
        rng=random.Random(2),
        report=ignore_progress,
    )
    folds: list[Any] = [ZonesFold(), FleetFold(PARTITIONS)]
    async with EmbeddedLog.open(TOPICS, data / LOG_FOLDER, now_ms=now_ms) as log, asyncio.TaskGroup() as tasks:
        replica = Replica(log, folds, store=DigestStore(), name="r", now_ms=now_ms, rng=random.Random(3))
        running = [tasks.create_task(replica.run())]
        await replica.ready()
        assert (replica.log_id, replica.generation) == (restored.origin.log_id, restored.origin.generation)
        forwarder = Forwarder(replica, SingleReplica("r"), now_ms=now_ms, rng=random.Random(4))
        running.append(tasks.create_task(forwarder.run()))
        names = {name for part in replica.partitions(ZONES) for name in replica.state(part).nodes.rows}
        assert names
        async with asyncio.timeout(90):
            while not names <= set(replica.state(FLEET_0).members.rows):
                await asyncio.sleep(0.05)
        for task in running:
            task.cancel()


@pytest.mark.kafka
async def test_a_log_goes_from_one_process_to_kafka_and_back(kafka_log: KafkaUnderTest, tmp_path: Path) -> None:
    await write_sample_log(tmp_path / "old")
    prefix = f"{kafka_log.prefix}"
    embedded, kafka, again = (
        LogSource(tmp_path / "old"),
        LogSource(None, kafka_log.bootstrap, prefix),
        tmp_path / "again",
    )
    kafka_log.partition_count = SAMPLE_PARTITIONS

    async def restored(copy: Path, place: LogSource) -> None:
        await restore_backup(
            copy, place, generation=None, frozen=True, now_ms=now_ms(), rng=random.Random(2), report=ignore_progress
        )

    first = await create_backup(embedded, tmp_path / "copy1", now_ms(), random.Random(1), ignore_progress)
    await restored(tmp_path / "copy1", kafka)
    there = await contents_at(kafka)
    assert_restored(await contents_at(embedded), there, first)
    second = await create_backup(kafka, tmp_path / "copy2", now_ms(), random.Random(1), ignore_progress)
    await restored(tmp_path / "copy2", LogSource(again))
    assert_restored(there, await contents_at(LogSource(again)), second)
    with pytest.raises(Exception, match="already exists; restore under another prefix"):
        await restored(tmp_path / "copy1", kafka)
    log = await kafka_log.open()  # the restored topics have the settings of any other log
    await fill(log, Clock(now_ms()), records=1)
    assert (await log.end(Partition(INSTALLS, 0))) == len(there[Partition(INSTALLS, 0)]) + 1

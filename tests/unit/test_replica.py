"""A replica on a virtual clock, over an in-memory log with injected failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventstore import progress
from eventstore.avro.codec import decode, encode
from eventstore.errors import AppendRefused, AppendUnknown, LogMismatch, LogUnavailable, PermanentError
from eventstore.log import FLEET, FLEET_0, INSTALLS, ZONES, Partition, Record
from eventstore.replica_limits import ReplicaLimits
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.rocks_store import RocksStore
from schemas.events import Event, LogCreated
from tests.support.memory_log import Contents, MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import T0, Issuer, created, fact
from tests.support.virtual_loop import run_virtual

ZONES_2 = Partition(ZONES, 2)


async def submit(replica: Replica, event: Event, *, timeout_s: float = 5.0) -> Answer:
    return await replica.submit(FLEET_0, b"key", event, timeout_s=timeout_s)


# -- the beginning of the log


@pytest.mark.virtual_clock
async def test_two_starting_replicas_create_one_log() -> None:
    contents = Contents(4)
    one, other = (toy_replica(MemoryLog(contents), name=name) for name in ("one", "other"))
    async with running(one, other):
        assert one.log_id == other.log_id != ""
        assert one.generation == 1
        for partition, records in contents.records.items():
            first = decode(records[0].value)
            assert isinstance(first, LogCreated), partition
            assert (first.log_id, first.partition_count) == (one.log_id, 4)
        await submit(one, Issuer().set("a"))
        await other.wait_for_position(FLEET_0, one.position(FLEET_0), timeout_s=5)
        assert other.state(FLEET_0).count == 1


def test_a_replica_that_may_not_create_a_log_waits_for_one() -> None:
    async def run() -> None:
        contents = Contents(4)
        reader = toy_replica(MemoryLog(contents), name="reader", creates=False)
        run = asyncio.ensure_future(reader.run())
        await asyncio.sleep(60)
        assert not contents.records
        async with running(toy_replica(MemoryLog(contents))):
            await reader.ready()
            assert reader.log_id
        run.cancel()

    run_virtual(run())


@pytest.mark.virtual_clock
async def test_a_replica_that_may_not_create_a_log_waits_until_every_partition_has_its_first_record() -> None:
    """Otherwise it could append an event before the LogCreated of a partition, and no process could open the log."""
    contents = Contents(4)
    async with running(toy_replica(MemoryLog(contents))):
        (*_, last), created = sorted(contents.records), dict(contents.records)
    del contents.records[last]
    reader = toy_replica(MemoryLog(contents), name="reader", creates=False)
    run = asyncio.ensure_future(reader.run())
    await asyncio.sleep(60)
    assert not reader.log_id
    contents.records[last] = created[last]
    await reader.ready()
    assert reader.log_id
    run.cancel()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("outages", [1, 7, 40])
async def test_a_replica_waits_for_the_end_of_an_outage_at_its_start(outages: int) -> None:
    log = MemoryLog()
    log.failures.lost_ends = outages
    async with running(replica := toy_replica(log)):
        assert (await submit(replica, Issuer().set("a"))).outcome.code == "done"


@pytest.mark.virtual_clock
async def test_a_log_of_another_partition_count_is_refused() -> None:
    log = MemoryLog()
    log.put(FLEET_0, created(partition_count=12))
    with pytest.raises(LogMismatch, match=r"12.*4"):
        await toy_replica(log).run()


# -- answers


@pytest.mark.virtual_clock
async def test_callers_are_answered_from_the_log() -> None:
    issue = Issuer()
    async with running(replica := toy_replica(MemoryLog())):
        done = issue.set("a")
        assert await submit(replica, done) == Answer(replica.dry_run(FLEET_0, done).outcome, FLEET_0, 1)
        refused = await submit(replica, issue.delete("b"))
        assert (refused.outcome.code, refused.offset) == ("refused", 2)
        again = await submit(replica, done)
        assert (again.outcome.code, again.offset, replica.position(FLEET_0)) == ("done", 1, 3)
        assert replica.outcomes(done.envelope.command_id) == [again]
        assert replica.outcomes(issue.id()) == []


@pytest.mark.virtual_clock
async def test_concurrent_callers_each_get_their_own_answer() -> None:
    issue = Issuer()
    commands = [issue.set(f"p{i}") if i % 3 else issue.delete(f"p{i}") for i in range(300)]
    async with running(replica := toy_replica(MemoryLog())):
        answers = await asyncio.gather(*(submit(replica, command) for command in commands * 2))
    for i, (first, copy) in enumerate(zip(answers[:300], answers[300:], strict=True)):
        assert first == copy
        assert first.outcome.code == ("done" if i % 3 else "refused")
    assert len({answer.offset for answer in answers}) == 300


@pytest.mark.virtual_clock
async def test_an_append_without_a_response_is_answered_from_the_log() -> None:
    log = MemoryLog()
    async with running(replica := toy_replica(log)):
        log.failures.late_s[FLEET_0] = 0.0
        assert (await submit(replica, Issuer().set("a"))).outcome.code == "done"


@pytest.mark.virtual_clock
async def test_an_answer_does_not_wait_for_a_hanging_append() -> None:
    log = MemoryLog()
    async with running(replica := toy_replica(log)):
        log.failures.is_unanswered = True
        began, tasks = asyncio.get_running_loop().time(), asyncio.all_tasks()
        assert (await submit(replica, Issuer().set("a"))).outcome.code == "done"
        assert asyncio.get_running_loop().time() - began < 0.01
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == tasks, "a task still waits for the append"


@pytest.mark.virtual_clock
async def test_a_record_that_lands_late_still_answers_its_caller() -> None:
    log = MemoryLog()
    async with running(replica := toy_replica(log)):
        log.failures.append_error = AppendUnknown("no answer")
        waiting = asyncio.ensure_future(submit(replica, Issuer().set("a")))
        await asyncio.sleep(3)
        log.contents.add(FLEET_0, T0, b"key", log.attempts[-1].value)
        assert (await waiting).outcome.code == "done"


@pytest.mark.virtual_clock
async def test_an_outcome_unknown_at_the_deadline_is_definite_after_a_repeat() -> None:
    log, command = MemoryLog(), Issuer().set("a")
    loop = asyncio.get_running_loop()
    async with running(replica := toy_replica(log)):
        log.failures.append_error = AppendUnknown("no answer")
        began = loop.time()
        with pytest.raises(AppendUnknown, match=command.envelope.command_id):
            await submit(replica, command, timeout_s=2)
        assert loop.time() - began == pytest.approx(2)
        log.failures.append_error = None
        log.contents.add(FLEET_0, T0, b"key", log.attempts[-1].value)
        assert (await submit(replica, command)).offset == 1
        assert replica.state(FLEET_0).total.effects == 1


@pytest.mark.virtual_clock
async def test_an_event_that_cannot_be_appended_is_refused_at_once() -> None:
    async with running(replica := toy_replica(MemoryLog())):
        with pytest.raises(AppendRefused):
            await submit(replica, Issuer().set("x" * 2_000_000))
        with pytest.raises(PermanentError, match=r"zones/9"):
            await replica.submit(Partition(ZONES, 9), b"", Issuer().set("a"), timeout_s=1)


@pytest.mark.virtual_clock
async def test_an_id_of_another_command_is_refused_without_an_append() -> None:
    issue = Issuer()
    one = issue.set("a")
    other = type(one)(one.envelope, "b", *[getattr(one, field) for field in one.__struct_fields__[2:]])
    async with running(replica := toy_replica(MemoryLog())):
        first, second = await asyncio.gather(submit(replica, one), submit(replica, other))
        assert (first.outcome.code, second.outcome.code) == ("done", "refused")
        position = replica.position(FLEET_0)
        assert "another command" in (await submit(replica, other)).outcome.reason
        assert replica.position(FLEET_0) == position


# -- waits for positions


@pytest.mark.virtual_clock
async def test_a_wait_for_a_position_fails_at_its_deadline() -> None:
    async with running(replica := toy_replica(MemoryLog())):
        await replica.wait_for_position(FLEET_0, 1, timeout_s=0)
        waits = [asyncio.ensure_future(replica.wait_for_position(FLEET_0, n, timeout_s=9)) for n in (3, 2, 3)]
        for name in ("a", "b"):
            await replica.append_event(FLEET_0, b"", fact(name), timeout_s=5)
        await asyncio.gather(*waits)
        with pytest.raises(LogUnavailable, match=r"fleet/0.* 99 "):
            await replica.wait_for_position(FLEET_0, 99, timeout_s=1)
        assert not replica.fold_waits._waiting[FLEET_0], "the failed wait is still in the list"


@pytest.mark.virtual_clock
async def test_a_watch_collects_all_partitions_folded_since_its_last_result() -> None:
    async with running(replica := toy_replica(MemoryLog())):
        with replica.watch(ZONES) as watch:
            for partition in (ZONES_2, ZONES_2, FLEET_0, Partition(ZONES, 0)):
                await replica.append_event(partition, b"", fact("a"), timeout_s=5)
            await replica.wait_for_position(Partition(ZONES, 0), 2, timeout_s=5)
            assert await watch.changed() == {ZONES_2, Partition(ZONES, 0)}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.changed(), 5)
        assert replica._watches == []


# -- outages and other logs


@pytest.mark.virtual_clock
async def test_reading_continues_after_a_broken_read() -> None:
    log, issue = MemoryLog(), Issuer()
    async with running(replica := toy_replica(log)):
        for number in range(30):
            log.failures.broken_reads = number % 3
            await submit(replica, issue.set(f"p{number}"), timeout_s=60)
        assert replica.state(FLEET_0).total.effects == 30


# -- saving, halting, speed


@pytest.mark.virtual_clock
async def test_a_restart_folds_only_unsaved_records(tmp_path: Path) -> None:
    log, issue = MemoryLog(), Issuer()
    store = RocksStore(tmp_path)
    async with running(first := toy_replica(log, store=store)):
        repeated = issue.set("a")
        await submit(first, repeated)
        await asyncio.sleep(1.5)
        saved = first.partitions_status()[0]
        assert (saved.saved_position, saved.lag) == (2, 0)
        await submit(first, issue.set("b"))
    async with running(second := toy_replica(log, store=store)):
        assert sorted(second.state(FLEET_0).policies.rows) == ["a", "b"]
        assert (await submit(second, repeated)).offset == 1
        await asyncio.sleep(1.5)
        assert second.partitions_status()[0].running == second.folded(FLEET_0).running.hex()
    store.close()
    async with running(afresh := toy_replica(log)):
        await asyncio.sleep(1.5)
        assert [s.digest for s in afresh.partitions_status()] == [s.digest for s in second.partitions_status()]


@pytest.mark.virtual_clock
async def test_a_restart_after_a_last_save_folds_nothing_again(tmp_path: Path) -> None:
    log, issue, store = MemoryLog(), Issuer(), RocksStore(tmp_path)
    await toy_replica(log, store=store).save()
    assert store.head(FLEET_0) is None, "a replica that folded nothing saves nothing"
    async with running(first := toy_replica(log, store=store)):
        await submit(first, issue.set("a"))
    await first.save()
    async with running(second := toy_replica(log, store=store)):
        assert {status.partition: status.saved_position for status in second.partitions_status()} == {
            status.partition: status.position for status in first.partitions_status()
        }
        assert second.position(FLEET_0) == 2
    store.close()


class UnreadableStore(RocksStore):
    """A store whose rows can no longer be read."""

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._advice():
            raise OSError("IO error")
        yield from ()


@pytest.mark.virtual_clock
async def test_a_failed_checkpoint_does_not_stop_the_fold(tmp_path: Path) -> None:
    store = UnreadableStore(tmp_path)
    replica = toy_replica(MemoryLog(), store=store, limits=ReplicaLimits(checkpoint_s=2.0))
    issue = Issuer()
    async with running(replica):
        await submit(replica, issue.set("a"))
        await asyncio.sleep(4.5)
        assert replica.save_failures == 1
        await submit(replica, issue.set("b"))
        assert replica.state(FLEET_0).count == 2
    store.close()


@pytest.mark.virtual_clock
async def test_a_halted_partition_reports_its_halt_and_stops_no_other() -> None:
    log, issue = MemoryLog(), Issuer()
    async with running(replica := toy_replica(log)):
        log.put(ZONES_2, fact("raise in decide"))
        await replica.append_event(ZONES_2, b"", fact("never folded"), timeout_s=5)
        assert (await submit(replica, issue.set("a"))).outcome.code == "done"
        await asyncio.sleep(6)
        [status] = [status for status in replica.partitions_status() if status.partition == ZONES_2]
        assert (status.position, status.lag) == (1, 2)
        assert "a bug in decide" in status.halted
        with pytest.raises(LogUnavailable, match="halted"):
            await replica.submit(ZONES_2, b"", issue.set("b"), timeout_s=5)
    async with running(again := toy_replica(log)):
        assert again.folded(ZONES_2).halted


@pytest.mark.virtual_clock
async def test_a_long_fold_yields_to_the_loop() -> None:
    log = MemoryLog()
    async with running(toy_replica(log)):
        pass
    log.put(FLEET_0, *[fact(f"p{i % 50}") for i in range(4_000)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(others())
    async with running(replica := toy_replica(log, limits=ReplicaLimits(slice_records=100))):
        assert replica.state(FLEET_0).total.effects == 4_000
    ticking.cancel()
    assert turns > 40


@pytest.mark.virtual_clock
async def test_a_display_topic_is_folded_from_its_first_unexpired_record() -> None:
    log = MemoryLog()
    async with running(toy_replica(log)):
        pass
    installs = Partition(INSTALLS, 0)
    log.contents.begins[installs] = 40
    log.contents.records[installs] = [Record(40, T0, b"", encode(fact("a")))]
    replica = toy_replica(log, topics=(FLEET, INSTALLS))
    async with running(replica):
        assert replica.state(installs).count == 1
        assert replica.position(installs) == 41


async def test_a_long_fold_logs_its_speed(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    async with running(toy_replica(log)):
        pass
    log.put(FLEET_0, *[fact(f"p{i % 50}") for i in range(2_000)])
    monkeypatch.setattr(progress, "_REPORT_EVERY_S", 1e-9)
    caplog.set_level(logging.INFO, progress.__name__)
    async with running(toy_replica(log, limits=ReplicaLimits(slice_records=100))):
        pass
    said = [vars(record) for record in caplog.records if record.message == "log partly folded"]
    assert said[-1]["records"] >= 1_000
    assert said[-1]["per_second"] > 0

"""The verdict on a whole run, also on invalid logs, and the evidence derived from a log."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from deploy.composition.roles import folds_of
from eventstore.avro.codec import encode
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, INSTALLS, ZONES, Partition, Record
from eventstore.state_store.saver import save
from schemas import events as e
from tests.simulation.checkers import Evidence, Fault, folds, judge_history
from tests.simulation.checkers.evidence import Freeze
from tests.simulation.history import Alarm, FinalPosition, QueryAnswered, StateSaved, TableInstalled
from tests.support.memory_disk import DiskStore
from tests.support.written_run import ZONES_0, WrittenRun

LATE = e.OutboxAcknowledged(WrittenRun().stated(), 1)


@pytest.fixture
def log() -> WrittenRun:
    """A log with two joins of a zone, not forwarded to fleet."""
    made = WrittenRun()
    for name in "ab":
        made.write(ZONES_0, made.join(name))
    return made


def disk_of(log: WrittenRun, count: int) -> DiskStore:
    """The saved state of the zones partition after `count` records."""
    fold = next(fold for fold in folds_of(1) if fold.topic == ZONES)
    folded = FoldedPartition(ZONES_0, {fold.version: fold}, log.evidence().log_id)
    for record in log.records[ZONES_0][:count]:
        folded.fold(record)
    store = DiskStore()
    asyncio.run(save(folded, store))
    return store


def invariants(faults: list[Fault]) -> set[str]:
    return {fault.invariant for fault in faults}


def test_checks_at_rest_run_only_at_rest(log: WrittenRun) -> None:
    assert "I16" in invariants(judge_history(log.history, log.records))
    assert "I16" not in invariants(judge_history(log.history, log.records, at_rest=False))


def test_every_argument_of_judge_history_is_used(log: WrittenRun) -> None:
    log.history.add(QueryAnswered(0.0, 0.1, "c", "p0", ZONES_0, 0, 3))
    log.history.add(Alarm(0.0, "p0", "zones/9", True))

    def found(**arguments: object) -> set[str]:
        return invariants(judge_history(log.history, log.records, at_rest=False, **arguments))  # type: ignore[arg-type]

    assert not found()
    assert found(again={}) == {"I22"}
    assert found(appended_s=lambda *_: 1.0) == {"I12"}
    assert found(appended_s=lambda *_: 0.0, end_s=31.0) == {"I20"}
    other = WrittenRun()
    other.write(ZONES_0, other.join("x"))
    assert found(saved={"p0": disk_of(other, 2)}) == {"I11"}


def test_five_faults_of_a_checker_are_reported(log: WrittenRun) -> None:
    for _ in range(7):
        log.history.add(StateSaved("p", ZONES_0, 99, b"", b""))
    assert len(judge_history(log.history, log.records, at_rest=False)) == 5


def test_a_log_that_halts_or_cannot_be_evaluated_is_a_fault(log: WrittenRun) -> None:
    created = log.records[FLEET_0][0]
    log.records[FLEET_0][0] = Record(0, created.timestamp_ms, b"", encode(LATE))
    (fault,) = judge_history(log.history, log.records)
    assert str(fault) == "I20: the log cannot be evaluated: a log begins with a LogCreated"
    log.records[FLEET_0][0] = created
    log.write(ZONES_0, e.FoldVersionUpgraded(log.stated(), 99))
    (fault,) = judge_history(log.history, log.records)
    assert str(fault).startswith("I20: zones/0: the fold halts at 3: ")


def test_partitions_of_two_logs_are_a_fault(log: WrittenRun) -> None:
    created = e.LogCreated(log.stated(), "another", 1, 1, "")
    log.records[ZONES_0][0] = Record(0, 0, b"", encode(created))
    (fault,) = judge_history(log.history, log.records)
    assert fault.invariant == "I22" and "another" in fault.what


def test_a_freeze_of_a_zone_or_of_all_lasts_until_its_thaw(log: WrittenRun) -> None:
    for zone in "xyz":
        log.history.add(TableInstalled(1.0, zone, "d", 0, 1, 0, b""))
    log.write(FLEET_0, e.PolicySet(log.said(), "p", 0, "drop", "any", [], {}, {}))
    first = log.write(FLEET_0, e.WritesFrozen(log.said(), "x"))
    thawed = log.write(FLEET_0, e.WritesThawed(log.said(), "x"))
    thawed_s = log.now_s
    every = log.write(FLEET_0, e.WritesFrozen(log.said(), ""))
    log.write(FLEET_0, e.WritesFrozen(log.said(), "y"))
    end = log.write(FLEET_0, e.WritesThawed(log.said(), ""))
    assert log.evidence().freezes == [
        Freeze("x", first, thawed, thawed_s),
        Freeze("x", every, end, log.now_s),
        Freeze("z", every, end, log.now_s),
        Freeze("y", every, inf, inf),
    ]


def test_a_zone_has_a_version_at_first_and_after_each_change() -> None:
    log = WrittenRun()
    log.history.add(TableInstalled(1.0, "z", "d", 0, 1, 0, b""))
    assert list(log.evidence().tables["z"]) == [0]
    log.write(FLEET_0, log.forward(log.join("a"), 0, 2))
    log.write(FLEET_0, e.WritesFrozen(log.said(), "y"))
    log.write(FLEET_0, log.forward(log.join("b"), 2, 3))
    assert list(log.evidence().tables["z"]) == [0, 2, 4]


def test_the_end_of_a_partition_at_a_time(log: WrittenRun) -> None:
    run = log.evidence()
    first, second, third = (run.appended_s(ZONES_0, offset) for offset in range(3))
    times_s = (first - 0.1, first, second - 0.1, second, third - 0.1, third, third + 99.0)
    assert [run.end_at(ZONES_0, at_s) for at_s in times_s] == [0, 1, 1, 2, 2, 3, 3]


def test_a_wrong_saved_state_is_found(log: WrittenRun) -> None:
    def faults(saved: DiskStore, run: Evidence) -> list[str]:
        run.saved = {"p0": DiskStore(), "p1": saved}
        return list(folds.check_saved(run))

    assert not faults(disk_of(log, 2), log.evidence())
    run = log.evidence()
    run.steps[ZONES_0][-1] = run.steps[ZONES_0][-1]._replace(digest=b"x")
    assert faults(disk_of(log, 2), run) == ["zones/0, folded from the state that p1 saved at 2, has other rows"]
    broken = disk_of(log, 2)
    broken._of(ZONES_0).rows["nodes"].clear()
    assert faults(broken, log.evidence()) == ["the state that p1 saved of zones/0 cannot be loaded"]


def test_a_different_fold_in_batches_is_found(log: WrittenRun) -> None:
    def faults(run: Evidence) -> list[str]:
        return [fault.removeprefix("zones/0, folded in batches, ") for fault in folds.check_batches(run)]

    assert not faults(log.evidence())
    last = log.evidence().steps[ZONES_0][-1]
    for wrong, expected in (
        (last._replace(digest=b"x"), "has other rows"),
        (last._replace(running=b"x"), "has another hash of its records"),
    ):
        run = log.evidence()
        run.steps[ZONES_0][-1] = wrong
        assert faults(run) == [expected]
    run = log.evidence()
    run.folded[ZONES_0].ledger.entries.popitem()
    assert faults(run) == ["has other command ids"]


def test_a_replica_that_read_other_records_is_found(log: WrittenRun) -> None:
    end = log.evidence().steps[ZONES_0][-1]
    log.history.add(FinalPosition("p0", ZONES_0, end.position, end.running, ""))
    log.history.add(FinalPosition("p1", ZONES_0, end.position - 1, b"earlier", ""))
    log.history.add(FinalPosition("p2", Partition("decisions", 0), 1, b"another", ""))
    assert not list(folds.check_agreement(log.evidence()))
    log.history.add(FinalPosition("p3", ZONES_0, end.position, b"x", ""))
    assert list(folds.check_agreement(log.evidence())) == ["p3 has read other records of zones/0 than the log has"]


def test_quarantined_records_are_found_except_in_installs(log: WrittenRun) -> None:
    for partition in (Partition(INSTALLS, 0), ZONES_0, ZONES_0, ZONES_0):
        log.append(partition, b"nonsense")
    (fault,) = folds.check_quarantine(log.evidence())
    assert fault.startswith("zones/0 has 3 quarantined records: [")
    assert fault.count("Undecodable") <= 2


def test_the_process_with_a_wrong_saved_digest_is_named(log: WrittenRun) -> None:
    log.history.add(StateSaved("p0", ZONES_0, 2, b"", b""))
    assert list(folds.check_saved_digests(log.evidence())) == [
        "p0 saved zones/0 at 2 with other digests than a fresh fold has"
    ]

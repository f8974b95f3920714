"""Every checker finds its fault in a history that no correct plane records, and finds none in a correct history.

Bugs planted in the plane itself, found in simulated runs, are in tests/seeded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from eventstore.folding.fold import Outcome
from eventstore.ids import uuid7
from eventstore.log import CLIQUES, FLEET_0, ZONES, Partition, Record
from projections.cliques.state import CliqueMember
from projections.rules.rule import Rule, SetStep
from schemas import events as e
from tests.simulation import model
from tests.simulation.checkers import (
    INVARIANTS,
    Evidence,
    commands,
    devices,
    faults_of,
    folds,
    invalid,
    lifecycle,
    plane_records,
    verdicts,
)
from tests.simulation.checkers.evidence import Freeze
from tests.simulation.fresh import Step
from tests.simulation.history import (
    AttemptFailed,
    BmcCalled,
    FaultInjected,
    History,
    Invoked,
    QueryAnswered,
    Sample,
    StateSaved,
    TableInstalled,
    read,
)
from tests.support.written_run import START_MS, ZONES_0, WrittenRun

OTHER = uuid7(START_MS, random.Random(2))


def found(check: Callable[[Evidence], Iterator[str]], log: WrittenRun) -> list[str]:
    return list(check(log.evidence()))


def joined() -> tuple[WrittenRun, e.NodesJoined, int]:
    """A log with one join that was answered to its client."""
    log = WrittenRun()
    event = log.join("a")
    offset = log.ask(event)
    return log, event, offset


def test_invariants_have_distinct_ids() -> None:
    assert len({invariant.id for invariant in INVARIANTS}) == len(INVARIANTS) == 32


def test_a_correct_history_has_no_faults() -> None:
    log, event, offset = joined()
    log.tell(event, offset)
    log.write(FLEET_0, log.forward(event, 0, offset + 1))
    log.write(ZONES_0, e.OutboxAcknowledged(log.stated(), offset + 1))
    assert not list(faults_of(log.evidence()))


def test_an_answered_command_without_its_record_is_found() -> None:
    log, event, offset = joined()
    log.tell(event, offset)
    assert not found(commands.check_acknowledged, log)
    log.tell(event, offset + 1)
    assert found(commands.check_acknowledged, log), "a record that does not exist"
    log, event, offset = joined()
    log.tell(log.join("b"), offset)
    assert found(commands.check_acknowledged, log), "the record of another command"


def test_a_failed_command_in_the_log_is_found() -> None:
    log, event, _ = joined()
    log.history.add(AttemptFailed(1.0, event.envelope.command_id))
    assert found(commands.check_acknowledged, log)


def test_a_wrong_answer_is_found() -> None:
    log, event, offset = joined()
    log.tell(event, offset)
    assert not found(commands.check_answers, log)
    log.tell(event, offset, Outcome("refused", "no"))
    assert found(commands.check_answers, log)


def test_commands_in_the_wrong_order_are_found() -> None:
    log = WrittenRun()
    first, second = log.join("a"), log.join("b")
    later = log.ask(first)
    log.tell(first, later)
    log.now_s += 5
    log.tell(second, log.ask(second))
    assert not found(commands.check_order, log)
    log.now_s += 5
    third = log.join("c")
    log.ask(third)
    log.tell(third, later)
    assert found(commands.check_order, log), "sent after another command was answered, but earlier in the log"


def test_stale_and_future_reads_are_found() -> None:
    log, _, offset = joined()
    log.history.add(QueryAnswered(8.0, 9.0, "c", "p0", ZONES_0, offset + 1, offset + 1))
    assert not found(commands.check_reads, log)
    log.history.add(QueryAnswered(8.0, 9.0, "c", "p0", ZONES_0, offset + 1, offset))
    assert found(commands.check_reads, log), "older than the minimum position"
    log, _, offset = joined()
    log.history.add(QueryAnswered(0.0, 0.1, "c", "p0", ZONES_0, 0, offset + 1))
    assert found(commands.check_reads, log), "a position that does not exist yet"


def test_a_wrong_saved_digest_is_found() -> None:
    log, _, _ = joined()
    step = log.evidence().steps[ZONES_0][-1]
    correct = StateSaved("p", ZONES_0, step.position, step.digest, step.running)
    log.history.add(correct)
    assert not found(folds.check_saved_digests, log)
    for wrong in ({"digest": b"x"}, {"running": b"x"}, {"position": 7}):
        log.history = History()
        log.history.add(replace(correct, **wrong))
        assert found(folds.check_saved_digests, log), wrong


def test_disagreeing_readers_are_found() -> None:
    log, _, _ = joined()
    assert not found(folds.check_agreement, log)
    again = {partition: records[:-1] for partition, records in log.records.items()}
    assert list(folds.check_agreement(Evidence(log.history, log.records, again=again)))


def device_with_versions(*versions: tuple[int, int, bytes]) -> Evidence:
    """A device that installed these versions; its zone has had 3 and 5."""
    log = WrittenRun()
    for boot, version, digest in versions:
        log.history.add(TableInstalled(99.0, "z", "d", boot, 1, version, digest))
    run = log.evidence()
    run.tables = {"z": {3: b"3", 5: b"5"}}
    run.records = {**run.records, FLEET_0: [Record(9, 0, b"", b"")]}
    run.appended_s = lambda *_: 0.0  # type: ignore[method-assign]
    return run


def test_wrong_tables_and_versions_of_devices_are_found() -> None:
    correct = device_with_versions((0, 3, b"3"), (0, 5, b"5"), (1, 3, b"3"))
    assert not list(devices.check_tables(correct))
    assert not list(devices.check_device_versions(correct))
    assert list(devices.check_device_versions(device_with_versions((0, 5, b"5"), (0, 3, b"3")))), (
        "an older version within a boot"
    )
    assert list(devices.check_tables(device_with_versions((0, 4, b"3")))), "a version that the zone never had"
    assert list(devices.check_tables(device_with_versions((0, 5, b"3")))), "another digest"


def test_a_change_during_a_freeze_is_found() -> None:
    def faults(at_s: float, version: int) -> list[str]:
        log = WrittenRun()
        log.history.add(TableInstalled(at_s, "z", "d", 0, 1, version, b""))
        run = log.evidence()
        run.freezes = [Freeze("z", 10, 20, 5.0)]
        return list(devices.check_freezes(run))

    assert not faults(1.0, 10), "a version from before the freeze"
    assert not faults(6.0, 15), "after the thaw"
    assert faults(4.0, 15), "changed during the freeze, installed before the thaw"


def test_an_unsafe_order_of_steps_is_found() -> None:
    def faults(*steps: SetStep) -> list[str]:
        fault = verdicts.unsafe({allow: frozenset({one})}, steps)
        return [fault] if fault else []

    allow, one, other = Rule(0, "allow", "any", ()), bytes((10, 0, 0, 1, 32)), bytes((10, 0, 0, 0, 31))
    add, remove = SetStep(allow, other, b"", b"", b""), SetStep(allow, b"", b"", one, b"")
    assert not faults(add, remove), "covered at every step"
    assert faults(remove, add), "a gap"


def test_wrong_bmc_calls_are_found() -> None:
    log = WrittenRun()
    log.write(ZONES_0, e.DpuRegistered(log.said(), "z", "d", "n", "s", "b"))
    log.write(ZONES_0, e.LifecycleRequested(log.said(), "z", "d", "provision", "bf-1"))
    attempt = log.evidence().folded[ZONES_0].state.dpus.rows["d"].attempt + 1
    log.write(ZONES_0, e.StepStarted(log.stated(), "z", "d", "Node Effect", attempt, "p#1"))

    def faults(*calls: tuple[int, str]) -> list[str]:
        log.history = History()
        for token, action in calls:
            log.history.add(BmcCalled("d", token, action))
        return found(lifecycle.check_calls, log)

    assert not faults((attempt, "drain"))
    assert not found(lifecycle.check_transitions, log)
    assert faults((attempt, "drain"), (attempt, "drain")), "twice by one attempt"
    assert faults((attempt, "install")), "not the action of the attempt"
    assert faults((attempt + 1, "drain")), "an attempt that is not in the log"


def test_a_run_without_faults_or_answers_is_invalid() -> None:
    log, event, offset = joined()
    assert list(invalid(log.history)) == [
        "no fault took effect",
        "no command was answered",
        "of 1 commands sent in fault-free time, 0 got a definite answer",
    ]
    log.tell(event, offset)
    log.history.add(FaultInjected("crash", "p0", 50.0, 60.0))
    assert not list(invalid(log.history))
    log.history.add(Invoked(1.0, "c", "another", ZONES_0))
    assert list(invalid(log.history)) == ["of 2 commands sent in fault-free time, 1 got a definite answer"]
    log.history.add(AttemptFailed(2.0, "another"))
    assert not list(invalid(log.history)), "a certain failure is a definite answer"


def test_an_exceeded_bound_is_found() -> None:
    log = WrittenRun()
    log.history.add(Sample(1.0, "p0", "tasks", 10))
    assert not found(plane_records.check_bounds, log)
    log.history.add(Sample(1.0, "p0", "tasks", 10_000))
    assert found(plane_records.check_bounds, log)


def test_wrong_indices_are_found() -> None:
    def faults(*rows: tuple[str, str, int, str]) -> list[str]:
        cliques = model.Cliques()
        for key, claim_state, last, uid in rows:
            row: Any = CliqueMember(claim_state, last, 0, "", 0, uid, 0)  # type: ignore[arg-type]
            step = Step(Partition(CLIQUES, 0), Record(1, 0, b"", b""), None, None, {"members": [(key, row)]}, b"", b"")
            cliques.apply(None, step)
        return cliques.faults

    assert not faults(("d/c/a", "holds", 0, "u"), ("d/c/b", "holds", 1, "u"), ("d/c/a", "left", 0, "u"))
    assert faults(("d/c/a", "holds", 0, "u"), ("d/c/b", "holds", 0, "u")), "one index, two nodes"
    assert faults(("d/c/a", "holds", 1, "u")), "not dense"
    assert faults(("d/c/a", "holds", 0, "u"), ("d/c/a", "holds", 1, "u")), "the index of an incarnation changed"
    assert faults(("d/c/a", "holds", 0, "u"), ("d/x/a", "holds", 0, "u")), "one node in two cliques of a domain"
    assert faults(("d/c/a", "holds", 18, "u")), "beyond the capacity"


def test_a_lost_node_is_found() -> None:
    log, event, offset = joined()
    assert found(commands.check_members, log), "accepted by its zone, but not a member"
    log.write(FLEET_0, log.forward(event, 0, offset + 1))
    assert not found(commands.check_members, log)
    log, event, offset = joined()
    log.write(ZONES_0, e.NodesLeft(log.said(), "z", ["a"], [], [], False, b""))
    assert not found(commands.check_members, log), "it left"


def test_a_history_is_read_as_written(tmp_path: Any) -> None:
    log, event, offset = joined()
    log.tell(event, offset)
    log.history.add(TableInstalled(1.0, "z", "d", 0, 1, 2, b"\x00\xff"))
    log.history.write(tmp_path / "a.jsonl")
    again = read(tmp_path / "a.jsonl")
    kinds = (TableInstalled, BmcCalled)
    assert [again.of(kind) for kind in kinds] == [log.history.of(kind) for kind in kinds]
    assert again.copy().of(TableInstalled) == log.history.of(TableInstalled)
    assert Partition(ZONES, 0) == ZONES_0

"""Answers to clients: correct ones, and wrong ones with one fault each."""

from __future__ import annotations

import pytest

from eventstore.folding.fold import DONE, Outcome, refused
from eventstore.log import FLEET_0
from eventstore.reasons import Fault, Reason
from eventstore.replicas.replica import Answer
from schemas import events as e
from tests.simulation.checkers import commands
from tests.simulation.history import Answered, AttemptFailed, Invoked, QueryAnswered
from tests.support.written_run import ZONES_0, WrittenRun
from tests.support.written_steps import WrittenSteps

REFUSED = Outcome("refused", "no")


def test_an_answer_at_a_position_without_a_command_is_reported() -> None:
    log = WrittenRun()
    event = log.join("a")
    log.tell(event, 7)
    command_id = event.envelope.command_id
    assert list(commands.check_acknowledged(log.evidence())) == [
        f"{command_id} was answered by zones/0@7, where the log has no command"
    ]
    log = WrittenRun()
    log.tell(event, 0)
    assert list(commands.check_acknowledged(log.evidence())) == [
        f"{command_id} was answered by zones/0@0, where the log has no command"
    ]


def attempted(attempts: int, failed: int) -> list[str]:
    """The report about a command in the log with this number of attempts, some of which failed for certain."""
    log = WrittenRun()
    event = log.join("a")
    for _ in range(attempts):
        log.history.add(Invoked(0.0, "c", event.envelope.command_id, ZONES_0))
    for _ in range(failed):
        log.history.add(AttemptFailed(0.5, event.envelope.command_id))
    log.write(ZONES_0, event)
    return [fault.removeprefix(event.envelope.command_id) for fault in commands.check_acknowledged(log.evidence())]


def test_a_command_whose_attempts_all_failed_is_not_in_the_log() -> None:
    assert attempted(2, 2) == [" failed in every attempt, and is at zones/0@1"]
    assert not attempted(2, 1), "the outcome of the other attempt is unknown"
    assert not attempted(1, 0)


def effects(*done: tuple[str, Outcome, int, bool]) -> list[str]:
    """The report about records by (command, outcome, offset of the first copy, whether rows changed)."""
    steps = WrittenSteps()
    events = {name: steps.log.join(name) for name, *_ in done}
    steps.add(None).add(steps.log.join("rejected"), nodes={"x": None})
    for name, outcome, offset, changes in done:
        answer = Answer(outcome, ZONES_0, offset)
        if changes:
            steps.add(events[name], ZONES_0, answer, nodes={name: None}, marks={"": None})
        else:
            steps.add(events[name], ZONES_0, answer)
    ids = {event.envelope.command_id: name for name, event in events.items()}
    found = commands.check_effects(steps.evidence())
    return [" ".join(ids.get(word, word) for word in fault.split()) for fault in found]


def test_a_command_takes_effect_once() -> None:
    assert not effects(("a", DONE, 2, True), ("b", REFUSED, 3, False), ("a", DONE, 2, False), ("c", DONE, 5, True))
    assert effects(("a", DONE, 2, True), ("a", DONE, 3, True)) == ["a took effect 2 times: zones/0@2, zones/0@3"]


def test_a_refused_command_or_a_copy_changes_no_row() -> None:
    assert effects(("a", REFUSED, 2, True)) == ["zones/0@2 was refused, and changed ['marks', 'nodes']"]
    assert effects(("a", DONE, 1, True)) == ["zones/0@2 is a copy of 1, and changed ['marks', 'nodes']"]


def answered(reply: Answer, *answers: Answer, effective: int | None) -> list[str]:
    """The report about an answer to a command whose records at offsets 0, 1... have these answers. The record at
    `effective` changed rows.
    """
    steps = WrittenSteps()
    event = steps.log.join("a")
    for offset, answer in enumerate(answers):
        if offset == effective:
            steps.add(event, ZONES_0, answer, nodes={"a": None})
        else:
            steps.add(event, ZONES_0, answer)
    steps.log.history.add(Answered(9.0, "c", "p0", event.envelope.command_id, reply))
    return [fault.removeprefix(event.envelope.command_id) for fault in commands.check_answers(steps.evidence())]


def test_an_answer_equals_that_of_the_record_that_took_effect() -> None:
    first, second = Answer(DONE, ZONES_0, 0), Answer(DONE, ZONES_0, 1)
    assert not answered(first, first, first, effective=0)
    assert answered(second, first, second, effective=0) == [" took effect at 0, and was answered by 1"]
    assert not answered(second, first, second, effective=None), "neither record changed rows"
    refused = Answer(REFUSED, ZONES_0, 1)
    assert not answered(refused, first, refused, effective=0), "the duplicate came too late"
    assert answered(first, second, effective=0) == [f" got the answer {first} from p0, and the log has {second}"]


HELD = Answer(Outcome("held", "too much at once", result={"hold": 7}), FLEET_0, 0)
APPROVED = HELD._replace(outcome=Outcome("done", "hold 7 was approved by 'eve'", result={"hold": 7}))
OVERTAKEN = HELD._replace(outcome=Outcome("refused", "hold 7 ended without approval", result={"hold": 7}))


def test_a_repeated_held_command_may_be_answered_with_the_end_of_its_hold() -> None:
    def answered_when_held(reply: Answer) -> list[str]:
        steps = WrittenSteps()
        event = steps.log.join("a")
        steps.add(event, FLEET_0, HELD, holds={"7": None})
        steps.log.history.add(Answered(9.0, "c", "p0", event.envelope.command_id, reply))
        return list(commands.check_answers(steps.evidence()))

    assert not answered_when_held(HELD)
    assert not answered_when_held(APPROVED)
    assert not answered_when_held(OVERTAKEN)
    assert answered_when_held(
        APPROVED._replace(outcome=Outcome("done", "hold 8 was approved by 'eve'", result={"hold": 8}))
    )
    assert answered_when_held(HELD._replace(outcome=Outcome("unchanged", "hold 7 is there", result={"hold": 7})))
    assert answered_when_held(HELD._replace(outcome=Outcome("refused", "no", result={"hold": 7})))


UNCHANGED_A = Outcome("unchanged", "so already")


def one_outcome(*replies: tuple[str, Answer]) -> list[str]:
    """The report about these answers of processes to one command."""
    log = WrittenRun()
    event = log.join("a")
    for process, answer in replies:
        log.history.add(Answered(9.0, "c", process, event.envelope.command_id, answer))
    found = commands.check_one_outcome(log.evidence())
    return [fault.removeprefix(event.envelope.command_id) for fault in found]


def test_every_process_gives_a_command_the_same_outcome() -> None:
    first, other = Answer(DONE, ZONES_0, 1), Answer(UNCHANGED_A, ZONES_0, 1)
    assert not one_outcome(("p0", first), ("p1", first))
    assert one_outcome(("p0", first), ("p1", other)) == [
        " is done by zones/0@1 at p0, and unchanged by zones/0@1 at p1"
    ]
    assert one_outcome(("p0", first), ("p1", first._replace(offset=2))) == [
        " is done by zones/0@1 at p0, and done by zones/0@2 at p1"
    ]
    assert one_outcome(("p0", Answer(REFUSED, FLEET_0, -1))) == [" was refused at p0, and no record decided that"]


def test_a_hold_of_a_command_ends_in_one_way() -> None:
    assert not one_outcome(("p0", HELD), ("p1", APPROVED), ("p0", HELD), ("p0", APPROVED))
    assert one_outcome(("p0", HELD), ("p1", APPROVED), ("p0", OVERTAKEN)) == [
        " is done by fleet/0@0 at p1, and refused by fleet/0@0 at p0"
    ]


def test_an_answer_that_the_id_has_expired_contradicts_no_outcome() -> None:
    expired = refused(Fault("command_id: 1 has expired: it was used", Reason.COMMAND_ID_EXPIRED))
    assert not one_outcome(("p0", Answer(DONE, ZONES_0, 1)), ("p1", Answer(expired, ZONES_0, 9)))


def test_a_command_id_is_in_one_partition() -> None:
    steps = WrittenSteps()
    event = steps.log.join("a")
    steps.add(event, ZONES_0, Answer(DONE, ZONES_0, 0), nodes={"a": None})
    assert not list(commands.check_one_outcome(steps.evidence()))
    steps.add(event, FLEET_0, Answer(REFUSED, FLEET_0, 0))
    found = list(commands.check_one_outcome(steps.evidence()))
    assert found == [f"{event.envelope.command_id} is in the log of fleet/0, zones/0"]


@pytest.mark.parametrize(
    ("outcome", "changes", "fault"),
    [
        pytest.param(DONE, True, "", id="done"),
        pytest.param(DONE, False, "NodesJoined at zones/0@0 was done, and changed nothing", id="done without a change"),
        pytest.param(Outcome("done", result={"index": 3}), False, "", id="done with a result"),
        pytest.param(UNCHANGED_A, False, "", id="unchanged"),
        pytest.param(
            UNCHANGED_A,
            True,
            "NodesJoined at zones/0@0 was unchanged, and changed ['nodes']",
            id="unchanged with a change",
        ),
    ],
)
def test_done_means_that_something_changed(outcome: Outcome, changes: bool, fault: str) -> None:
    steps, answer = WrittenSteps(), Answer(outcome, ZONES_0, 0)
    event = steps.log.join("a")
    if changes:
        steps.add(event, ZONES_0, answer, nodes={"a": None})
    else:
        steps.add(event, ZONES_0, answer)
    assert list(commands.check_done(steps.evidence())) == ([fault] if fault else [])


def ordered(*sent_commands: tuple[float | None, float, int]) -> list[str]:
    """The report about commands a, b, ... by (time sent, time answered, offset of the record)."""
    log = WrittenRun()
    for name, (sent_s, answered_s, offset) in zip("abcdefg", sent_commands, strict=False):
        if sent_s is not None:
            log.history.add(Invoked(sent_s, "c", name, ZONES_0))
            log.history.add(Invoked(sent_s + 50, "c", name, ZONES_0))
        log.history.add(Answered(answered_s, "c", "p0", name, Answer(DONE, ZONES_0, offset)))
    return list(commands.check_order(log.evidence()))


def out_of_order(command: str, offset: int, after: str, highest: int) -> list[str]:
    return [f"{command} is at zones/0@{offset}, and was sent after {after} was answered at {highest}"]


def test_a_command_sent_after_an_answer_is_later_in_the_log() -> None:
    assert not ordered((1, 2, 5), (3, 4, 6))
    assert ordered((1, 2, 5), (3, 4, 4)) == out_of_order("b", 4, "a", 5)
    assert ordered((1, 2, 1), (3, 4, 0)) == out_of_order("b", 0, "a", 1)


def test_a_command_sent_before_an_answer_may_be_anywhere() -> None:
    assert not ordered((1, 3, 5), (3, 4, 4)), "sent at the time of the answer"
    assert not ordered((1, 9, 5), (3, 10, 4))
    assert not ordered((1, 2, 5), (None, 9, 4)), "the time of sending is unknown"
    assert not ordered((1, 2, 5), (3, 4, 5)), "both commands in one record"


def test_the_highest_answered_offset_counts() -> None:
    assert ordered((1, 2, 7), (1, 3, 5), (4, 5, 6)) == out_of_order("c", 6, "a", 7)
    assert ordered((1, 2, 5), (1, 3, 7), (4, 5, 6)) == out_of_order("c", 6, "b", 7)
    assert not ordered((1, 2, 5), (1, 6, 7), (4, 5, 6)), "b was answered later"
    assert ordered((7, 8, 6), (1, 2, 7), (3, 4, 8)) == out_of_order("a", 6, "c", 8)
    assert ordered((5, 9, 3), (1, 2, 4), (4, 10, 2)) == [*out_of_order("c", 2, "b", 4), *out_of_order("a", 3, "b", 4)]


def test_a_command_answered_twice_is_not_compared_with_itself() -> None:
    log = WrittenRun()
    log.history.add(Invoked(1.0, "c", "a", ZONES_0))
    for answered_s, offset in ((0.5, 5), (2.0, 4)):
        log.history.add(Answered(answered_s, "c", "p0", "a", Answer(DONE, ZONES_0, offset)))
    assert not list(commands.check_order(log.evidence()))


def reads(least: int, fleet: int) -> list[str]:
    """The report about a query with this minimum position of zones/0, answered at this position of fleet. Two joins are
    at 1 and 3.

    The records 2 and 4 of fleet took them.
    """
    log = WrittenRun()
    for name in ("a", "b"):
        event = log.join(name)
        offset = log.write(ZONES_0, event)
        log.write(ZONES_0, e.DpuRegistered(log.said(), "z", name, "n", "s", "b"))
        log.write(FLEET_0, e.WritesFrozen(log.said(), name))
        log.write(FLEET_0, log.forward(event, 0 if offset == 1 else 2, offset + 1))
    log.history.add(QueryAnswered(98.0, 99.0, "s", "p0", ZONES_0, least, least, fleet))
    return list(commands.check_reads(log.evidence()))


@pytest.mark.parametrize(
    ("least", "enough"),
    [
        pytest.param(0, 0, id="no minimum"),
        pytest.param(1, 0, id="no change before the minimum"),
        pytest.param(2, 3, id="the first join"),
        pytest.param(3, 3, id="a record that is not forwarded"),
        pytest.param(4, 5, id="the second join"),
        pytest.param(5, 5, id="all records"),
    ],
)
def test_a_query_of_fleet_includes_the_changes_before_its_minimum_position(least: int, enough: int) -> None:
    assert not reads(least, enough)
    assert not reads(least, -1), "the query was not about fleet"
    if enough:
        fault = f"s read fleet@{enough - 1}, which lacks zones/0@{least}"
        assert reads(least, enough - 1) == [fault]
        assert reads(least, 0)


def test_a_query_of_fleet_before_the_forward_is_a_fault() -> None:
    log = WrittenRun()
    log.write(ZONES_0, log.join("a"))
    log.history.add(QueryAnswered(98.0, 99.0, "s", "p0", ZONES_0, 2, 2, 1))
    assert list(commands.check_reads(log.evidence())) == ["s read fleet@1, which lacks zones/0@2"]


def test_a_forward_that_ends_before_a_change_does_not_include_it() -> None:
    log = WrittenRun()
    event = log.join("a")
    offset = log.write(ZONES_0, event)
    for start, end in ((0, offset), (offset, offset + 1)):
        log.write(FLEET_0, log.forward(event, start, end))
    for fleet in (3, 2):
        log.history.add(QueryAnswered(98.0, 99.0, "s", "p0", ZONES_0, 2, 2, fleet))
    assert list(commands.check_reads(log.evidence())) == ["s read fleet@2, which lacks zones/0@2"]

"""Answers to clients, compared with the log: no command is lost, applied twice, misplaced or out of order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf

from eventstore.folding.ledger import AHEAD_MS, LATE_MS
from eventstore.log import Partition
from eventstore.reasons import Reason
from eventstore.replicas.replica import Answer
from schemas.events import FoldVersionUpgraded
from tests.simulation import model
from tests.simulation.checkers.evidence import Evidence, is_membership
from tests.simulation.history import Answered, AttemptFailed, Invoked, QueryAnswered

Found = Iterator[str]

_ID_REFUSALS = {
    Reason.COMMAND_ID_IN_USE,
    Reason.COMMAND_ID_EXPIRED,
    Reason.COMMAND_TOO_LATE,
    Reason.COMMAND_FROM_FUTURE,
}
"""The reason codes of refusals because of a command id or the time in it."""


def check_acknowledged(run: Evidence) -> Found:
    """I1: an answered command is in the log; a command whose every attempt failed for certain is not."""
    for reply in run.history.of(Answered):
        where = reply.answer.partition, reply.answer.offset
        step = run.by_offset.get(where)
        if step is None or step.event is None or step.answer is None:
            yield f"{reply.command_id} was answered by {where[0]}@{where[1]}, where the log has no command"
        elif step.event.envelope.command_id != reply.command_id:
            yield f"{reply.command_id} was answered by the record of {step.event.envelope.command_id}"
    open_attempts = Counter(invoked.command_id for invoked in run.history.of(Invoked))
    open_attempts.subtract(not_taken.command_id for not_taken in run.history.of(AttemptFailed))
    failed = {command_id for command_id, left in open_attempts.items() if left == 0}
    for step in run.by_offset.values():
        if step.event is not None and step.event.envelope.command_id in failed:
            at = f"{step.partition}@{step.record.offset}"
            yield f"{step.event.envelope.command_id} failed in every attempt, and is at {at}"


def check_members(run: Evidence) -> Found:
    """I1, at rest: no stated node is missing without a leave."""
    stated = model.newest_incarnations(
        [step for partition, found in run.steps.items() if partition.topic == "zones" for step in found]
    )
    yield from model.check_nodes(stated, run.fleet)


def check_effects(run: Evidence) -> Found:
    """I2: a command has at most one effect, and none if it was refused or is a duplicate."""
    effects: dict[str, list[str]] = defaultdict(list)
    for (partition, offset), step in run.by_offset.items():
        if step.event is None or step.answer is None or not step.rows:
            continue
        where, changed = f"{partition}@{offset}", sorted(step.rows)
        effects[step.event.envelope.command_id].append(where)
        if step.answer.outcome.code == "refused":
            yield f"{where} was refused, and changed {changed}"
        if step.answer.offset != offset:
            yield f"{where} is a copy of {step.answer.offset}, and changed {changed}"
    for command_id, places in sorted(effects.items()):
        if len(places) > 1:
            yield f"{command_id} took effect {len(places)} times: {', '.join(places)}"


def check_new_ids(run: Evidence) -> Found:
    """I2: a command that arrived in its time window under an unused id is not refused because of its id, even after a
    clock was fast.
    """
    seen: set[tuple[Partition, str]] = set()
    for (partition, offset), step in run.by_offset.items():
        if step.event is None or step.answer is None or not step.event.envelope.command_id:
            continue
        envelope = step.event.envelope
        is_new = (partition, envelope.command_id) not in seen
        seen.add((partition, envelope.command_id))
        late_ms = step.record.timestamp_ms - envelope.issued_at_ms
        outcome = step.answer.outcome
        if is_new and -AHEAD_MS <= late_ms <= LATE_MS and outcome.reason_code in _ID_REFUSALS:
            yield f"{partition}@{offset} was new and {late_ms} ms old, and was refused: {outcome.reason}"


def check_answers(run: Evidence) -> Found:
    """I3: an answer has the outcome and position of the record that took effect."""
    effective = {
        step.event.envelope.command_id: offset
        for (_, offset), step in run.by_offset.items()
        if step.event is not None and step.answer is not None and step.rows
    }
    for reply in run.history.of(Answered):
        offset_of_effect = effective.get(reply.command_id, reply.answer.offset)
        if reply.answer.outcome.code != "refused" and reply.answer.offset != offset_of_effect:
            yield f"{reply.command_id} took effect at {offset_of_effect}, and was answered by {reply.answer.offset}"
        step = run.by_offset.get((reply.answer.partition, reply.answer.offset))
        if step is None or step.answer is None or _is_end_of_hold(reply.answer, step.answer):
            continue
        if step.answer != reply.answer:
            source = reply.process
            yield f"{reply.command_id} got the answer {reply.answer} from {source}, and the log has {step.answer}"


def check_one_outcome(run: Evidence) -> Found:
    """I23: a command has one outcome on every process, decided by one record in one partition."""
    reply: dict[tuple[str, bool], Answered] = {}
    for entry in run.history.of(Answered):
        if is_expired(entry.answer):
            continue
        if entry.answer.offset < 0:
            yield f"{entry.command_id} was {entry.answer.outcome.code} at {entry.process}, and no record decided that"
        has_ended = "hold" in entry.answer.outcome.result and entry.answer.outcome.code != "held"
        first = reply.setdefault((entry.command_id, has_ended), entry)
        if first.answer != entry.answer:
            yield f"{entry.command_id} is {_outcome_text(first)}, and {_outcome_text(entry)}"
    places: dict[str, set[str]] = defaultdict(set)
    for (partition, _), step in run.by_offset.items():
        if step.answer is not None and step.event is not None and not isinstance(step.event, FoldVersionUpgraded):
            places[step.event.envelope.command_id].add(str(partition))
    for command_id, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{command_id} is in the log of {', '.join(sorted(found))}"


def check_done(run: Evidence) -> Found:
    """I23: `done` means that a row changed, `unchanged` that none did."""
    for (partition, offset), step in run.by_offset.items():
        if step.answer is None or step.answer.offset != offset or isinstance(step.event, FoldVersionUpgraded):
            continue
        outcome, where = step.answer.outcome, f"{type(step.event).__name__} at {partition}@{offset}"
        has_result = outcome.result or any(item.result for item in outcome.items)
        if outcome.code == "done" and not has_result and not step.rows:
            yield f"{where} was done, and changed nothing"
        if outcome.code == "unchanged" and step.rows:
            yield f"{where} was unchanged, and changed {sorted(step.rows)}"


def _is_end_of_hold(reply: Answer, logged: Answer) -> bool:
    """Whether a repeat of a held command was answered with the end of its hold: `done` if approved, else `refused`."""
    outcome, hold = reply.outcome, logged.outcome.result.get("hold")
    names_its_end = outcome.code in ("done", "refused") and f"hold {hold} " in outcome.reason
    return (
        logged.outcome.code == "held"
        and outcome.result.get("hold") == hold
        and reply[1:] == logged[1:]
        and names_its_end
    )


def is_expired(answer: Answer) -> bool:
    """Whether a duplicate arrived after its id had expired. The outcome of the first copy is then unknown."""
    return answer.outcome.reason_code == Reason.COMMAND_ID_EXPIRED


def _outcome_text(reply: Answered) -> str:
    outcome, partition, offset = reply.answer
    return f"{outcome.code} by {partition}@{offset} at {reply.process}"


def check_order(run: Evidence) -> Found:
    """I6: a command that was answered before another one of its partition was sent comes first in the log."""
    sent: dict[str, float] = {}
    for invoked in run.history.of(Invoked):
        sent.setdefault(invoked.command_id, invoked.at_s)
    by_partition: dict[Partition, list[tuple[float, float, int, str]]] = defaultdict(list)
    for reply in run.history.of(Answered):
        sent_s = sent.get(reply.command_id, -inf)
        by_partition[reply.answer.partition].append((reply.at_s, sent_s, reply.answer.offset, reply.command_id))
    for partition, found in by_partition.items():
        answered = sorted(found)
        highest, last, done = -1, "", 0
        for _, sent_s, offset, command_id in sorted(found, key=lambda entry: entry[1]):
            while done < len(answered) and answered[done][0] < sent_s:
                if answered[done][2] > highest:
                    highest, last = answered[done][2], answered[done][3]
                done += 1
            if offset < highest and command_id != last:
                yield f"{command_id} is at {partition}@{offset}, and was sent after {last} was answered at {highest}"


def check_reads(run: Evidence) -> Found:
    """I12: the response to a query is at least as new as its minimum position, and never ahead of the log."""
    for read in run.history.of(QueryAnswered):
        if read.fleet >= 0 and read.fleet <= _required_fleet_offset(run, read):
            yield f"{read.session} read fleet@{read.fleet}, which lacks {read.partition}@{read.least}"
        if read.position < read.least:
            yield f"{read.session} asked {read.process} for {read.partition} at {read.least} and got {read.position}"
        if read.position > run.end_at(read.partition, read.at_s):
            yield f"{read.session} read {read.partition}@{read.position}, which did not exist yet"


def _required_fleet_offset(run: Evidence, read: QueryAnswered) -> float:
    """The record of fleet that took the last change before the minimum position; -1 if there is no such change."""
    changes = [step.record.offset for step in run.steps[read.partition] if is_membership(step)]
    index = bisect_left(changes, read.least)
    if index == 0:
        return -1
    return next((offset for end, offset in run.taken(read.partition) if end > changes[index - 1]), inf)

"""Decisions on records about DPUs: registrations, requests of operators, step events, and deadlines.

Each record becomes a trigger of the lifecycle's table. The transition may free capacity in the zone, and then the same
record admits the next DPUs of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from eventstore.folding.fold import DONE, Decision, Outcome, RecordMetadata, refusal, unchanged
from eventstore.reasons import Fault, Reason
from projections.attempt_limits import FAILURE_KINDS, AttemptsByFailure, in_force
from projections.field_checks import MAX_AHEAD_MS, check_name, check_text, check_zone, is_printable, quoted
from projections.zones.dpus import lifecycle
from projections.zones.dpus.lifecycle import REQUESTS, TransitionResult, Trigger
from projections.zones.dpus.phases import PENDING
from projections.zones.dpus.registration import Registration, limit_fault, registered
from projections.zones.dpus.rollout import DpuChange, InstallAdmission, admit, limits_of, queue_place
from projections.zones.dpus.wanted import followed
from projections.zones.rows import Dpu, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import (
    DeadlinePassed,
    DpuRegistered,
    LifecycleRequested,
    StepFailed,
    StepProgressed,
    StepStarted,
    StepSucceeded,
)

STEP_DEADLINE = "step"
"""Kind of the DeadlinePassed that ends an attempt; its subject is the DPU."""

LOST = "lost"
"""Kind of a StepFailed that is no evidence about the device: another provisioner appends it when the provisioner of the
attempt is no longer alive, and a provisioner whose visit a freeze kept waiting until its deadline."""

MAX_MESSAGE = 253
"""Maximum length of a stored failure message, in characters."""

_MAX_FACTS = 16

StepEvent: TypeAlias = StepStarted | StepProgressed | StepSucceeded | StepFailed

Transition: TypeAlias = Callable[[str, Dpu, Trigger], TransitionResult]
"""The transitions of a fold version: those of the lifecycle, or with renewals of certificates."""


def _readdressed(row: Dpu, bmc_address: str) -> Dpu:
    return replace(row, bmc_address=bmc_address)


def register(
    state: ZonesState,
    event: DpuRegistered,
    at: RecordMetadata,
    readdressed: Callable[[Dpu, str], Dpu] = _readdressed,
) -> Decision:
    fault = _fault_of_registration(event)
    if fault is not None:
        return refusal(fault)
    wanted = state.wanted.rows.get(event.dpu)
    if wanted is not None:
        reason = f"dpu: {event.dpu!r} is wanted by the object {wanted.object!r}; change that object instead"
        return refusal(Fault(reason, Reason.DPU_WANTED, dpu=event.dpu, object=wanted.object))
    old = state.dpus.rows.get(event.dpu)
    if old is None:
        return _add(state, event, at)
    if old.zone != event.zone:
        reason = f"dpu: {event.dpu!r} is registered in zone {old.zone!r}; delete it there first"
        return refusal(Fault(reason, Reason.DPU_IN_OTHER_ZONE, dpu=event.dpu, zone=old.zone))
    if old.effect and event.node != old.node:
        reason = (
            f"node: {quoted(event.node)} cannot replace {quoted(old.node)}, which is out of service for dpu "
            f"{event.dpu!r}"
        )
        return refusal(Fault(reason, Reason.NODE_OUT_OF_SERVICE, dpu=event.dpu, node=old.node))
    row = replace(readdressed(old, event.bmc_address), node=event.node, serial=old.serial or event.serial)
    if event.serial in ("", row.serial):
        return _decide(state, event.dpu, old, row, at)
    swapped = Trigger("swapped", at, serial=event.serial)
    return _decide(state, event.dpu, old, lifecycle.transition(event.dpu, row, swapped), at)


def request(
    state: ZonesState, event: LifecycleRequested, at: RecordMetadata, transition: Transition = lifecycle.transition
) -> Decision:
    if event.request not in REQUESTS:
        return refusal(f"request: {quoted(event.request)} must be one of {', '.join(REQUESTS)}")
    fault = check_text("image", event.image)
    if fault is None and event.image and event.request != "provision":
        fault = f"image: {quoted(event.image)} goes with provision only, not with {event.request}"
    if fault is not None:
        return refusal(fault)
    row = _find(state, event.zone, event.dpu)
    if isinstance(row, str):
        return refusal(row)
    return _decide(state, event.dpu, row, transition(event.dpu, row, Trigger(event.request, at, image=event.image)), at)


def apply_step_event(
    state: ZonesState, event: StepEvent, at: RecordMetadata, transition: Transition = lifecycle.transition
) -> Decision:
    row = _find(state, event.zone, event.dpu)
    if isinstance(row, str):
        return refusal(row)
    if event.phase != row.phase:
        reason = f"phase: {quoted(event.phase)} of dpu {event.dpu!r} is no longer its phase, which is {row.phase}"
        return refusal(Fault(reason, Reason.PHASE_MISMATCH, dpu=event.dpu, phase=row.phase))
    trigger = _trigger(event, at)
    if isinstance(trigger, str):
        return refusal(trigger)
    trigger = trigger._replace(attempt_limits=_attempt_limits(state, row))
    return _decide(state, event.dpu, row, transition(event.dpu, row, trigger), at)


def expire(
    state: ZonesState, event: DeadlinePassed, at: RecordMetadata, transition: Transition = lifecycle.transition
) -> Decision:
    """End an attempt at its deadline, if the append time of the record has reached the deadline."""
    name = event.envelope.subject
    row = state.dpus.rows.get(name)
    if event.kind != STEP_DEADLINE or row is None:
        reason = f"subject: {quoted(name)} has no deadline of kind {quoted(event.kind)}"
        return refusal(Fault(reason, Reason.DPU_NOT_FOUND, dpu=name))
    if row.step_state != "running" or row.deadline_ms != event.deadline_ms:
        return unchanged(f"deadline_ms: {event.deadline_ms} of dpu {name!r} has passed already")
    if at.append_ms < event.deadline_ms:
        reason = f"deadline_ms: {event.deadline_ms} of dpu {name!r} is after {at.append_ms}, the time of this record"
        return refusal(Fault(reason, Reason.ATTEMPT_TOO_EARLY, dpu=name))
    message = f"{row.provisioner!a} reported no result by the deadline"
    failed_ms = _failure_time_ms(event, at)
    trigger = Trigger("expired", at, attempt=row.attempt, kind="transient", message=message, failed_ms=failed_ms)
    trigger = trigger._replace(attempt_limits=_attempt_limits(state, row))
    return _decide(state, name, row, transition(name, row, trigger), at)


def _add(state: ZonesState, event: DpuRegistered, at: RecordMetadata) -> Decision:
    index = state.dpu_index.zone(event.zone)
    if fault := limit_fault(event.zone, len(index.names)):
        return refusal(fault)
    registration = Registration(event.zone, event.node, event.serial, event.bmc_address)
    added = registered(registration, state.zone_rows.rows.get(event.zone) or Zone(), index, at)
    return Decision(ZonesChange(dpus={event.dpu: added.dpu}, zones={event.zone: added.zone}), DONE)


def _decide(state: ZonesState, name: str, old: Dpu, result: Dpu | str | None, at: RecordMetadata) -> Decision:
    if isinstance(result, str):
        return refusal(result)
    result, zones = followed(state, name, result, at)
    changed = DpuChange(name, old, result)
    admitted = admit(state, old.zone, limits_of(state.zone_rows.rows.get(old.zone)), changed, at)
    outcome = _outcome(state, changed, admitted)
    if result == old and not admitted.rows:
        return Decision(None, outcome)
    rows: dict[str, Dpu | None] = {name: result, **admitted.rows}
    return Decision(ZonesChange(dpus=rows, zones=zones), outcome)


def _outcome(state: ZonesState, changed: DpuChange, admitted: InstallAdmission) -> Outcome:
    if changed.new is None or changed.new.phase != PENDING or changed.name in admitted.rows:
        return DONE
    reason = f"dpu: {changed.name!r} is paused" if changed.new.paused else admitted.full
    place = queue_place(state, changed, admitted)
    return Outcome("waiting", reason, {"queue_position": place})


def _attempt_limits(state: ZonesState, row: Dpu) -> AttemptsByFailure:
    return in_force((state.zone_rows.rows.get(row.zone) or Zone()).attempt_limits)


def _find(state: ZonesState, zone: str, dpu: str) -> Dpu | str:
    row = state.dpus.rows.get(dpu)
    if row is None or row.zone != zone:
        reason = f"dpu: {quoted(dpu)} is not registered in zone {quoted(zone)}"
        return Fault(reason, Reason.DPU_NOT_FOUND, dpu=dpu, zone=zone)
    return row


def _fault_of_registration(event: DpuRegistered) -> str | None:
    return (
        check_zone("zone", event.zone)
        or check_name("dpu", event.dpu)
        or (check_name("node", event.node) if event.node else None)
        or check_text("serial", event.serial)
        or check_text("bmc_address", event.bmc_address)
    )


def _trigger(event: StepEvent, at: RecordMetadata) -> Trigger | str:
    match event:
        case StepStarted():
            fault = check_text("provisioner", event.provisioner)
            if fault is None and not event.provisioner:
                fault = "provisioner: '' must name the provisioner that takes the step"
            return fault or Trigger("started", at, attempt=event.attempt, provisioner=event.provisioner)
        case StepProgressed():
            fault = check_text("task", event.task)
            if fault is None and not 0 <= event.percent <= 100:
                fault = f"percent: {event.percent} must be from 0 to 100"
            return fault or Trigger("progressed", at, attempt=event.attempt, task=event.task, percent=event.percent)
        case StepSucceeded():
            return _fault_of_facts(event.facts) or Trigger("succeeded", at, attempt=event.attempt, facts=event.facts)
        case StepFailed():
            if event.kind not in (*FAILURE_KINDS, LOST):
                return f"kind: {quoted(event.kind)} must be one of {', '.join((*FAILURE_KINDS, LOST))}"
            trigger = LOST if event.kind == LOST else "failed"
            return Trigger(
                trigger,
                at,
                attempt=event.attempt,
                kind=event.kind,
                message=_one_line(event.message),
                failed_ms=_failure_time_ms(event, at),
            )


def _failure_time_ms(event: StepFailed | DeadlinePassed, at: RecordMetadata) -> int:
    """The time of a failure: the fold time, but at most MAX_AHEAD_MS after the event was issued.

    If the broker's clock is fast, fold time is ahead. A delay that began at such a fold time would last until the
    corrected clock had caught up.
    """
    return min(at.time_ms, event.envelope.issued_at_ms + MAX_AHEAD_MS)


def _fault_of_facts(facts: Mapping[str, str]) -> str | None:
    if len(facts) > _MAX_FACTS:
        return f"facts: {len(facts)} are more than the {_MAX_FACTS} allowed"
    for key in sorted(facts):
        fault = check_text("facts", key) or check_text(f"facts[{key}]", facts[key])
        if fault is not None:
            return fault
    return None


def _one_line(message: str) -> str:
    """A failure text as one valid line: unprintable characters become spaces, and a long text is cut. No text is
    refused, because a refusal would keep the error of the device out of the log."""
    return "".join(char if is_printable(char) else " " for char in message[:MAX_MESSAGE])

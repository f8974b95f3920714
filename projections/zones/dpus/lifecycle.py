"""The lifecycle of a DPU: the transition table of requests and step events per phase.

A provisioner appends `StepStarted` before a step, executes it, and appends the result. The fold accepts only records
that name the running attempt. An attempt ends by its result, by its deadline (a timer appends it), by a `StepFailed` of
kind lost when its provisioner is gone, or by a request. Attempt numbers only grow, so a late record matches no attempt.
Failures of a kind are retried up to the zone's budget, after a delay with jitter. The jitter is derived from the DPU's
name and attempt, because a fold has no randomness. After the last retry the DPU is in Error. No phase is terminal:
requests lead on from Error, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from eventstore.backoff import backoff_ceiling
from eventstore.folding.fold import RecordMetadata
from eventstore.reasons import Fault, Reason
from projections.attempt_limits import DEFAULT_LIMITS, AttemptsByFailure
from projections.field_checks import quoted
from projections.zones.dpus.install_interfaces import phase_after, step_of
from projections.zones.dpus.phases import (
    DELETING,
    ERROR,
    INITIALIZING,
    INSTALLED,
    INSTALLING,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    PENDING,
    PHASES,
    PROVISIONING,
    READY,
)
from projections.zones.dpus.rollout import enter_phase
from projections.zones.rows import Dpu

MAX_ATTEMPTS = 20
"""A phase has at most this number of attempts plus the sum of the zone's limits by kind of failure. An attempt whose
provisioner died counts against none of those limits. Because of this maximum, a DPU whose provisioners all die ends in
Error, too."""

BACKOFF_MS, LONGEST_BACKOFF_MS = 2_000, 300_000

REQUESTS = ("provision", "pause", "resume", "retry", "skip", "abort", "delete")


class Trigger(NamedTuple):
    """An input to a DPU's lifecycle. `name` determines which of the other fields are used."""

    name: str
    at: RecordMetadata
    image: str = ""
    attempt: int = 0
    provisioner: str = ""
    task: str = ""
    percent: int = 0
    facts: Mapping[str, str] = {}
    kind: str = ""
    message: str = ""
    serial: str = ""
    failed_ms: int = 0
    attempt_limits: AttemptsByFailure = DEFAULT_LIMITS


TransitionResult: TypeAlias = Dpu | str | None
"""The row after the trigger, None for a deleted DPU, or the reason for a refusal."""

Action: TypeAlias = Callable[[str, Dpu, Trigger], TransitionResult]


def transition(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """The row of a DPU after a trigger."""
    action = TRANSITIONS.get((row.phase, trigger.name))
    if action is None:
        reason = f"{trigger.name}: does not apply to dpu {name!r} in phase {row.phase}"
        return Fault(reason, Reason.PHASE_MISMATCH, dpu=name, phase=row.phase)
    return action(name, row, trigger)


def backoff_ms(name: str, attempt: int, failures: int) -> int:
    """The retry delay: half of a ceiling that doubles with each failure, plus a random share of the other half. Full
    jitter could make every delay short, and exhaust the retries of a device while it reboots."""
    drawn = int.from_bytes(blake2b(f"{name}/{attempt}".encode(), digest_size=8).digest(), "big")
    ceiling_ms = backoff_ceiling(failures - 1, BACKOFF_MS, LONGEST_BACKOFF_MS)
    half_ms = ceiling_ms // 2
    return half_ms + drawn % (ceiling_ms - half_ms) + 1


def wait_ms(row: Dpu, now_ms: int) -> int:
    """The delay until the next attempt.

    A `not_before_ms` that is further ahead than the longest backoff was set by a fast clock that has been corrected
    since. Such a time causes no delay.
    """
    left_ms = row.not_before_ms - now_ms
    return left_ms if 0 < left_ms <= LONGEST_BACKOFF_MS else 0


# --- requests ---------------------------------------------------------------------------------------------------------


def _provision(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    image = trigger.image or row.image
    if not image:
        return Fault(
            f"image: '' must name an image for dpu {name!r}, which has none yet", Reason.IMAGE_MISSING, dpu=name
        )
    if row.phase == PENDING:
        return replace(row, image=image, resume=NODE_EFFECT)
    return _pending(replace(row, image=image), NODE_EFFECT, trigger.at)


def _pause(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return replace(row, paused=True)


def _resume(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return replace(row, paused=False)


def _reopen(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Restart the step. If an attempt still runs, its result will be refused."""
    return _begin_step(row, row.phase, trigger.at)


def _retry_failed(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Retry the failed phase of a DPU in Error."""
    return _begin_step(row, row.resume, trigger.at)


def _skip(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return _after_step(row, row.phase, trigger.at)


def _skip_failed(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return _after_step(row, row.resume, trigger.at)


def _withdraw(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Remove the DPU from the queue. If a failed install left its node out of service, the node goes back into service
    first."""
    return _unwind(name, row, trigger) if row.effect else _settled(row, trigger.at)


def _unwind(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Put the node back into service; the DPU serves with its installed image, or waits to be provisioned."""
    return enter_phase(replace(row, image=row.installed or row.image), NODE_EFFECT_REMOVAL, trigger.at)


def _delete(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return enter_phase(replace(row, paused=False), DELETING, trigger.at)


def _follow(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Install what an object wants, from any phase. An install of another image that is under way ends: its attempt is
    refused, and the next one fences it. A device that still has the wanted image only gets its node back."""
    has_image = row.installed == trigger.image and not row.swapped
    if row.phase == READY and has_image:
        return row
    if row.image == trigger.image and (row.phase == PENDING or row.phase in PROVISIONING):
        return row
    if has_image and row.phase != INITIALIZING:
        row = replace(row, image=trigger.image)
        return enter_phase(row, NODE_EFFECT_REMOVAL, trigger.at) if row.effect else _settled(row, trigger.at)
    return _provision(name, row, trigger)


def _stay(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return row


def _forget(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return None


# --- step events ------------------------------------------------------------------------------------------------------


def start(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    if row.step_state == "running":
        reason = (
            f"attempt: {trigger.attempt} of dpu {name!r} must wait for attempt {row.attempt} of {row.provisioner!a}"
        )
        return Fault(reason, Reason.ATTEMPT_MISMATCH, dpu=name, attempt=row.attempt)
    if trigger.attempt != row.attempt + 1:
        reason = f"attempt: {trigger.attempt} of dpu {name!r} must be {row.attempt + 1}"
        return Fault(reason, Reason.ATTEMPT_MISMATCH, dpu=name, attempt=row.attempt)
    if row.paused:
        return Fault(f"dpu: {name!r} is paused", Reason.DPU_PAUSED, dpu=name)
    if wait_ms(row, trigger.at.append_ms):
        reason = f"attempt: {trigger.attempt} of dpu {name!r} must not start before {row.not_before_ms}"
        return Fault(reason, Reason.ATTEMPT_TOO_EARLY, dpu=name)
    return replace(
        row,
        step_state="running",
        attempt=trigger.attempt,
        provisioner=trigger.provisioner,
        not_before_ms=0,
        deadline_ms=trigger.at.time_ms + step_of(row.bmc_address, row.phase).deadline_ms,
        began_ms=max(row.began_ms, row.since_ms, trigger.at.time_ms),
        percent=0,
    )


def _progress(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return stale(name, row, trigger) or replace(row, task=trigger.task, percent=trigger.percent)


def _succeed(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    if (fault := stale(name, row, trigger)) is not None:
        return fault
    serial = trigger.facts.get("serial") or row.serial
    if row.serial not in ("", serial) and row.phase != DELETING:
        return _swap(name, row, trigger._replace(serial=serial))
    image = trigger.facts.get("image", row.image)
    if row.phase in INSTALLED and image != row.image:
        message = f"image: the device reports {quoted(image)}, but {quoted(row.image)} is wanted"
        return _fail(name, row, trigger._replace(kind="device", message=message))
    return _after_step(replace(row, serial=serial, facts={**row.facts, **trigger.facts}), row.phase, trigger.at)


def _fail(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    if (fault := stale(name, row, trigger)) is not None:
        return fault
    failed = row.failed._replace(**{trigger.kind: getattr(row.failed, trigger.kind) + 1})
    failures = getattr(failed, trigger.kind)
    row = replace(row, failures=row.failures + 1, failed=failed)
    if failures >= getattr(trigger.attempt_limits, trigger.kind) or row.phase_attempts >= _attempts_max(trigger):
        return _error(row, row.phase, trigger)
    return replace(
        _without_attempt(row, trigger),
        disowned=row.attempt if trigger.kind == "device" else row.disowned,
        not_before_ms=trigger.failed_ms + backoff_ms(name, row.attempt, failures),
    )


def _lose(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """The provisioner is gone. This is no evidence about the device, so the next attempt may begin at once."""
    if (fault := stale(name, row, trigger)) is not None:
        return fault
    return (
        _error(row, row.phase, trigger)
        if row.phase_attempts >= _attempts_max(trigger)
        else _without_attempt(row, trigger)
    )


def _attempts_max(trigger: Trigger) -> int:
    return MAX_ATTEMPTS + sum(trigger.attempt_limits)


def _swap(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Another card replaced this DPU. Facts of the old card are void; the image may be provisioned anew."""
    row = replace(row, serial=trigger.serial, installed="", facts={}, swapped=row.swapped or bool(row.facts))
    if row.phase in (INITIALIZING, DELETING) or (row.phase == ERROR and row.resume == DELETING):
        return row
    if row.phase == PENDING:
        return replace(row, resume=NODE_EFFECT)
    message = f"serial: {quoted(trigger.serial)} is another card than the one provisioned; retry provisions it"
    return _error(row, NODE_EFFECT, trigger._replace(message=message))


# --- parts of them ----------------------------------------------------------------------------------------------------


def stale(name: str, row: Dpu, trigger: Trigger) -> str | None:
    if row.step_state == "running" and trigger.attempt == row.attempt:
        return None
    reason = f"attempt: {trigger.attempt} of dpu {name!r} has ended"
    return Fault(reason, Reason.ATTEMPT_MISMATCH, dpu=name, attempt=row.attempt)


def _without_attempt(row: Dpu, trigger: Trigger) -> Dpu:
    """The step waits for another attempt; a task that still runs on the device stays recorded, for that attempt to
    adopt."""
    return replace(row, step_state="open", provisioner="", deadline_ms=0, message=trigger.message)


def _begin_step(row: Dpu, phase: str, at: RecordMetadata) -> Dpu:
    """Begin a step at once. If it belongs to an install and the DPU is not admitted, the DPU is queued instead."""
    if phase in INSTALLING and row.phase not in INSTALLING:
        return _pending(row, phase, at)
    return enter_phase(row, phase, at)


def _pending(row: Dpu, phase: str, at: RecordMetadata) -> Dpu:
    return replace(_idle(row, PENDING, at), resume=phase)


def _after_step(row: Dpu, phase: str, at: RecordMetadata) -> TransitionResult:
    """The row after a step that succeeded or was skipped."""
    if phase == DELETING:
        return None
    if phase == NODE_EFFECT_REMOVAL:
        return _settled(replace(row, effect=False), at)
    next_phase = phase_after(row.bmc_address, phase)
    if next_phase == NODE_EFFECT_REMOVAL:
        row = replace(row, installed=row.image, swapped=False)
    return _begin_step(row, next_phase, at)


def _settled(row: Dpu, at: RecordMetadata) -> Dpu:
    if row.installed:
        return _idle(replace(row, image=row.installed), READY, at)
    return _idle(row, INITIALIZING, at)


def _error(row: Dpu, resume: str, trigger: Trigger) -> Dpu:
    """The row in Error: the attempts and failures of the failed step stay visible."""
    tried = {"entered": row.entered, "failures": row.failures, "failed": row.failed}
    return replace(_idle(row, ERROR, trigger.at), resume=resume, message=trigger.message, **tried)


def _idle(row: Dpu, phase: str, at: RecordMetadata) -> Dpu:
    """The row in a phase without a step."""
    return replace(enter_phase(row, phase, at), step_state="idle")


# --- the table --------------------------------------------------------------------------------------------------------

_WORK = (*PROVISIONING, DELETING)


def _rows(trigger: str, *cells: tuple[tuple[str, ...], Action]) -> dict[tuple[str, str], Action]:
    return {(phase, trigger): action for phases, action in cells for phase in phases}


TRANSITIONS: Mapping[tuple[str, str], Action] = {
    **_rows("provision", ((INITIALIZING, PENDING, READY, ERROR), _provision)),
    **_rows("follow", ((INITIALIZING, PENDING, *PROVISIONING, READY, ERROR), _follow)),
    **_rows("pause", (PHASES, _pause)),
    **_rows("resume", (PHASES, _resume)),
    **_rows("retry", (_WORK, _reopen), ((ERROR,), _retry_failed)),
    **_rows("skip", (PROVISIONING, _skip), ((ERROR,), _skip_failed), ((DELETING,), _forget)),
    **_rows("abort", ((PENDING,), _withdraw), ((*_WORK, ERROR), _unwind)),
    **_rows("delete", ((INITIALIZING, PENDING, *PROVISIONING, READY, ERROR), _delete), ((DELETING,), _stay)),
    **_rows("started", (_WORK, start)),
    **_rows("progressed", (_WORK, _progress)),
    **_rows("succeeded", (_WORK, _succeed)),
    **_rows("failed", (_WORK, _fail)),
    **_rows("lost", (_WORK, _lose)),
    **_rows("expired", (_WORK, _fail)),
    **_rows("swapped", (PHASES, _swap)),
}
"""Actions by (phase, trigger). A pair without an entry is refused."""

"""Renewals of device certificates: what happens to a Ready DPU at a visit to its device.

A visit is an attempt at a step of the phase Ready: it has a number, an actor and a deadline as every attempt, and its
records are those of steps. The DPU stays Ready, whatever the visit ends with. A failed one is repeated later
(certificates.py); after several failures, or one that needs a person, the DPU counts as one that needs an operator
until a visit succeeds. A request that takes the DPU out of Ready ends the attempt as it ends others.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from eventstore.reasons import Fault, Reason
from projections.attempt_limits import AttemptsByFailure
from projections.zones.dpus import lifecycle
from projections.zones.dpus.certificates import (
    AUTHORITY,
    CERTIFICATE_FACT,
    ENDS_FACT,
    LONGEST_RETRY_MS,
    VISIT_EVERY_MS,
    retry_ms,
    visit_ms,
)
from projections.zones.dpus.lifecycle import Action, TransitionResult, Trigger, stale, start
from projections.zones.dpus.phases import READY
from projections.zones.rows import Dpu


def transition(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """The row of a DPU after a trigger, with renewals in the phase Ready."""
    action = VISITS.get(trigger.name) if row.phase == READY else None
    return lifecycle.transition(name, row, trigger) if action is None else action(name, row, trigger)


def _start(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    at_ms = visit_ms(name, row)
    if row.step_state == "running" or row.paused:
        return start(name, row, trigger)
    if at_ms is None:
        reason = f"attempt: {trigger.attempt} of dpu {name!r} has no certificate to renew"
        return Fault(reason, Reason.PHASE_MISMATCH, dpu=name, phase=row.phase)
    if trigger.at.append_ms < at_ms:
        reason = f"attempt: {trigger.attempt} of dpu {name!r} must not start before {at_ms}"
        return Fault(reason, Reason.ATTEMPT_TOO_EARLY, dpu=name)
    return start(name, replace(row, not_before_ms=0), trigger)


def _succeed(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    row = replace(row, facts={**row.facts, **trigger.facts}, failures=0, failed=AttemptsByFailure(), message="")
    return _ended(row, trigger.at.time_ms + VISIT_EVERY_MS)


def _fail(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    failed = row.failed._replace(**{trigger.kind: getattr(row.failed, trigger.kind) + 1})
    row = replace(row, failures=row.failures + 1, failed=failed, message=trigger.message)
    wait_ms = retry_ms(name, row.attempt, row.failures, needs_operator=trigger.kind == "operator")
    return _ended(row, trigger.failed_ms + wait_ms)


def _lose(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """The provisioner is gone, or the zone was frozen, which is no evidence about the device. The next visit waits all
    the same: the visit may be what ends provisioners."""
    wait_ms = retry_ms(name, row.attempt, 1, needs_operator=False)
    return _ended(replace(row, message=trigger.message), trigger.failed_ms + wait_ms)


def _progress(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    return replace(row, task=trigger.task, percent=trigger.percent)


def _retry(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Visit the device again at once, if the last visit failed. An attempt that still runs is not ended."""
    if not row.failures:
        return lifecycle.transition(name, row, trigger)
    return replace(row, failures=0, failed=AttemptsByFailure(), not_before_ms=0, message="")


def _resume(name: str, row: Dpu, trigger: Trigger) -> TransitionResult:
    """Visit the device again. A time that a fast clock set before the pause delays no visit by more than a day."""
    latest_ms = trigger.at.time_ms + LONGEST_RETRY_MS
    return replace(row, paused=False, not_before_ms=min(row.not_before_ms, latest_ms))


def readdressed(row: Dpu, bmc_address: str) -> Dpu:
    """The row with this address, at which another device may answer.

    The end of a certificate of the authority becomes unknown, so that the device is visited soon. A pin stays with its
    end: without it the next certificate would be trusted, whosever it is. A visit that runs ends, because its result
    would be about the former address; so do the failures of earlier ones.
    """
    if bmc_address == row.bmc_address:
        return row
    facts = row.facts
    if facts.get(CERTIFICATE_FACT) == AUTHORITY:
        facts = {key: value for key, value in facts.items() if key != ENDS_FACT}
    row = replace(row, bmc_address=bmc_address, facts=facts)
    if row.phase != READY:
        return row
    return replace(_ended(row, 0), failures=0, failed=AttemptsByFailure(), message="")


def _ended(row: Dpu, not_before_ms: int) -> Dpu:
    """The row after a visit."""
    return replace(
        row, step_state="idle", provisioner="", deadline_ms=0, task="", percent=0, not_before_ms=not_before_ms
    )


def _of_running(action: Action) -> Action:
    """An action on the running attempt only."""
    return lambda name, row, trigger: stale(name, row, trigger) or action(name, row, trigger)


VISITS: Mapping[str, Action] = {
    "started": _start,
    "progressed": _of_running(_progress),
    "succeeded": _of_running(_succeed),
    "failed": _of_running(_fail),
    "expired": _of_running(_fail),
    "lost": _of_running(_lose),
    "retry": _retry,
    "resume": _resume,
}
"""Actions in the phase Ready by trigger; others are those of the lifecycle."""

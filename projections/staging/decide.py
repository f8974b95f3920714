"""Decisions about a staged change that do not depend on what changes: the naming of DPUs, the release of stages, holds,
and requests of operators.

The decision depends on the row, the time of the log and the statement alone. A statement names the change and the
number of released stages that its driver saw. So copies, and statements of a driver that lags behind, change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_name, check_text, check_zone, quoted
from projections.sizes import read_size
from projections.staging.course import COMPLETE, MAX_FAILED_DPUS, PATIENCE_MS, UNDONE, Staged, StagedDpus
from projections.staging.plan import limit_of
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved, StagesRequested

PAUSE, RESUME, UNDO = VERBS = ("pause", "resume", "undo")
MAX_REASON = 253
_NAMES_SHOWN = 3

Row = TypeVar("Row", bound=Staged)


class StageReleased(NamedTuple, Generic[Row]):
    """The next stage is released. `row` is the change after it."""

    row: Row


class StagingUpdated(NamedTuple, Generic[Row]):
    """The change is paused, held or resumed, or DPUs have failed. Or it was undone before its first stage: it has
    ended, and since no DPU has it, only its row changes."""

    row: Row


class StagingUndone(NamedTuple, Generic[Row]):
    """The change is rolled back, and some DPUs have it."""

    row: Row


class StagingFinished(NamedTuple, Generic[Row]):
    """The change has ended, and at least one of its stages was released."""

    row: Row


# --- naming of the DPUs of the next stage -----------------------------------------------------------------------------


def fault_of_naming(row: Staged | None, event: StageDpusNamed) -> str | None:
    """Why no DPUs can be named; None if they can, as far as it does not depend on what changes."""
    if len(event.zones) != len(event.dpus) or len(event.dpus) > MAX_ITEMS:
        return f"dpus: {len(event.dpus)} DPUs must be as many as zones, and at most {MAX_ITEMS}"
    if event.total < 0:
        return f"total: {event.total} must be 0 or more"
    for zone, dpu in zip(event.zones, event.dpus, strict=True):
        if fault := check_zone("zones", zone) or check_name("dpus", dpu):
            return fault
    if row is None or not row.is_open or row.version != event.change:
        return Fault(f"change: {event.change} is not the version of an open staged change", Reason.OUT_OF_ORDER)
    if event.stage != row.stage + 1 or event.stage >= len(row.plan.stages):
        return Fault(f"stage: {event.stage} is not the next stage, or is the last one", Reason.OUT_OF_ORDER)
    return None


def name_dpus(
    row: Staged, event: StageDpusNamed, known: Callable[[str], StagedDpus | None], named: int
) -> dict[str, StagedDpus] | Fault:
    """The rows of zones with further DPUs of the next stage, or why they would be too many. A DPU that is named already
    keeps its stage. `known` gives the row of a zone, and `named` is the number of DPUs in all of them."""
    rows: dict[str, StagedDpus] = {}
    for zone, dpu in zip(event.zones, event.dpus, strict=True):
        before = rows.get(zone) or known(zone) or StagedDpus({})
        if dpu not in before.stages:
            rows[zone] = StagedDpus({**before.stages, dpu: event.stage})
            named += 1
    limit = limit_of(row.plan.stages[event.stage - 1], event.total)
    if named > limit:
        reason = f"dpus: {named} named DPUs would be more than the {limit} of stage {event.stage}"
        return Fault(reason, Reason.LIMIT_REACHED, limit=limit)
    return rows


# --- observations -----------------------------------------------------------------------------------------------------


def fault_of_observation(row: Staged | None, event: StageObserved) -> str | None:
    """Why an observation is of no use; None if it is."""
    if len(event.failed) != len(event.reasons) or len(event.failed) > MAX_FAILED_DPUS:
        return f"failed: {len(event.failed)} DPUs must be as many as reasons, and at most {MAX_FAILED_DPUS}"
    if min(event.total, event.named, event.waiting) < 0:
        return "total: the numbers of DPUs must be 0 or more"
    for reason in event.reasons:
        if fault := check_text("reasons", reason, MAX_REASON):
            return fault
    for dpu in event.failed:
        zone, _, name = dpu.partition("/")
        if fault := check_zone("failed", zone) or check_name("failed", name):
            return fault
    if row is None or row.result or (row.version, row.stage) != (event.change, event.stage):
        reason = f"change: {event.change} has not just released {event.stage} stages"
        return Fault(reason, Reason.OUT_OF_ORDER)
    return None


def observed(
    row: Row, event: StageObserved, named: Callable[[int], int], at: RecordMetadata
) -> StageReleased[Row] | StagingUpdated[Row] | StagingFinished[Row] | Fault | None:
    """What follows from a valid observation: the next stage is released, or the change is held or ended; None if
    nothing does. `named` gives the number of DPUs that a stage has."""
    has_waited = at.time_ms >= row.since_ms + max(row.plan.bake_ms, PATIENCE_MS)
    if row.undone_by:
        return StagingFinished(ended(row, at)) if not event.waiting or has_waited else None
    after = _with_failures(row, event)
    has_baked = not after.stage or at.time_ms >= after.since_ms + after.plan.bake_ms
    if after.held or after.paused_by or event.waiting or not has_baked:
        return StagingUpdated(after) if after != row else None
    if after.is_everywhere:
        return StagingFinished(ended(after, at))
    stage = after.stage + 1
    is_last, count = stage == len(after.plan.stages), named(stage)
    if not is_last and event.named != count:
        reason = f"named: {event.named} must be {count}, the number of DPUs that stage {stage} has"
        return Fault(reason, Reason.OUT_OF_ORDER)
    since_ms = at.time_ms if count or is_last else after.since_ms
    released = (*after.released, at.offset + 1)
    return StageReleased(_with(after, stage=stage, released=released, since_ms=since_ms))


def _with_failures(row: Row, event: StageObserved) -> Row:
    """The change with further failed DPUs, and held if they are more than its budget."""
    fresh = dict(zip(event.failed, event.reasons, strict=True))
    new = {dpu: reason for dpu, reason in fresh.items() if dpu not in row.failed and dpu not in row.forgiven}
    failed = dict([*row.failed.items(), *sorted(new.items())][:MAX_FAILED_DPUS])
    size = read_size(row.plan.failure_budget)
    budget = min(size.of(event.total), MAX_FAILED_DPUS - 1) if size is not None else 0
    if row.held or len(failed) <= budget:
        return _with(row, failed=failed)
    return _with(row, failed=failed, held=_held(failed, budget))


def _held(failed: dict[str, str], budget: int) -> str:
    """Why a change is held, in one sentence."""
    shown = [f"{quoted(dpu)} ({reason})" for dpu, reason in [*failed.items()][:_NAMES_SHOWN]]
    more = f" and {len(failed) - len(shown)} more" if len(failed) > len(shown) else ""
    dpus = "1 DPU has" if len(failed) == 1 else f"{len(failed)} DPUs have"
    return f"{dpus} failed, and the failure budget is {budget}: {', '.join(shown)}{more}"


# --- requests of operators --------------------------------------------------------------------------------------------


def requested(
    row: Row, event: StagesRequested, at: RecordMetadata
) -> StagingUpdated[Row] | StagingUndone[Row] | Outcome:
    """What follows from a valid request about a change that has not ended."""
    actor = event.envelope.actor or "an operator"
    if row.undone_by:
        return Outcome("unchanged", f"name: {quoted(event.name)} is being rolled back already")
    if event.verb == UNDO:
        after = _with(row, undone_by=actor, paused_by="", held="", since_ms=at.time_ms)
        return StagingUndone(after) if row.stage else StagingUpdated(ended(after, at))
    if event.verb == PAUSE:
        after = row if row.paused_by else _with(row, paused_by=actor)
    else:
        forgiven = dict.fromkeys((*row.forgiven, *row.failed)) if row.held else row.forgiven
        failed = {} if row.held else row.failed
        after = _with(row, paused_by="", held="", forgiven=tuple(forgiven), failed=failed)
    if after == row:
        said = "paused already" if event.verb == PAUSE else "neither paused nor held"
        return Outcome("unchanged", f"name: the staged change of {quoted(event.name)} is {said}")
    return StagingUpdated(after)


def fault_of_request(event: StagesRequested) -> str | None:
    """The fault of a malformed request."""
    if event.verb not in VERBS:
        return f"verb: {quoted(event.verb)} must be one of {', '.join(VERBS)}"
    return check_zone("name", event.name)


def ended(row: Row, at: RecordMetadata) -> Row:
    """The change after its end."""
    return _with(row, result=UNDONE if row.undone_by else COMPLETE, ended_ms=at.append_ms)


def _with(row: Row, **changes: Any) -> Row:
    """`replace` of a struct that is known by its protocol only."""
    return cast(Row, replace(cast(Any, row), **changes))

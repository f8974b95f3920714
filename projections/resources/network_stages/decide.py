"""Decisions about staged changes of networks, by the rules of all staged changes (projections/staging/decide.py)."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, refusal, unchanged
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.resources import kinds
from projections.resources.json_limits import fault_of_limits
from projections.resources.network_stages.rows import MAX_NETWORKS_BYTES, PREFIX, StagedNetworks, stage_key
from projections.resources.state import Mark, ResourcesChange, ResourcesState, object_id
from projections.staging.course import COMPLETE, UNDONE, stage_text
from projections.staging.decide import (
    StageReleased,
    StagingFinished,
    StagingUndone,
    StagingUpdated,
    fault_of_naming,
    fault_of_observation,
    fault_of_request,
    name_dpus,
    observed,
    requested,
)
from projections.staging.plan import StagePlan, fault_of_stages
from schemas.events import NetworksStaged, StageDpusNamed, StageObserved, StagesRequested

NETWORK_STAGE_EVENTS = (NetworksStaged, StageDpusNamed, StageObserved, StagesRequested)


def decide_network_stages(
    state: ResourcesState, event: NetworksStaged | StageDpusNamed | StageObserved | StagesRequested, at: RecordMetadata
) -> Decision:
    """Decide on a record about staged changes of networks."""
    match event:
        case NetworksStaged():
            return _stage(state, event, at)
        case StageDpusNamed():
            return _name(state, event)
        case StageObserved():
            return _observe(state, event, at)
        case StagesRequested():
            return _request(state, event, at)


def with_object_marks(state: ResourcesState, change: ResourcesChange, at: RecordMetadata) -> ResourcesChange:
    """The change with the offset at which objects of sources with stages changed last: networks that were derived
    before it are out of date. Observations do not count as changes."""
    sources = {object_id(key).source: None for key in change.objects}
    marks = {objects_mark(source): Mark(at.offset) for source in sources if _has_stages(state, change, source)}
    return change._replace(marks={**change.marks, **marks}) if marks else change


def _has_stages(state: ResourcesState, change: ResourcesChange, source: str) -> bool:
    """Whether a source has a row, or states stages before or after a change, and so may get one."""
    if source in state.staged_networks.rows:
        return True
    changed = (row for key, row in change.objects.items() if object_id(key)[:2] == (source, kinds.DPF_OPERATOR_CONFIG))
    present = (state.objects.rows[key] for key in state.of_kind(source, kinds.DPF_OPERATOR_CONFIG))
    configs = (row for row in (*changed, *present) if row is not None)
    return any(name.startswith(PREFIX) for row in configs for name in row.annotations)


def objects_mark(source: str) -> str:
    """The key of the mark with the offset at which objects of a source with stages changed last."""
    return f"objects/{source}"


# --- the beginning of a change ----------------------------------------------------------------------------------------


def _stage(state: ResourcesState, event: NetworksStaged, at: RecordMetadata) -> Decision:
    row = state.staged_networks.rows.get(event.source)
    if (fault := _fault_of_staged(event) or _fault_of_time(state, row, event, at)) is not None:
        return refusal(fault)
    if row is not None and not row.result:
        reason = f"source: a change of the networks of {quoted(event.source)} is staged, at {stage_text(row)}"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER))
    if not event.stages:
        if row is None:
            return unchanged(f"stages: the networks of {quoted(event.source)} have none")
        return _changed(state, event.source, None)
    plan = StagePlan(tuple(event.stages), event.bake_ms, event.failure_budget)
    if row is None or (event.networks == row.before and row.result == UNDONE):
        settled = event.networks
        began = StagedNetworks(at.offset + 1, settled, settled, plan, at.append_ms, at.time_ms, len(plan.stages))
        return _changed(state, event.source, replace(began, result=COMPLETE, ended_ms=at.append_ms))
    if event.networks in (row.settled, row.after):
        return unchanged(f"networks: those of {quoted(event.source)} are known, or were rolled back")
    began = StagedNetworks(at.offset + 1, row.settled, event.networks, plan, at.append_ms, at.time_ms)
    return _changed(state, event.source, began)


def _fault_of_staged(event: NetworksStaged) -> str | None:
    if (fault := check_zone("source", event.source)) or not event.stages:
        return fault
    if fault := fault_of_stages(event.stages, event.bake_ms, event.failure_budget):
        return fault
    if (size := len(event.networks.encode(errors="surrogatepass"))) > MAX_NETWORKS_BYTES:
        return f"networks: {size} bytes are more than the {MAX_NETWORKS_BYTES} allowed"
    if fault := fault_of_limits(event.networks):
        return f"networks: {fault}"
    return None if _is_list(event.networks) else "networks: the text must be a JSON list"


def _is_list(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), list)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _fault_of_time(
    state: ResourcesState, row: StagedNetworks | None, event: NetworksStaged, at: RecordMetadata
) -> str | None:
    """Why the networks of an event are out of date, or cannot be yet."""
    if event.to_offset > at.offset:
        return Fault(f"to_offset: {event.to_offset} is after this record", Reason.OUT_OF_ORDER)
    mark = state.marks.rows.get(objects_mark(event.source))
    changed = mark.to_offset if mark is not None else -1
    if changed < event.to_offset and (row is None or row.version <= event.to_offset):
        return None
    reason = f"to_offset: {event.to_offset} is before the last change of {quoted(event.source)}"
    return Fault(reason, Reason.OUT_OF_ORDER)


def _changed(state: ResourcesState, source: str, row: StagedNetworks | None) -> Decision:
    """The row of a source at the beginning of a change, without the DPUs of the last one."""
    named = {key: None for key in sorted(state.staged_network_dpus.rows) if key.startswith(stage_key(source, ""))}
    return Decision(ResourcesChange(staged_networks={source: row}, staged_network_dpus=named), DONE)


# --- the course of a change -------------------------------------------------------------------------------------------


def _of_version(state: ResourcesState, version: int) -> tuple[str, StagedNetworks | None]:
    """The source and the row of a change, by its version."""
    found = ((source, row) for source, row in sorted(state.staged_networks.rows.items()) if row.version == version)
    return next(found, ("", None))


def _name(state: ResourcesState, event: StageDpusNamed) -> Decision:
    source, row = _of_version(state, event.change)
    if (fault := fault_of_naming(row, event)) is not None:
        return refusal(fault)
    assert row is not None, "DPUs are named for a present change"
    known, named = state.staged_network_dpus.rows, state.named_network_dpus(source).total()
    rows = name_dpus(row, event, lambda zone: known.get(stage_key(source, zone)), named)
    if isinstance(rows, Fault):
        return refusal(rows)
    found = {stage_key(source, zone): each for zone, each in rows.items()}
    return Decision(ResourcesChange(staged_network_dpus=found), DONE) if found else Decision(None, UNCHANGED)


def _observe(state: ResourcesState, event: StageObserved, at: RecordMetadata) -> Decision:
    source, row = _of_version(state, event.change)
    if (fault := fault_of_observation(row, event)) is not None:
        return refusal(fault)
    assert row is not None, "a present change is observed"
    match observed(row, event, state.named_network_dpus(source).__getitem__, at):
        case None:
            return Decision(None, UNCHANGED)
        case Fault() as fault:
            return refusal(fault)
        case StagingUpdated(after):
            is_held = after.held and not row.held
            return _updated(source, after, Outcome("done", after.held) if is_held else DONE)
        case StageReleased(after) | StagingFinished(after):
            return _updated(source, after)


def _request(state: ResourcesState, event: StagesRequested, at: RecordMetadata) -> Decision:
    if (fault := fault_of_request(event)) is not None:
        return refusal(fault)
    row = state.staged_networks.rows.get(event.name)
    if row is None or row.result:
        reason = f"name: the networks of {quoted(event.name)} have no staged change, or it has ended"
        return refusal(Fault(reason, Reason.NETWORKS_NOT_STAGED, source=event.name))
    match requested(row, event, at):
        case Outcome() as outcome:
            return Decision(None, outcome)
        case StagingUndone(after):
            return _updated(event.name, after, Outcome("done", "all DPUs return to the networks before the change"))
        case StagingUpdated(after):
            return _updated(event.name, after, Outcome("done", "no DPU had the change") if after.result else DONE)


def _updated(source: str, row: StagedNetworks, outcome: Outcome = DONE) -> Decision:
    return Decision(ResourcesChange(staged_networks={source: row}), outcome)

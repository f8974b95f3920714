"""The decision about a plan of a rollout: whether it is newer than what is known, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.resources.items import check_object_name
from projections.resources.json_limits import fault_of_limits
from projections.resources.kinds import DPU, DPU_DEPLOYMENT, DPU_SET, short_name
from projections.resources.rollouts.advance import last_change
from projections.resources.rollouts.released import installed
from projections.resources.rollouts.rows import (
    DIGEST_MODULUS,
    ON_DELETE,
    ROLLING_UPDATE,
    DpuRollout,
    Revision,
    Rollout,
)
from projections.resources.rollouts.strategy import stated_strategy
from projections.resources.state import ObjectId, ResourcesChange, ResourcesState
from projections.sizes import MAX_BAKE_MS, MAX_WAVES, read_size
from schemas.events import MAX_ITEMS, RolloutPlanned

MAX_GROUPS = 1_000_000
MAX_PLANNED_DPUS = 200_000
"""Maximum number of DPUs with a plan in one partition."""
REVISIONS_MAX = 10
"""Number of revisions of a rollout that are kept, as many as a DPUDeployment keeps by default."""
_MAX_IDENTITY = 255
"""Maximum number of characters of an image identity, as zones have it."""
_MAX_TEMPLATE = 10_000
_fields = msgspec.json.Decoder(dict[str, str | bool])
_FLAGS = frozenset({"secureBoot"})
"""The fields of a template that are true or false; the others are texts."""


def decide_plan(state: ResourcesState, event: RolloutPlanned, at: RecordMetadata) -> Decision:
    """Decide on a plan, or on a part of it."""
    if (fault := _fault(event)) is not None:
        return refusal(fault)
    key = ObjectId(event.source, DPU_SET, event.namespace, event.name).key
    known, given = state.rollouts.rows.get(key), _given(event)
    changed = last_change(state, key, replace(known or given, deployment=given.deployment))
    newest = max(known.position if known else 0, changed + 1)
    if event.position < newest:
        reason = (
            f"position: {event.position} is before {newest}: the plan is older than the last one, or than its objects"
        )
        return refusal(Fault(reason, Reason.OUT_OF_ORDER, mark=newest))
    if event.position > at.offset:
        return refusal(Fault(f"position: {event.position} is after {at.offset}, this record", Reason.OUT_OF_ORDER))
    if given.template and (given.deployment or key) not in state.objects.rows:
        # A late copy of a plan would bring the rollout of a removed DPUSet back, and nothing would remove it again.
        reason = f"name: no object wants {short_name(key)}, whose plan this is"
        return refusal(Fault(reason, Reason.RESOURCE_NOT_FOUND))
    if given.template and (reason := _deviation(state, key, given)):
        return refusal(Fault(reason, Reason.OUT_OF_ORDER))
    dpus = {dpu: each for dpu, each in _dpus(state, event, key) if state.dpu_rollouts.rows.get(dpu) != each}
    if sum(dpu not in state.dpu_rollouts.rows for dpu in dpus) > MAX_PLANNED_DPUS - len(state.dpu_rollouts.rows):
        reason = f"dpus: {len(dpus)} would be more than the {MAX_PLANNED_DPUS} DPUs with a plan allowed"
        return refusal(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_PLANNED_DPUS))
    row = _new_row(state, key, given, changed, at.time_ms)
    rollouts: Mapping[str, Rollout | None] = {} if row == known else {key: row}
    if not given.template and _is_empty_after(state, key, dpus):
        rollouts = {key: None} if known is not None else {}
    if not rollouts and not dpus:
        return Decision(None, UNCHANGED)
    return Decision(ResourcesChange(rollouts=rollouts, dpu_rollouts=dpus), DONE)


def says_the_same(known: Rollout, event: RolloutPlanned) -> bool:
    """Whether a plan without changed DPUs says the same as the last one, apart from its position."""
    return replace(_merged(known, _given(event), "", 0), position=known.position) == known


def _new_row(state: ResourcesState, key: str, given: Rollout, changed: int, now_ms: int) -> Rollout:
    """The row of a rollout after a plan. It stays the same if the plan in force says the same."""
    known, owner = state.rollouts.rows.get(key), state.objects.rows.get(given.deployment or key)
    row = _merged(known, given, owner.actor if owner is not None else "", now_ms)
    if known is not None and known.position > changed and replace(row, position=known.position) == known:
        return known
    return row


def _deviation(state: ResourcesState, key: str, given: Rollout) -> str:
    """How a plan deviates from what its objects state; empty if it does not. A plan is derived from objects that have
    not changed since, so one with another limit is wrong, and would take too many DPUs out of service."""
    owner = given.deployment or key
    stated = stated_strategy(state.objects.rows[owner], is_deployment=bool(given.deployment))
    if isinstance(stated, str):
        return f"strategy: {short_name(owner)}, whose plan this is, has none that can be used: {stated}"
    fields = (
        ("strategy", stated.type, given.strategy),
        ("max_unavailable", stated.max_unavailable, given.max_unavailable),
        ("waves", ",".join(stated.waves), ",".join(given.waves)),
        ("bake_ms", str(stated.bake_ms), str(given.bake_ms)),
        ("failure_budget", stated.failure_budget, given.failure_budget),
        ("is_paused", str(stated.is_paused), str(given.is_paused)),
    )
    for field, wanted, found in fields:
        if wanted != found:
            return f"{field}: {quoted(found)} must be {quoted(wanted)}, as {short_name(owner)} states"
    return ""


def _is_empty_after(state: ResourcesState, key: str, dpus: Mapping[str, DpuRollout | None]) -> bool:
    """Whether a DPUSet has no DPU left after these changes."""
    return not any(dpus.values()) and all(dpu in dpus for dpu in state.rollout_index.of(key).members)


def _given(event: RolloutPlanned) -> Rollout:
    deployment = ObjectId(event.source, DPU_DEPLOYMENT, event.namespace, event.deployment).key
    return Rollout(
        deployment=deployment if event.deployment else "",
        position=event.position,
        template=event.template,
        stated=event.stated,
        strategy=event.strategy,
        max_unavailable=event.max_unavailable,
        waves=tuple(event.waves),
        bake_ms=event.bake_ms,
        failure_budget=event.failure_budget,
        is_paused=event.is_paused,
        digest=event.digest,
    )


def _merged(known: Rollout | None, given: Rollout, actor: str, now_ms: int) -> Rollout:
    """The row after a plan: another template begins a new revision at the first wave, and ends a hold."""
    if known is None:
        return replace(given, revisions=(Revision(1, given.template, now_ms, actor),))
    pin, against = known.pin, known.pinned_against
    if pin and given.stated != against:
        pin = against = ""
    row = replace(
        given,
        wave=min(known.wave, len(given.waves) - 1),
        wave_releases=known.wave_releases,
        baked_ms=known.baked_ms,
        paused_by=known.paused_by,
        held=known.held,
        pin=pin,
        pinned_against=against,
        requested_offset=known.requested_offset,
        requested_by=known.requested_by,
        revisions=known.revisions,
    )
    if given.template == known.template or not given.template:
        return row
    last = known.revisions[-1]
    ended = last if last.result else replace(last, ended_ms=now_ms, result="replaced")
    begun = Revision(last.number + 1, given.template, now_ms, known.requested_by if pin else actor)
    revisions = (*known.revisions[:-1], ended, begun)[-REVISIONS_MAX:]
    return replace(row, wave=0, wave_releases=0, baked_ms=0, held="", revisions=revisions)


def _dpus(state: ResourcesState, event: RolloutPlanned, key: str) -> list[tuple[str, DpuRollout | None]]:
    """The new row of each DPU of the record; None for a DPU that the set does not want any more."""
    columns = zip(event.dpus, event.identities, event.wave_numbers, event.groups, strict=True)
    found: list[tuple[str, DpuRollout | None]] = []
    for name, identity, wave, group in columns:
        dpu = ObjectId(event.source, DPU, event.namespace, name).key
        known = state.dpu_rollouts.rows.get(dpu)
        if identity:
            found.append((dpu, _dpu(known, DpuRollout(key, identity, identity, wave, group), installed(state, dpu))))
        elif known is not None and known.dpu_set == key:
            found.append((dpu, None))
    return found


def _dpu(known: DpuRollout | None, given: DpuRollout, on_device: str) -> DpuRollout:
    """The row of a DPU. One that was never installed is released at once; another keeps what it is released to."""
    if known is None:
        return replace(given, released=on_device or given.wanted)
    if known.revision == 0 and not on_device:
        return replace(given, deleted_uid=known.deleted_uid)
    return replace(
        given,
        released=known.released,
        revision=known.revision,
        is_forgiven=known.is_forgiven and known.wanted == given.wanted,
        released_ms=known.released_ms,
        deleted_uid=known.deleted_uid,
    )


def _fault(event: RolloutPlanned) -> str | None:
    fault = check_zone("source", event.source) or check_object_name("name", event.name)
    fault = fault or check_object_name("namespace", event.namespace)
    if event.deployment:
        fault = fault or check_object_name("deployment", event.deployment)
    if event.strategy not in (ON_DELETE, ROLLING_UPDATE):
        fault = fault or f"strategy: {quoted(event.strategy)} must be {ON_DELETE} or {ROLLING_UPDATE}"
    for field, text in (("max_unavailable", event.max_unavailable), ("failure_budget", event.failure_budget)):
        if text and read_size(text) is None:
            fault = fault or f"{field}: {quoted(text)} must be a number or a percentage"
    if not 1 <= len(event.waves) <= MAX_WAVES or any(read_size(text) is None for text in event.waves):
        fault = fault or f"waves: {quoted(','.join(event.waves))} must be 1 to {MAX_WAVES} numbers or percentages"
    if not 0 <= event.bake_ms <= MAX_BAKE_MS:
        fault = fault or f"bake_ms: {event.bake_ms} must be from 0 to {MAX_BAKE_MS}"
    if not 0 <= event.digest < DIGEST_MODULUS:
        fault = fault or f"digest: {event.digest} must be from 0 to {DIGEST_MODULUS - 1}"
    return fault or _fault_of_templates(event) or _fault_of_columns(event)


def _fault_of_templates(event: RolloutPlanned) -> str | None:
    for field, text in (("template", event.template), ("stated", event.stated)):
        if not text:
            continue
        if len(text) > _MAX_TEMPLATE or fault_of_limits(text) is not None:
            return f"{field}: {quoted(text)} must have at most {_MAX_TEMPLATE} characters, and few levels"
        try:
            given = _fields.decode(text)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            return f"{field}: {quoted(text)} must be a JSON object of texts"
        if wrong := next((name for name in sorted(given) if isinstance(given[name], bool) != (name in _FLAGS)), None):
            return f"{field}: {quoted(wrong)} must be {'true or false' if wrong in _FLAGS else 'a text'}"
    return None


def _fault_of_columns(event: RolloutPlanned) -> str | None:
    count = len(event.dpus)
    if count > MAX_ITEMS:
        return f"dpus: {count} items must be at most {MAX_ITEMS}"
    columns = (("identities", event.identities), ("wave_numbers", event.wave_numbers), ("groups", event.groups))
    for field, column in columns:
        if len(column) != count:
            return f"{field}: {len(column)} values must be one for each of the {count} DPUs"
    if len(set(event.dpus)) < count:
        return "dpus: a record must name a DPU once"
    for number, name in enumerate(event.dpus):
        if fault := check_object_name(f"dpus[{number}]", name):
            return fault
        if len(event.identities[number]) > _MAX_IDENTITY:
            return f"identities[{number}]: {quoted(event.identities[number])} is longer than {_MAX_IDENTITY} characters"
        if not 0 <= event.wave_numbers[number] < len(event.waves):
            return f"wave_numbers[{number}]: {event.wave_numbers[number]} must be below {len(event.waves)}, the waves"
        if not 0 <= event.groups[number] < MAX_GROUPS:
            return f"groups[{number}]: {event.groups[number]} must be from 0 to {MAX_GROUPS - 1}"
    return None

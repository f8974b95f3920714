"""Objects of users as the edge reads them: the event for a spec, the digest of the spec, and its result in the status.
Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from commands.kubernetes.object_plan import SpecEvent, policy_event, zone_event
from projections.kubernetes.statements import ACCEPTED, spec_digest
from schemas.events import Envelope
from schemas.kubernetes.objects import Custom
from schemas.resources.author_admission import RESTATE
from schemas.resources.dpu_rack import DPURackSpec
from schemas.resources.hold import HOLD
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY, RulePolicySpec

ADMISSION_MISSING = "AdmissionMissing"
"""The reason in the status of an object whose spec or verdict was written while an admission policy was missing.
Nothing then proves which user wrote the spec or verdict."""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    observed_generation: int = msgspec.field(default=0, name="observedGeneration")


class _Shown(msgspec.Struct, frozen=True):
    stated: str = ""
    conditions: list[_Condition] = []


_shown_status = msgspec.json.Decoder(_Shown | None)


def _shown(item: Custom) -> _Shown:
    """The result of the spec in the status of an object."""
    try:
        return _shown_status.decode(item.status) or _Shown()
    except msgspec.DecodeError:
        return _Shown()


def digest_in_status(item: Custom) -> str:
    """The digest of the last submitted spec, from the status of an object."""
    return _shown(item).stated


def is_unvouched(item: Custom) -> bool:
    """Whether the status of an object says that an admission policy was missing when this spec was written."""
    return any(
        (found.type, found.reason) == (ACCEPTED, ADMISSION_MISSING)
        and found.observed_generation == item.metadata.generation
        for found in _shown(item).conditions
    )


def is_not_accepted(item: Custom) -> bool:
    """Whether the status of an object says that its spec, or one of its verdicts, was not accepted."""
    return any(found.type == ACCEPTED and found.status == "False" for found in _shown(item).conditions)


def event_of(kind: Kind, item: Custom, made: Envelope) -> SpecEvent | None:
    """The event for the spec of an object; None if the spec sets no value. Raises ValidationError."""
    name = item.metadata.name
    if kind is RULE_POLICY:
        return policy_event(name, RulePolicySpec.model_validate_json(bytes(item.spec)), replace(made, subject=name))
    spec = DPURackSpec.model_validate_json(bytes(item.spec))
    zone = spec.zone or name
    return zone_event(zone, spec, replace(made, subject=zone))


def digest_of(kind: Kind, item: Custom) -> str:
    """The digest of a spec; empty if the spec sets no value. Raises ValidationError."""
    if kind is HOLD:
        return ""
    restate = (item.metadata.annotations or {}).get(RESTATE, "")
    if kind is RULE_POLICY:
        return spec_digest(RulePolicySpec.model_validate_json(bytes(item.spec)), restate)
    spec = DPURackSpec.model_validate_json(bytes(item.spec))
    return spec_digest(spec, restate) if zone_event("", spec, Envelope("", "", "", 0)) is not None else ""

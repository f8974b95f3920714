"""Requests that fleet decides, as events: policies, holds, budgets, freezes, labels and limits of zones."""

from __future__ import annotations

from commands.requests.validation import (
    EnvelopeFactory,
    InvalidRequest,
    NewEvent,
    require,
    require_range,
    sorted_labels,
)
from eventstore.log import FLEET, RESOURCES
from projections import field_checks
from projections.attempt_limits import FAILURE_KINDS, LEAVE_AS_IS, fault_of_limits
from projections.fleet.fold import MAX_LIMIT
from projections.fleet.staging.statements import fault_of_staged, in_stages
from projections.fleet.views import EVERY_ZONE
from projections.fleet.withdrawals.budgets import fault_of_budget
from projections.rules.policies import MAX_PORT_RANGES, fault_of_policy
from projections.staging.decide import PAUSE, RESUME, UNDO, fault_of_request
from projections.staging.plan import StagePlan
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms
from schemas.events import (
    BudgetSet,
    HoldApproved,
    HoldRejected,
    PolicyDeleted,
    PolicySet,
    StagesRequested,
    WritesFrozen,
    WritesThawed,
    ZoneUpdated,
)

MAX_MIN_ADDRESSES = 2_000_000_000

_Verb = pb.RequestStagesRequest.Verb
_VERBS = {_Verb.VERB_PAUSE: PAUSE, _Verb.VERB_RESUME: RESUME, _Verb.VERB_UNDO: UNDO}


def set_policy(request: pb.SetPolicyRequest, envelope: EnvelopeFactory) -> NewEvent:
    policy = request.policy
    if (count := len(policy.ports)) > MAX_PORT_RANGES:
        raise InvalidRequest(
            f"ports: {2 * count} port numbers must be at most {MAX_PORT_RANGES} pairs of first and last"
        )
    if request.HasField("staging"):
        return _staged_policy(request.policy, request.staging, envelope)
    event = _policy_set(policy, envelope)
    require(fault_of_policy(event))
    return NewEvent(FLEET, policy.name, event)


def _policy_set(policy: pb.PolicySpec, envelope: EnvelopeFactory) -> PolicySet:
    return PolicySet(
        envelope=envelope(policy.name),
        name=policy.name,
        priority=policy.priority,
        action=policy.action,
        protocol=policy.protocol or "any",
        ports=[port for ports in policy.ports for port in (ports.first, ports.last)],
        sources=sorted_labels("sources", policy.sources),
        zones=sorted_labels("zones", policy.zones),
    )


def _staged_policy(
    policy: pb.PolicySpec, staging: pb.Staging, envelope: EnvelopeFactory, *, is_deleted: bool = False
) -> NewEvent:
    plan = StagePlan(tuple(staging.stages), to_ms(staging.bake_time), staging.failure_budget or "0")
    event = in_stages(_policy_set(policy, envelope), plan, is_deleted=is_deleted)
    require(fault_of_staged(event))
    return NewEvent(FLEET, policy.name, event)


def request_stages(request: pb.RequestStagesRequest, envelope: EnvelopeFactory) -> NewEvent:
    """Pause, resume or undo the staged change of a policy, or of the networks of a source."""
    verb = _VERBS.get(request.verb)
    if verb is None:
        raise InvalidRequest(f"verb: {int(request.verb)} must be one of {', '.join(_VERBS.values())}")
    if bool(request.policy) == bool(request.source):
        raise InvalidRequest("policy: exactly one of policy and source must be given")
    name = request.policy or request.source
    event = StagesRequested(envelope(name), name, verb)
    require(fault_of_request(event))
    return NewEvent(FLEET if request.policy else RESOURCES, name, event)


def delete_policy(request: pb.DeletePolicyRequest, envelope: EnvelopeFactory) -> NewEvent:
    require(field_checks.check_zone("name", request.name))
    if request.HasField("staging"):
        return _staged_policy(pb.PolicySpec(name=request.name), request.staging, envelope, is_deleted=True)
    return NewEvent(FLEET, request.name, PolicyDeleted(envelope(request.name), request.name))


def approve_hold(request: pb.ApproveHoldRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _hold(request.hold)
    try:
        seen = bytes.fromhex(request.hash)
    except ValueError:
        seen = b""
    if not seen:
        raise InvalidRequest(
            f"hash: {field_checks.quoted(request.hash)} must be the hash that `dpuplane holds show` prints,"
            " in hexadecimal"
        )
    return NewEvent(FLEET, subject, HoldApproved(envelope(subject), request.hold, seen))


def reject_hold(request: pb.RejectHoldRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _hold(request.hold)
    return NewEvent(FLEET, subject, HoldRejected(envelope(subject), request.hold))


def _hold(hold: int) -> str:
    require_range("hold", hold, 0, 1 << 53)
    return str(hold)


def set_budget(request: pb.SetBudgetRequest, envelope: EnvelopeFactory) -> NewEvent:
    event = BudgetSet(envelope(request.kind), request.kind, request.permille, request.min_addresses)
    require(fault_of_budget(event))
    require_range("min_addresses", event.min_addresses, 0, MAX_MIN_ADDRESSES)
    return NewEvent(FLEET, request.kind, event)


def update_zone(request: pb.UpdateZoneRequest, envelope: EnvelopeFactory) -> NewEvent:
    require(field_checks.check_zone("zone", request.zone))
    labels = sorted_labels("labels", request.labels)
    require(field_checks.check_labels("labels", labels))
    if labels and not request.set_labels:
        raise InvalidRequest(f"labels: {len(labels)} labels are given, so set_labels must be true")
    parallel_installs = _limit(request, "parallel_installs")
    unavailable_nodes = _limit(request, "unavailable_nodes")
    _check_agent_limits(request)
    attempt_limits = [
        getattr(request, f"{kind}_attempts") if request.HasField(f"{kind}_attempts") else LEAVE_AS_IS
        for kind in FAILURE_KINDS
    ]
    require(fault_of_limits(attempt_limits))
    is_set = request.set_labels or request.set_agent_networks or request.set_agent_label_keys
    if not is_set and {parallel_installs, unavailable_nodes, *attempt_limits} == {LEAVE_AS_IS}:
        raise InvalidRequest("request: '' must give labels or a limit to change")
    event = ZoneUpdated(
        envelope=envelope(request.zone),
        zone=request.zone,
        set_labels=request.set_labels,
        labels=labels,
        parallel_installs=parallel_installs,
        unavailable_nodes=unavailable_nodes,
        set_agent_networks=request.set_agent_networks,
        agent_networks=list(request.agent_networks),
        set_agent_label_keys=request.set_agent_label_keys,
        agent_label_keys=list(request.agent_label_keys),
        attempt_limits=attempt_limits,
    )
    return NewEvent(FLEET, request.zone, event)


def _check_agent_limits(request: pb.UpdateZoneRequest) -> None:
    """Check the limits on what node agents may set. Raises InvalidRequest."""
    require(field_checks.check_networks("agent_networks", request.agent_networks))
    require(field_checks.check_label_keys("agent_label_keys", request.agent_label_keys))
    if request.agent_networks and not request.set_agent_networks:
        raise InvalidRequest(
            f"agent_networks: {len(request.agent_networks)} networks are given, so set_agent_networks must be true"
        )
    if request.agent_label_keys and not request.set_agent_label_keys:
        raise InvalidRequest(
            f"agent_label_keys: {len(request.agent_label_keys)} keys are given, so set_agent_label_keys must be true"
        )


def _limit(request: pb.UpdateZoneRequest, field: str) -> int:
    if not request.HasField(field):
        return -1
    value: int = getattr(request, field)
    require_range(field, value, 0, MAX_LIMIT)
    return value


def freeze_writes(request: pb.FreezeWritesRequest, envelope: EnvelopeFactory) -> NewEvent:
    _check_zone_or_all(request)
    subject = request.zone or EVERY_ZONE
    return NewEvent(FLEET, subject, WritesFrozen(envelope(subject), request.zone))


def thaw_writes(request: pb.ThawWritesRequest, envelope: EnvelopeFactory) -> NewEvent:
    _check_zone_or_all(request)
    subject = request.zone or EVERY_ZONE
    return NewEvent(FLEET, subject, WritesThawed(envelope(subject), request.zone))


def _check_zone_or_all(request: pb.FreezeWritesRequest | pb.ThawWritesRequest) -> None:
    """Refuse an empty zone without `all_zones`: an unset variable of a script must not freeze or thaw the whole
    fleet."""
    if request.all_zones and request.zone:
        raise InvalidRequest(
            f"all_zones: true must not be given together with zone {field_checks.quoted(request.zone)}"
        )
    if not request.all_zones:
        require(field_checks.check_zone("zone", request.zone))

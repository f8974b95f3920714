"""The API of a simulated process: the production services behind their production handlers, called with bytes.

Only gRPC itself is missing: a stand-in implements the context that handlers use. Every command that the API offers is
sent through it; the other commands belong to the plane's own components.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message

from commands.requests.validation import TIME_MS_MAX
from commands.server import ApiServer
from eventstore.errors import AppendRefused, AppendUnknown, LogUnavailable
from eventstore.log import CLIQUES, FLEET, FLEET_0, RESOURCES, ZONES, Partition
from eventstore.position import Position, to_token
from eventstore.replicas.replica import Answer
from projections.cliques.items import claims_of
from projections.fleet import views as fleet_views
from projections.resources.state import LOCAL
from schemas import events as e
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import LIFECYCLE_VERBS, values_by_short_name
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.times import to_duration, to_timestamp
from tests.support.answers import answer_of, outcome_of, positions_of


class Aborted(Exception):
    """A call that ended with an error status."""

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status


class _Context:
    """The part of a gRPC context that handlers use."""

    def __init__(self, principal: str, timeout_s: float) -> None:
        self._metadata = ((PRINCIPAL_KEY, principal),)
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + timeout_s

    def time_remaining(self) -> float:
        return max(self._until_s - self._clock(), 0.0)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort(self, status: grpc.StatusCode, details: str, trailing_metadata: object = ()) -> NoReturn:
        raise Aborted(status, details)


class _CallDetails:
    """The part of gRPC's HandlerCallDetails that selects a handler."""

    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


class Api:
    """The API of one process."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._handlers = server.handlers()
        self._replica = server.command_handler._replica

    async def call(self, service: str, method: str, request: bytes, principal: str, timeout_s: float) -> bytes:
        """Make one unary call. Raises Aborted."""
        details: Any = _CallDetails(f"/{pb.DESCRIPTOR.package}.{service}/{method}")
        found: Any = next(handler for of in self._handlers if (handler := of.service(details)) is not None)
        answer = await found.unary_unary(found.request_deserializer(request), _Context(principal, timeout_s))
        encoded: bytes = found.response_serializer(answer)
        return encoded

    async def submit(self, method: str, request: Message, principal: str, timeout_s: float) -> Answer:
        """Send a command; returns the decision in the log. Its offset is -1 if the response names no record that
        decided it.

        Raises AppendUnknown, LogUnavailable, and AppendRefused for an error of the call.
        """
        try:
            found = await self.call("Commands", method, request.SerializeToString(), principal, timeout_s)
        except Aborted as aborted:
            kind = LogUnavailable if aborted.status is grpc.StatusCode.UNAVAILABLE else AppendRefused
            raise kind(str(aborted)) from aborted
        answer = pb.CommandResult.FromString(found)
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            raise AppendUnknown(answer.reason)
        if not answer.position:
            return Answer(outcome_of(answer), FLEET_0, -1)
        hold = answer.hold if answer.HasField("hold") else -1
        verdict = fleet_views.command_outcome(self._replica.state(FLEET_0), answer.command_id, hold)
        if verdict is not None or (method == "LeaveNodes" and answer.outcome == pb.OUTCOME_HELD):
            # The response has the outcome in fleet, and the checkers need the decision of the zone.
            return self._replica.outcomes(answer.command_id)[0]
        answered = answer_of(answer)
        if method == "LeaveNodes" and answer.outcome == pb.OUTCOME_UNCHANGED:
            decided = self._replica.outcomes(answer.command_id)
            if decided and _codes(decided[0]) == _codes(answered):
                # The response has the same codes and the reason of fleet: a hold keeps a node that has left already.
                return decided[0]
        return answered

    async def read(self, partition: Partition, min_offset: int, *, of_fleet: bool, timeout_s: float) -> tuple[int, int]:
        """Query with a minimum position, of fleet and zones or of one topic; returns the positions of the partition and
        of fleet, or -1 for fleet.

        Raises LogUnavailable.
        """
        method, request, answer = _QUERIES["fleet and zones" if of_fleet else partition.topic]
        token = to_token(Position(self._server.command_handler.log_id, {partition: min_offset}))
        message = request(min_position=token)
        try:
            found = await self.call("Queries", method, message.SerializeToString(), "reader", timeout_s)
        except Aborted as aborted:
            raise LogUnavailable(str(aborted)) from aborted
        offsets = positions_of(answer.FromString(found).position)
        return offsets[partition], offsets[FLEET_0] if of_fleet else -1


_QUERIES: dict[str, tuple[str, Any, Any]] = {
    ZONES: ("LocateNodes", partial(pb.LocateNodesRequest, names=["nobody"]), pb.LocateNodesResponse),
    CLIQUES: ("ListCliques", pb.ListCliquesRequest, pb.ListCliquesResponse),
    RESOURCES: ("ListResources", partial(pb.ListResourcesRequest, page_size=1), pb.ListResourcesResponse),
    FLEET: ("ListPolicies", pb.ListPoliciesRequest, pb.ListPoliciesResponse),
    "fleet and zones": ("ListZones", pb.ListZonesRequest, pb.ListZonesResponse),
}
"""The query that reads each topic. The position of its response has every partition of the topic."""


_SAME_FIELDS: dict[type[e.Event], tuple[str, type[Message]]] = {
    e.CliqueCapacitySet: ("SetCliqueCapacity", pb.SetCliqueCapacityRequest),
    e.DaemonReadinessReported: ("ReportDaemonReadiness", pb.ReportDaemonReadinessRequest),
    e.SessionOpened: ("OpenSession", pb.OpenSessionRequest),
    e.PolicyDeleted: ("DeletePolicy", pb.DeletePolicyRequest),
    e.BudgetSet: ("SetBudget", pb.SetBudgetRequest),
    e.HoldRejected: ("RejectHold", pb.RejectHoldRequest),
    e.DpuRegistered: ("RegisterDpu", pb.RegisterDpuRequest),
}
"""Events with the same field names as their requests. A field with the value -1 is omitted."""


def _codes(answer: Answer) -> tuple[object, ...]:
    """The answer without its reasons."""
    outcome, partition, offset = answer
    items = [(item.name, item.code) for item in outcome.items]
    return outcome.code, outcome.result, items, partition, offset


def request_for(event: e.Event) -> tuple[str, Message] | None:
    """The API method and request for an event; None if the API has no such command."""
    command_id = event.envelope.command_id
    match event:
        case e.NodesJoined():
            return "JoinNodes", pb.JoinNodesRequest(command_id=command_id, zone=event.zone, columns=_columns(event))
        case e.NodesLeft(inferred=False, uids=[]):
            return "LeaveNodes", pb.LeaveNodesRequest(command_id=command_id, zone=event.zone, names=event.names)
        case e.IndicesClaimed():
            return "ClaimIndices", pb.ClaimIndicesRequest(
                command_id=command_id, domain=event.domain, clique=event.clique, claims=_claims(event)
            )
        case e.IndicesReleased():
            uids = event.uids or repeat("")
            releases = [pb.ReleaseSpec(node=node, uid=uid) for node, uid in zip(event.nodes, uids, strict=False)]
            return "ReleaseIndices", pb.ReleaseIndicesRequest(
                command_id=command_id, domain=event.domain, clique=event.clique, releases=releases
            )
        case e.PolicySet():
            return "SetPolicy", pb.SetPolicyRequest(command_id=command_id, policy=_policy(event))
        case e.PolicyStaged():
            staging = pb.Staging(
                stages=event.stages, bake_time=to_duration(event.bake_ms), failure_budget=event.failure_budget
            )
            if event.is_deleted:
                return "DeletePolicy", pb.DeletePolicyRequest(command_id=command_id, name=event.name, staging=staging)
            return "SetPolicy", pb.SetPolicyRequest(command_id=command_id, policy=_policy(event), staging=staging)
        case e.StagesRequested():
            verb = values_by_short_name(pb.RequestStagesRequest.Verb.DESCRIPTOR)[event.verb]
            of = {"source": LOCAL} if event.name == LOCAL else {"policy": event.name}
            return "RequestStages", pb.RequestStagesRequest(command_id=command_id, verb=verb, **of)
        case e.HoldApproved():
            seen = event.hold_hash.hex()
            return "ApproveHold", pb.ApproveHoldRequest(command_id=command_id, hold=event.hold, hash=seen)
        case e.WritesFrozen(zone=zone):
            return "FreezeWrites", pb.FreezeWritesRequest(command_id=command_id, zone=zone, all_zones=not zone)
        case e.WritesThawed(zone=zone):
            return "ThawWrites", pb.ThawWritesRequest(command_id=command_id, zone=zone, all_zones=not zone)
        case e.LifecycleRequested():
            verb = LIFECYCLE_VERBS[event.request]
            return "RequestLifecycle", pb.RequestLifecycleRequest(
                command_id=command_id, zone=event.zone, dpu=event.dpu, verb=verb, image=event.image
            )
    if type(event) not in _SAME_FIELDS:
        return None
    method, request = _SAME_FIELDS[type(event)]
    fields = {name: getattr(event, name, None) for name in request.DESCRIPTOR.fields_by_name}
    values = {name: value for name, value in fields.items() if value not in (None, "", -1)}
    return method, request(**{**values, "command_id": command_id})


def _claims(event: e.IndicesClaimed) -> Iterator[pb.ClaimSpec]:
    for claim in claims_of(event, TIME_MS_MAX, 0):
        assert not isinstance(claim, str), "a client sends valid claims"
        uid = claim.pod.uid if claim.names_pod else ""
        create_time = to_timestamp(claim.pod.created_ms) if claim.names_pod else None
        requested_index = claim.requested_index if claim.requested_index >= 0 else None
        yield pb.ClaimSpec(
            node=claim.node, address=claim.address, create_time=create_time, uid=uid, requested_index=requested_index
        )


def _columns(event: e.NodesJoined) -> pb.NodeColumns:
    return pb.NodeColumns(
        names=event.names,
        created_ms=event.created_ms,
        uids=event.uids,
        addresses4=event.addresses4,
        addresses6=event.addresses6,
        label_sets=[pb.LabelSet(labels=labels) for labels in event.label_sets],
        label_index=event.label_index,
    )


def _policy(event: e.PolicySet | e.PolicyStaged) -> pb.PolicySpec:
    ports = zip(event.ports[::2], event.ports[1::2], strict=True)
    return pb.PolicySpec(
        name=event.name,
        priority=event.priority,
        action=event.action,
        protocol=event.protocol,
        ports=[pb.PortRange(first=first, last=last) for first, last in ports],
        sources=event.sources,
        zones=event.zones,
    )

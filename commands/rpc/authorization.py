"""Authorization: which roles may call each method. A call is denied unless the table allows it.

An operator changes the fleet. An approver approves changes over a budget, and sets the budgets. The roles are separate
so that one certificate cannot cause a mass withdrawal: a role that may raise a budget may not withdraw anything. Both
may freeze. A node agent may call methods for its own node only, and a host agent for its own host. DPU agents and
processes of the plane may call no method: they use the agent link.

The functions are pure, so that the whole table can be tested. A server does not start if a method is missing from the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from google.protobuf.descriptor import ServiceDescriptor

from projections.field_checks import quoted
from projections.fleet.withdrawals.principals import (
    APPROVER,
    HOST_AGENT,
    NODE_AGENT,
    OPERATOR,
    PROVISIONER,
    SIMULATOR,
    VIEWER,
    Principal,
)
from schemas.api import dpuplane_pb2 as pb

NodeNames = Callable[[Any], Iterable[str]]


class Permission(NamedTuple):
    """Which roles may call a method. With `node_names`, a node agent may call it for its own node. With `host_names`, a
    host agent may call it for its own host, which has a namespace."""

    roles: frozenset[str]
    node_names: NodeNames | None = None
    host_names: NodeNames | None = None


def _joining(request: pb.JoinNodesRequest) -> Iterable[str]:
    return [*(node.name for node in request.nodes), *request.columns.names]


def _changing(request: pb.ChangeNodesRequest) -> Iterable[str]:
    return [node.name for node in request.nodes]


def _claiming(request: pb.ClaimIndicesRequest) -> Iterable[str]:
    return [claim.node for claim in request.claims]


def _releasing(request: pb.ReleaseIndicesRequest) -> Iterable[str]:
    return [release.node for release in request.releases]


def _names(request: Any) -> Iterable[str]:
    return list(request.names)


def _node(request: Any) -> Iterable[str]:
    return [request.node]


def _host(request: Any) -> Iterable[str]:
    return [f"{request.namespace}/{request.node}"]


def _name(request: Any) -> Iterable[str]:
    return [request.name]


_READERS = frozenset({VIEWER, OPERATOR, APPROVER})
_OPERATORS = frozenset({OPERATOR})
_APPROVERS = frozenset({APPROVER})
_BOTH = frozenset({OPERATOR, APPROVER})
_SUPPLIERS = frozenset({OPERATOR, PROVISIONER})
_LISTS_DPUS = _READERS | {PROVISIONER, SIMULATOR}

METHODS = {
    "Commands.JoinNodes": Permission(_OPERATORS, _joining),
    "Commands.ChangeNodes": Permission(_OPERATORS, _changing),
    "Commands.LeaveNodes": Permission(_OPERATORS, _names),
    "Commands.JoinNodesStream": Permission(_OPERATORS),
    "Commands.UpdateZone": Permission(_OPERATORS),
    "Commands.DeleteZone": Permission(_OPERATORS),
    "Commands.RegisterDpu": Permission(_SUPPLIERS | {SIMULATOR}),
    "Commands.RequestLifecycle": Permission(_SUPPLIERS),
    "Commands.ClaimIndices": Permission(_OPERATORS, _claiming),
    "Commands.ReleaseIndices": Permission(_OPERATORS, _releasing),
    "Commands.SetCliqueCapacity": Permission(_OPERATORS),
    "Commands.ReportDaemonReadiness": Permission(_OPERATORS, _node),
    "Commands.OpenSession": Permission(_OPERATORS, _node),
    "Commands.SetPolicy": Permission(_OPERATORS),
    "Commands.DeletePolicy": Permission(_OPERATORS),
    "Commands.RequestStages": Permission(_OPERATORS),
    "Commands.ApproveHold": Permission(_APPROVERS),
    "Commands.RejectHold": Permission(_BOTH),
    "Commands.SetBudget": Permission(_APPROVERS),
    "Commands.FreezeWrites": Permission(_BOTH),
    "Commands.ThawWrites": Permission(_BOTH),
    "Commands.UpgradeFoldVersion": Permission(_APPROVERS),
    "Commands.ApplyResources": Permission(_OPERATORS),
    "Commands.DeleteResources": Permission(_OPERATORS),
    "Commands.RequestRollout": Permission(_OPERATORS),
    "Commands.KeepSecrets": Permission(_OPERATORS),
    "Commands.ReportHost": Permission(_OPERATORS, _node, _host),
    "Queries.ListNodes": Permission(_READERS),
    "Queries.GetNode": Permission(_READERS, _name),
    "Queries.LocateNodes": Permission(_READERS, _names),
    "Queries.ListZones": Permission(_LISTS_DPUS),
    "Queries.GetZone": Permission(_READERS),
    "Queries.GetRules": Permission(_READERS),
    "Queries.ListCliques": Permission(_READERS),
    "Queries.GetClique": Permission(_READERS | {NODE_AGENT}),
    "Queries.GetCliqueConfig": Permission(_READERS | {NODE_AGENT}),
    "Queries.ListDpus": Permission(_LISTS_DPUS),
    "Queries.GetDpu": Permission(_READERS | {PROVISIONER}),
    "Queries.ListPolicies": Permission(_READERS),
    "Queries.ListHolds": Permission(_READERS),
    "Queries.GetHold": Permission(_READERS),
    "Queries.ListHoldNodes": Permission(_READERS),
    "Queries.ListBudgets": Permission(_READERS),
    "Queries.GetCommand": Permission(_READERS),
    "Queries.GetStatus": Permission(_READERS),
    "Queries.ListDevices": Permission(_READERS),
    "Queries.ListZoneProgress": Permission(_READERS),
    "Queries.GetLatency": Permission(_READERS),
    "Queries.ExplainAccess": Permission(_READERS),
    "Queries.GetResource": Permission(_READERS),
    "Queries.GetDpuConfiguration": Permission(_READERS),
    "Queries.GetDpuNetwork": Permission(_READERS),
    "Queries.ListResources": Permission(_READERS),
    "Queries.GetRollout": Permission(_READERS),
    "Queries.GetStagedChange": Permission(_READERS),
    "Queries.GetHostTasks": Permission(_READERS, _node, _host),
    "Streams.KeepSession": Permission(_OPERATORS, _node),
    "Streams.ReadEvents": Permission(_READERS),
    "Streams.Watch": Permission(_READERS),
}
"""Permission by method, as SERVICE.METHOD. A node agent may read the table of its clique, because the table names its
peers.
"""


def unlisted_methods(services: Iterable[ServiceDescriptor]) -> list[str]:
    """Methods that the table does not list."""
    every = [f"{service.name}.{method.name}" for service in services for method in service.methods]
    return [method for method in every if method not in METHODS]


def names_nodes(method: str) -> bool:
    """Whether a node agent may call the method for its own node. The node names in each request must then be
    checked."""
    rule = METHODS.get(method)
    return rule is not None and rule.node_names is not None


def denial_reason(method: str, principal: Principal, request: Any) -> str | None:
    """Why the principal may not call the method, in one sentence; None if it may."""
    rule = METHODS.get(method)
    if rule is None:
        return f"{method}: no role may call it"
    if principal.role in rule.roles:
        return None
    if principal.role == NODE_AGENT and rule.node_names is not None:
        return _about_others(method, principal, "node", rule.node_names(request))
    if principal.role == HOST_AGENT and rule.host_names is not None:
        return _about_others(method, principal, "host", rule.host_names(request))
    return f"{method}: {principal} must have the role {' or '.join(sorted(rule.roles))}"


def _about_others(method: str, principal: Principal, kind: str, names: Iterable[str]) -> str | None:
    named = list(names)
    if not named:
        return f"{method}: {principal} must name its own {kind}"
    other = next((name for name in named if name != principal.name), None)
    return None if other is None else f"{method}: {principal} must act for its own {kind} only, not for {quoted(other)}"

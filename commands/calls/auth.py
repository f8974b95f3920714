"""Who may call what: one line per method, and what no line allows is denied.

An operator changes the fleet; an approver says yes to what is over a budget, and sets the budgets. They are two roles
so that no mass withdrawal is the work of one certificate: who may raise a budget may not withdraw anything. Stopping is
for both. The agent of a node may speak for that node and for no other. The agents of DPUs and the processes of the
plane have no business here at all: theirs is the agent link.

Pure, so that the whole table can be tested; a server does not start while a method has no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from google.protobuf.descriptor import ServiceDescriptor

from projections.fleet.principals import APPROVER, NODE_AGENT, OPERATOR, PROVISIONER, SIMULATOR, VIEWER, Principal
from projections.names import shown
from schemas.api import dpuplane_pb2 as pb

NamesOf = Callable[[Any], Iterable[str]]


class Rule(NamedTuple):
    """Who may call a method. A node's agent may if `own` is given, and the request is about its own node only."""

    roles: frozenset[str]
    own: NamesOf | None = None


def _joining(request: pb.JoinNodesRequest) -> Iterable[str]:
    return [*(node.name for node in request.nodes), *request.columns.names]


def _changing(request: pb.ChangeNodesRequest) -> Iterable[str]:
    return [node.name for node in request.nodes]


def _names(request: Any) -> Iterable[str]:
    return list(request.names)


def _node(request: Any) -> Iterable[str]:
    return [request.node]


def _name(request: Any) -> Iterable[str]:
    return [request.name]


_READERS = frozenset({VIEWER, OPERATOR, APPROVER})
_OPERATORS = frozenset({OPERATOR})
_APPROVERS = frozenset({APPROVER})
_BOTH = frozenset({OPERATOR, APPROVER})
_SUPPLIERS = frozenset({OPERATOR, PROVISIONER})
_LISTS_DPUS = _READERS | {PROVISIONER, SIMULATOR}

METHODS = {
    "Commands.JoinNodes": Rule(_OPERATORS, _joining),
    "Commands.ChangeNodes": Rule(_OPERATORS, _changing),
    "Commands.LeaveNodes": Rule(_OPERATORS, _names),
    "Commands.JoinNodesStream": Rule(_OPERATORS),
    "Commands.DescribeZone": Rule(_OPERATORS),
    "Commands.DeleteZone": Rule(_OPERATORS),
    "Commands.RegisterDpu": Rule(_SUPPLIERS | {SIMULATOR}),
    "Commands.RequestLifecycle": Rule(_SUPPLIERS),
    "Commands.ClaimIndex": Rule(_OPERATORS, _node),
    "Commands.ReleaseIndex": Rule(_OPERATORS, _node),
    "Commands.SetCapacity": Rule(_OPERATORS),
    "Commands.ReportReady": Rule(_OPERATORS, _node),
    "Commands.OpenSession": Rule(_OPERATORS, _node),
    "Commands.SetPolicy": Rule(_OPERATORS),
    "Commands.DeletePolicy": Rule(_OPERATORS),
    "Commands.ApproveHold": Rule(_APPROVERS),
    "Commands.RejectHold": Rule(_BOTH),
    "Commands.SetBudget": Rule(_APPROVERS),
    "Commands.Freeze": Rule(_BOTH),
    "Commands.Thaw": Rule(_BOTH),
    "Commands.RaiseFoldVersion": Rule(_APPROVERS),
    "Queries.ListNodes": Rule(_READERS),
    "Queries.ShowNode": Rule(_READERS, _name),
    "Queries.LocateNodes": Rule(_READERS, _names),
    "Queries.ListZones": Rule(_LISTS_DPUS),
    "Queries.ShowZone": Rule(_READERS),
    "Queries.ShowRules": Rule(_READERS),
    "Queries.ListCliques": Rule(_READERS),
    "Queries.ShowClique": Rule(_READERS | {NODE_AGENT}),
    "Queries.ShowCliqueConfig": Rule(_READERS | {NODE_AGENT}),
    "Queries.ListDpus": Rule(_LISTS_DPUS),
    "Queries.ShowDpu": Rule(_READERS | {PROVISIONER}),
    "Queries.ListPolicies": Rule(_READERS),
    "Queries.ListHolds": Rule(_READERS),
    "Queries.ShowHold": Rule(_READERS),
    "Queries.ListHoldNodes": Rule(_READERS),
    "Queries.ListBudgets": Rule(_READERS),
    "Queries.ShowCommand": Rule(_READERS),
    "Queries.ShowStatus": Rule(_READERS),
    "Queries.ListDevices": Rule(_READERS),
    "Queries.ListProgress": Rule(_READERS),
    "Queries.ShowLatency": Rule(_READERS),
    "Queries.ExplainRule": Rule(_READERS),
}
"""Each method by SERVICE.METHOD. A node's agent needs the table of its clique, which names its peers."""


def unruled(services: Iterable[ServiceDescriptor]) -> list[str]:
    """Methods that no line is about."""
    every = [f"{service.name}.{method.name}" for service in services for method in service.methods]
    return [method for method in every if method not in METHODS]


def denial(method: str, principal: Principal, request: Any) -> str | None:
    """None if they may; else one sentence that says why not."""
    rule = METHODS.get(method)
    if rule is None:
        return f"{method}: nobody may call it"
    if principal.role in rule.roles:
        return None
    if principal.role == NODE_AGENT and rule.own is not None:
        return _about_others(method, principal, rule.own(request))
    return f"{method}: {principal} must have the role {' or '.join(sorted(rule.roles))}"


def _about_others(method: str, principal: Principal, names: Iterable[str]) -> str | None:
    named = list(names)
    if not named:
        return f"{method}: {principal} must name its own node"
    other = next((name for name in named if name != principal.name), None)
    return None if other is None else f"{method}: {principal} may speak for its own node only, not for {shown(other)}"

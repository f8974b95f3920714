"""The table of permissions: it is complete, and every other call is denied."""

from __future__ import annotations

from typing import Any

import pytest

from commands.rpc.authorization import METHODS, denial_reason, unlisted_methods
from projections.fleet.withdrawals.principals import (
    APPROVER,
    DPU_AGENT,
    HOST_AGENT,
    NODE_AGENT,
    OPERATOR,
    PLANE,
    PRINCIPAL_ROLES,
    PROVISIONER,
    SIMULATOR,
    VIEWER,
    Principal,
)
from schemas.api import dpuplane_pb2 as pb

SERVICES = pb.DESCRIPTOR.services_by_name.values()
EVERY = [f"{service.name}.{method.name}" for service in SERVICES for method in service.methods]
COMMANDS = [method for method in EVERY if method.startswith("Commands.")]
WITHDRAWS = ("Commands.LeaveNodes", "Commands.SetPolicy", "Commands.DeletePolicy", "Commands.UpdateZone")


def may(role: str, method: str, request: Any = None) -> bool:
    return denial_reason(method, Principal(role, "n1"), request) is None


def test_every_method_has_an_entry() -> None:
    assert unlisted_methods(SERVICES) == []


def test_a_method_without_an_entry_is_denied_to_all_roles() -> None:
    for role in PRINCIPAL_ROLES:
        assert denial_reason("Commands.Explode", Principal(role, "n1"), None) == "Commands.Explode: no role may call it"


def test_a_viewer_changes_nothing() -> None:
    assert not [method for method in COMMANDS if may(VIEWER, method, pb.LeaveNodesRequest())]


def test_dpu_agents_and_processes_of_the_plane_may_call_no_method() -> None:
    assert not [(role, method) for role in (DPU_AGENT, PLANE) for method in EVERY if may(role, method)]


def test_no_role_may_both_approve_and_withdraw() -> None:
    for method in ("Commands.ApproveHold", "Commands.SetBudget"):
        assert [role for role in PRINCIPAL_ROLES if may(role, method)] == [APPROVER]
    for method in WITHDRAWS:
        assert not may(APPROVER, method)
        assert may(OPERATOR, method)


def test_every_operating_role_may_freeze_the_fleet() -> None:
    assert {role for role in PRINCIPAL_ROLES if may(role, "Commands.FreezeWrites")} == {OPERATOR, APPROVER}


def test_provisioners_and_simulators_register_dpus_and_do_little_else() -> None:
    assert {method for method in COMMANDS if may(PROVISIONER, method)} == {
        "Commands.RegisterDpu",
        "Commands.RequestLifecycle",
    }
    assert {method for method in COMMANDS if may(SIMULATOR, method)} == {"Commands.RegisterDpu"}


def test_the_stream_of_joins_is_for_operators_because_its_names_come_later() -> None:
    assert [role for role in PRINCIPAL_ROLES if may(role, "Commands.JoinNodesStream")] == [OPERATOR]


OWN: list[tuple[str, Any, Any]] = [
    (
        "Commands.JoinNodes",
        pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n1")]),
        pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n1"), pb.NodeSpec(name="n2")]),
    ),
    (
        "Commands.JoinNodes",
        pb.JoinNodesRequest(zone="z", columns=pb.NodeColumns(names=["n1"])),
        pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n1")], columns=pb.NodeColumns(names=["n2"])),
    ),
    (
        "Commands.ChangeNodes",
        pb.ChangeNodesRequest(nodes=[pb.NodeSpec(name="n1")]),
        pb.ChangeNodesRequest(nodes=[pb.NodeSpec(name="n2")]),
    ),
    ("Commands.LeaveNodes", pb.LeaveNodesRequest(names=["n1"]), pb.LeaveNodesRequest(names=["n1", "n2"])),
    ("Commands.LeaveNodes", pb.LeaveNodesRequest(names=["n1"]), pb.LeaveNodesRequest(zone="z")),
    (
        "Commands.ClaimIndices",
        pb.ClaimIndicesRequest(claims=[pb.ClaimSpec(node="n1")]),
        pb.ClaimIndicesRequest(claims=[pb.ClaimSpec(node="n10")]),
    ),
    (
        "Commands.ReleaseIndices",
        pb.ReleaseIndicesRequest(releases=[pb.ReleaseSpec(node="n1")]),
        pb.ReleaseIndicesRequest(),
    ),
    (
        "Commands.ReportDaemonReadiness",
        pb.ReportDaemonReadinessRequest(node="n1"),
        pb.ReportDaemonReadinessRequest(node="N1"),
    ),
    ("Commands.ReportHost", pb.ReportHostRequest(node="n1"), pb.ReportHostRequest(node="n2")),
    ("Queries.GetHostTasks", pb.GetHostTasksRequest(node="n1"), pb.GetHostTasksRequest(node="n1 ")),
    ("Commands.OpenSession", pb.OpenSessionRequest(node="n1"), pb.OpenSessionRequest(node="n2")),
    ("Queries.GetNode", pb.GetNodeRequest(name="n1"), pb.GetNodeRequest(name="n2")),
    ("Queries.LocateNodes", pb.LocateNodesRequest(names=["n1"]), pb.LocateNodesRequest(names=["n1", "n2"])),
]


@pytest.mark.parametrize(("method", "mine", "others"), OWN)
def test_a_node_agent_may_act_for_its_own_node_only(method: str, mine: Any, others: Any) -> None:
    assert may(NODE_AGENT, method, mine)
    fault = denial_reason(method, Principal(NODE_AGENT, "n1"), others)
    assert fault is not None
    assert fault.startswith(f"{method}: node-agent/n1 ")


@pytest.mark.parametrize("method", ["Commands.ReportHost", "Queries.GetHostTasks"])
def test_a_host_agent_may_act_for_the_host_of_its_namespace_only(method: str) -> None:
    request = pb.ReportHostRequest if method == "Commands.ReportHost" else pb.GetHostTasksRequest
    agent = Principal(HOST_AGENT, "a/n1")
    assert denial_reason(method, agent, request(namespace="a", node="n1")) is None
    for namespace, node in (("b", "n1"), ("a", "n2"), ("", "n1"), ("", "a/n1"), ("a/n1", "")):
        other = f"{namespace}/{node}"
        assert (
            denial_reason(method, agent, request(namespace=namespace, node=node))
            == f"{method}: host-agent/a/n1 must act for its own host only, not for '{other}'"
        )


def test_a_host_agent_may_call_no_other_method() -> None:
    assert [method for method in EVERY if METHODS[method].host_names is not None] == [
        "Commands.ReportHost",
        "Queries.GetHostTasks",
    ]
    for method in EVERY:
        if METHODS[method].host_names is None:
            assert denial_reason(method, Principal(HOST_AGENT, "a/n1"), None) is not None


def test_a_node_agent_may_call_no_other_method() -> None:
    reads = {"Queries.GetClique", "Queries.GetCliqueConfig"}
    for method in EVERY:
        if METHODS[method].node_names is None:
            assert may(NODE_AGENT, method) == (method in reads), method


def test_a_denial_names_method_principal_and_rule_in_one_sentence() -> None:
    sentence = denial_reason("Commands.RejectHold", Principal(VIEWER, "n1"), None)
    assert sentence == "Commands.RejectHold: viewer/n1 must have the role approver or operator"

"""Node agents with certificates: the effect of their statements, and the outcomes that they get."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from schemas.api import dpuplane_pb2 as pb
from tests.support.guarded import Guarded, allow_agents, guarded

NET = "10.7.0.0/16"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as found:
        yield found


def join(name: str, address: str = "", zone: str = "z1", **labels: str) -> pb.JoinNodesRequest:
    addresses = [address] if address else []
    return pb.JoinNodesRequest(zone=zone, nodes=[pb.NodeSpec(name=name, addresses=addresses, labels=labels)])


async def test_a_node_agent_does_not_get_the_address_of_another_node_and_gets_the_reason(plane: Guarded) -> None:
    """The attack states the address of another node and a label that policies trust."""
    await allow_agents(plane, "z1", networks=[NET])
    await allow_agents(plane, "z2", networks=[NET])
    operator, agent = plane.caller("operator/ann"), plane.caller("node-agent/n1")
    assert (await operator.calls.JoinNodes(join("victim", "10.7.0.1"))).outcome == pb.OUTCOME_DONE
    labelled = await agent.calls.JoinNodes(join("n1", "10.7.0.2", trust="high"))
    assert (labelled.outcome, "--agent-label-key trust" in labelled.reason) == (pb.OUTCOME_REFUSED, True)
    taken = await agent.calls.JoinNodes(join("n1", "10.7.0.1", zone="z2"))
    assert (taken.outcome, "node 'victim' holds it" in taken.reason) == (pb.OUTCOME_REFUSED, True)
    shown = await agent.queries.GetNode(pb.GetNodeRequest(name="n1", min_position=taken.position))
    assert (list(shown.conflicts), shown.withheld) == (["victim"], taken.reason)
    again = await agent.calls.JoinNodes(join("n1", "10.7.0.1", zone="z2"))
    assert (again.outcome, again.reason) == (pb.OUTCOME_REFUSED, taken.reason)
    asked = pb.GetCommandRequest(command_id=taken.command_id)
    assert await operator.queries.GetCommand(asked) == taken
    gone = await operator.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["victim"]))
    assert await operator.queries.GetCommand(asked) == taken, "the repeat has the first outcome"
    assert gone.outcome == pb.OUTCOME_DONE
    shown = await agent.queries.GetNode(pb.GetNodeRequest(name="n1", min_position=gone.position))
    assert (list(shown.conflicts), shown.withheld) == ([], "")
    assert (await agent.calls.JoinNodes(join("n1", "10.7.0.1", zone="z2"))).outcome == pb.OUTCOME_DONE


async def test_a_node_agent_cannot_create_a_zone_or_move_a_node(plane: Guarded) -> None:
    agent = plane.caller("node-agent/n1")
    refused = await agent.calls.JoinNodes(join("n1", zone="mine"))
    assert (refused.outcome, "dpuplane zones limit mine --create" in refused.reason) == (pb.OUTCOME_REFUSED, True)
    for zone in ("z1", "z2"):
        await allow_agents(plane, zone, networks=[NET])
    assert (await plane.caller("operator/ann").calls.JoinNodes(join("n1", trust="low"))).outcome == pb.OUTCOME_DONE
    moved = await agent.calls.JoinNodes(join("n1", "10.7.0.9", zone="z2"))
    assert (moved.outcome, "cannot move a node" in moved.reason) == (pb.OUTCOME_REFUSED, True)
    left = await agent.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n1"]))
    assert (left.outcome, "'trust' of 'n1' is set by an operator" in left.reason) == (pb.OUTCOME_REFUSED, True)


async def test_permitted_values_of_an_agent_take_effect_beside_labels_of_an_operator(plane: Guarded) -> None:
    await allow_agents(plane, "z1", networks=[NET], label_keys=["role"])
    operator, agent = plane.caller("operator/ann"), plane.caller("node-agent/n1")
    zone = await operator.queries.GetZone(pb.GetZoneRequest(zone="z1"))
    assert (list(zone.agent_networks), list(zone.agent_label_keys)) == ([NET], ["role"])
    assert (await operator.calls.JoinNodes(join("n1", trust="low"))).outcome == pb.OUTCOME_DONE
    answer = await agent.calls.JoinNodes(join("n1", "10.7.0.9", role="web"))
    assert answer.outcome == pb.OUTCOME_DONE
    shown = await agent.queries.GetNode(pb.GetNodeRequest(name="n1", min_position=answer.position))
    assert (dict(shown.labels), list(shown.addresses)) == ({"role": "web", "trust": "low"}, ["10.7.0.9"])
    changed = await agent.calls.ChangeNodes(
        pb.ChangeNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n1", addresses=["192.0.2.1"])])
    )
    assert (changed.outcome, "--agent-network 192.0.2.1/32" in changed.reason) == (pb.OUTCOME_REFUSED, True)


async def test_a_node_agent_gets_the_outcome_of_its_command_by_repeating_it(plane: Guarded) -> None:
    """A node agent may not call GetCommand, because a stored outcome does not contain its principal."""
    await allow_agents(plane, "z1", networks=[NET])
    agent = plane.caller("node-agent/n1")
    for request in (join("n1", "10.7.0.1"), join("n1", "192.0.2.1")):
        request.command_id = plane.plane.command_id()
        first = await agent.calls.JoinNodes(request)
        assert await agent.calls.JoinNodes(request) == first
        with pytest.raises(grpc.aio.AioRpcError, match="must have the role approver or operator or viewer"):
            await agent.queries.GetCommand(pb.GetCommandRequest(command_id=request.command_id))
    assert (await agent.queries.GetNode(pb.GetNodeRequest(name="n1"))).addresses == ["10.7.0.1"]

"""The API over a real server and a real log: responses and their effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from projections.rules.rule import Held
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp
from tests.support.served import SHORT, Served, served


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


def node(name: str, *addresses: str, **labels: str) -> pb.NodeSpec:
    return pb.NodeSpec(name=name, addresses=addresses, labels=labels)


async def until_members(plane: Served, joined: pb.CommandResult) -> None:
    """Wait until fleet has a join. Before then its nodes are in no rule table, and a leave of them is not held."""
    await plane.queries.ListPolicies(pb.ListPoliciesRequest(min_position=joined.position))


async def test_a_join_is_readable_at_the_position_of_its_response(plane: Served) -> None:
    answer = await plane.join("z1", node("n1", "10.0.0.1", "fd00::1", model="A10"))
    assert answer.outcome == pb.OUTCOME_DONE
    assert answer.command_id
    found = await plane.queries.GetNode(pb.GetNodeRequest(name="n1", min_position=answer.position))
    assert (found.zone, list(found.addresses), dict(found.labels)) == (
        "z1",
        ["10.0.0.1", "fd00::1"],
        {"model": "A10"},
    )
    assert found.uid == answer.command_id, "without a uid the command id is the incarnation"
    rules = [page async for page in plane.queries.GetRules(pb.GetRulesRequest(zone="z1", min_position=answer.position))]
    assert [rule.prefix for page in rules for rule in page.rules] == ["10.0.0.1/32", "fd00::1/128"]
    assert rules[0].version > 0
    assert {rule.policy for page in rules for rule in page.rules} == {"default"}


async def test_a_repeated_command_has_the_same_response_and_no_effect(plane: Served) -> None:
    command_id = plane.command_id()
    first = await plane.join("z1", node("n1", "10.0.0.1"), command_id=command_id)
    stated = await plane.stated()
    assert await plane.join("z1", node("n1", "10.0.0.1"), command_id=command_id) == first
    assert await plane.queries.GetCommand(pb.GetCommandRequest(command_id=command_id)) == first
    other = await plane.join("z1", node("n1", "10.0.0.2"), command_id=command_id)
    assert (other.outcome, command_id in other.reason) == (pb.OUTCOME_REFUSED, True)
    for elsewhere in (
        plane.join("z2", node("n1", "10.0.0.1"), command_id=command_id),
        plane.calls.FreezeWrites(pb.FreezeWritesRequest(command_id=command_id, all_zones=True)),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"{command_id} is in use for another command, in ") as used:
            await elsewhere
        assert used.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert await plane.stated() == stated
    found = await plane.queries.GetNode(pb.GetNodeRequest(name="n1"))
    assert list(found.addresses) == ["10.0.0.1"]


async def test_another_principal_cannot_use_a_command_id(plane: Served) -> None:
    request = pb.FreezeWritesRequest(zone="z1", command_id=plane.command_id())
    mine = await plane.calls.FreezeWrites(request, metadata=[("x-dpuplane-as", "alice")])
    theirs = await plane.calls.FreezeWrites(request, metadata=[("x-dpuplane-as", "bob")])
    assert (mine.outcome, theirs.outcome) == (pb.OUTCOME_DONE, pb.OUTCOME_REFUSED)


async def test_a_leave_can_be_repeated_safely(plane: Served) -> None:
    await plane.join("z1", node("n1", "10.0.0.1"), node("n2", "10.0.0.2"))
    request = pb.LeaveNodesRequest(zone="z1", names=["n1", "n2"], command_id=plane.command_id())
    first = await plane.calls.LeaveNodes(request)
    assert (first.outcome, list(first.items)) == (pb.OUTCOME_DONE, [])
    assert await plane.calls.LeaveNodes(request) == first
    other = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n1"], command_id=request.command_id))
    assert other.outcome == pb.OUTCOME_REFUSED
    gone = await plane.queries.ListNodes(pb.ListNodesRequest(min_position=first.position))
    assert list(gone.nodes) == []
    await plane.join("z2", node("n1", "10.0.0.1"))
    assert await plane.calls.LeaveNodes(request) == first, (
        "the repeat has the first outcome although the node has moved"
    )
    located = await plane.queries.LocateNodes(pb.LocateNodesRequest(names=["n1"]))
    assert dict(located.zones) == {"n1": "z2"}


async def test_a_command_without_effect_is_unchanged(plane: Served) -> None:
    joined = await plane.join("z1", node("n1", "10.0.0.1"))
    again = await plane.join("z1", pb.NodeSpec(name="n1", addresses=["10.0.0.1"], create_time=to_timestamp(5), uid="u"))
    assert again.outcome == pb.OUTCOME_REFUSED, "the join has an older incarnation"
    shown = await plane.queries.GetNode(pb.GetNodeRequest(name="n1", min_position=joined.position))
    as_it_is = pb.NodeSpec(name="n1", addresses=["10.0.0.1"], create_time=shown.create_time, uid=shown.uid)
    assert (await plane.join("z1", as_it_is)).outcome == pb.OUTCOME_UNCHANGED
    leave = pb.LeaveNodesRequest(zone="z1", names=["n1", "n2"])
    first, second = await plane.calls.LeaveNodes(leave), await plane.calls.LeaveNodes(leave)
    assert (first.outcome, second.outcome) == (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED)
    assert [(item.name, item.outcome) for item in first.items] == [("n2", pb.OUTCOME_UNCHANGED)]
    assert {item.reason for item in second.items} == {f"node: 'n{n}' is not in zone 'z1'" for n in (1, 2)}
    assert (await plane.calls.FreezeWrites(pb.FreezeWritesRequest(zone="z1"))).outcome == pb.OUTCOME_DONE
    assert await plane.queries.GetCommand(pb.GetCommandRequest(command_id=second.command_id)) == second


async def test_a_held_leave_is_reported_under_its_id_until_the_hold_is_closed(plane: Served) -> None:
    await plane.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-leave", permille=0, min_addresses=0))
    await until_members(plane, await plane.join("z1", *(node(f"n{i}", f"10.0.0.{i}") for i in range(1, 9))))
    leave = pb.LeaveNodesRequest(zone="z1", names=["n1", "n2"], command_id=plane.command_id())
    held = await plane.calls.LeaveNodes(leave)
    ask = pb.GetCommandRequest(command_id=leave.command_id)
    assert held.outcome == pb.OUTCOME_HELD
    assert (await plane.queries.GetCommand(ask), await plane.calls.LeaveNodes(leave)) == (held, held)
    said = await plane.calls.RejectHold(pb.RejectHoldRequest(hold=held.hold))
    assert said.outcome == pb.OUTCOME_DONE
    after, again = await plane.queries.GetCommand(ask), await plane.calls.LeaveNodes(leave)
    assert after == again
    assert (after.outcome, after.hold) == (pb.OUTCOME_REFUSED, held.hold)
    assert after.reason == f"hold {held.hold} was rejected by '?anonymous': the rule tables keep the previous state"


async def test_a_held_edit_is_reported_under_its_id_with_the_result_of_its_hold(plane: Served) -> None:
    await plane.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-change", permille=0, min_addresses=0))
    await until_members(plane, await plane.join("z1", node("n1", "10.0.0.1"), node("n2", "10.0.0.2")))
    drop = pb.PolicySpec(name="no", action="drop", protocol="any")
    requests = [pb.SetPolicyRequest(policy=drop, command_id=plane.command_id()) for _ in range(2)]
    first, second = [await plane.calls.SetPolicy(request) for request in requests]
    assert (first.outcome, first.hold) == (second.outcome, second.hold) == (pb.OUTCOME_HELD, first.hold)
    await plane.calls.RejectHold(pb.RejectHoldRequest(hold=first.hold))
    for request in requests:
        shown = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=request.command_id))
        assert shown == await plane.calls.SetPolicy(request), "every caller gets the same outcome"
        assert shown.outcome == pb.OUTCOME_REFUSED
        assert (
            shown.reason == f"hold {first.hold} was rejected by '?anonymous': the rule tables keep the previous state"
        )
    budget = pb.SetBudgetRequest(kind="denied-by-change", permille=500, min_addresses=0, command_id=plane.command_id())
    (hold,) = (await hold_of(plane, await plane.calls.SetBudget(budget)),)
    for name in ("alice", "bob"):
        approve = pb.ApproveHoldRequest(hold=hold.hold, hash=hold.hash)
        await plane.calls.ApproveHold(approve, metadata=[("x-dpuplane-as", name)])
    shown = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=budget.command_id))
    assert shown == await plane.calls.SetBudget(budget)
    said = f"hold {hold.hold} was approved by '?alice' and '?bob'"
    assert (shown.outcome, shown.reason) == (pb.OUTCOME_DONE, said)


async def hold_of(plane: Served, answer: pb.CommandResult) -> pb.Hold:
    found: pb.Hold = await plane.queries.GetHold(pb.GetHoldRequest(hold=answer.hold, min_position=answer.position))
    return found


async def test_a_leave_over_the_budget_is_held_until_two_approve(plane: Served) -> None:
    assert (
        await plane.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-leave", permille=0, min_addresses=1))
    ).outcome == pb.OUTCOME_DONE
    await until_members(plane, await plane.join("z1", *(node(f"n{i}", f"10.0.0.{i}") for i in range(1, 9))))
    answer = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=[f"n{i}" for i in range(1, 5)]))
    assert answer.outcome == pb.OUTCOME_HELD
    assert answer.HasField("hold")
    holds = await plane.queries.ListHolds(pb.ListHoldsRequest())
    (hold,) = holds.holds
    assert (hold.hold, hold.kind, list(hold.nodes), hold.node_count) == (
        answer.hold,
        "denied-by-leave",
        ["n1", "n2", "n3", "n4"],
        4,
    )
    shown = await plane.queries.GetNode(pb.GetNodeRequest(name="n1"))
    assert shown.held, "the held node left, and its address stays"
    approve = pb.ApproveHoldRequest(hold=hold.hold, hash=hold.hash)
    for name in ("alice", "bob"):
        said = await plane.calls.ApproveHold(approve, metadata=[("x-dpuplane-as", name)])
        assert said.outcome == pb.OUTCOME_DONE, said
    assert not (await plane.queries.ListHolds(pb.ListHoldsRequest(min_position=said.position))).holds
    with pytest.raises(grpc.aio.AioRpcError, match="'n1' is not a node of any zone"):
        await plane.queries.GetNode(pb.GetNodeRequest(name="n1"))


async def test_a_leave_that_does_not_reach_fleet_is_unknown(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", forwards=False, limits=SHORT) as plane:
        await plane.join("z1", node("n1", "10.0.0.1"))
        answer = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n1"]), timeout=60.0)
        assert answer.outcome == pb.OUTCOME_UNKNOWN
        assert "held is not known" in answer.reason
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plane.queries.ListPolicies(pb.ListPoliciesRequest(min_position=await position(plane)), timeout=60.0)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "fleet has not received zones/" in str(caught.value.details())


async def position(plane: Served) -> str:
    found = await plane.queries.LocateNodes(pb.LocateNodesRequest(names=["n1"]))
    return str(found.position)


async def test_a_leave_is_decided_by_the_zone_that_it_names(plane: Served) -> None:
    await plane.join("z1", node("a"))
    await plane.join("z2", node("b"))
    both = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["a", "b"]))
    assert both.outcome == pb.OUTCOME_DONE
    assert [(item.name, item.outcome) for item in both.items] == [("b", pb.OUTCOME_UNCHANGED)]
    located = await plane.queries.LocateNodes(pb.LocateNodesRequest(names=["a", "b", "c"]))
    assert dict(located.zones) == {"b": "z2"}


async def test_eighteen_concurrent_claims_and_a_nineteenth(plane: Served) -> None:
    def claim(number: int) -> Any:
        claims = [pb.ClaimSpec(node=f"n{number}")]
        return plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=claims))

    answers = await asyncio.gather(*(claim(number) for number in range(19)))
    assert sorted(answer.index for answer in answers if answer.HasField("index")) == list(range(18))
    (waiting,) = (answer for answer in answers if answer.outcome == pb.OUTCOME_WAITING)
    assert (waiting.queue_position, "(18)" in waiting.reason) == (1, True)
    shown = await plane.queries.GetClique(pb.GetCliqueRequest(domain="d", clique="c", min_position=waiting.position))
    assert [member.index for member in shown.members] == list(range(18))
    assert [place.queue_position for place in shown.waiting] == [1]
    config = await plane.queries.GetCliqueConfig(pb.GetCliqueConfigRequest(domain="d", clique="c"))
    assert (len(config.peers.splitlines()), len(config.hosts.splitlines())) == (18, 18)


async def test_a_stream_of_joins_lists_its_refusals(plane: Served) -> None:
    def requests() -> list[pb.JoinNodesRequest]:
        good = [
            pb.JoinNodesRequest(
                zone=f"z{zone}",
                columns=pb.NodeColumns(
                    names=[f"z{zone}-n{i}" for i in range(200)],
                    addresses4=b"".join((0x0A000000 + zone * 256 + i + 1).to_bytes(4, "big") for i in range(200)),
                ),
            )
            for zone in range(40)
        ]
        bad = [pb.JoinNodesRequest(zone="z/1", nodes=[node("x")]), pb.JoinNodesRequest(zone="z1")]
        return [*good, *bad]

    summary = await plane.calls.JoinNodesStream(iter(requests()))
    assert (summary.requests, summary.nodes, summary.done, summary.refused, summary.unknown) == (42, 8001, 8000, 0, 0)
    assert (summary.not_appended, list(summary.refusals)) == (1, [])
    assert [(error.request, error.status, error.reason.partition(":")[0]) for error in summary.errors] == [
        (40, "INVALID_ARGUMENT", "zone"),
        (41, "INVALID_ARGUMENT", "nodes"),
    ]
    zones = await plane.queries.ListZones(pb.ListZonesRequest(min_position=summary.position, page_size=1000))
    assert {zone.zone: zone.nodes for zone in zones.zones} == {f"z{zone}": 200 for zone in range(40)}
    assert len({zone.digest for zone in zones.zones}) == 1


async def test_the_pages_of_a_list_join_to_the_whole(plane: Served) -> None:
    for zone in ("z1", "z2", "z3", "z4"):
        await plane.join(zone, *(node(f"{zone}-n{i}") for i in range(25)))
    seen, request = [], pb.ListNodesRequest(page_size=7)
    while True:
        page = await plane.queries.ListNodes(request)
        seen += [found.name for found in page.nodes]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert sorted(seen) == sorted(f"{zone}-n{i}" for zone in ("z1", "z2", "z3", "z4") for i in range(25))
    one = await plane.queries.ListNodes(pb.ListNodesRequest(zone="z2", page_size=1000))
    assert {found.zone for found in one.nodes} == {"z2"}


async def test_a_label_selector_selects_nodes_zones_and_dpus_page_by_page(plane: Served) -> None:
    for zone in ("z1", "z2", "z3"):
        await plane.join(zone, *(node(f"{zone}-n{i}", tier="web" if i % 3 else "db") for i in range(9)))
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone=zone, dpu=f"{zone}-d"))
        labels = {"row": zone[1:]}
        done = await plane.calls.UpdateZone(pb.UpdateZoneRequest(zone=zone, set_labels=True, labels=labels))
    request = pb.ListNodesRequest(label_selector="tier=db", page_size=2, min_position=done.position)
    names: list[str] = []
    while True:
        page = await plane.queries.ListNodes(request)
        assert len(page.nodes) <= 2
        names += [found.name for found in page.nodes]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert sorted(names) == [f"{zone}-n{i}" for zone in ("z1", "z2", "z3") for i in (0, 3, 6)]
    zones = await plane.queries.ListZones(pb.ListZonesRequest(label_selector="row in (1,3)"))
    assert sorted(zone.zone for zone in zones.zones) == ["z1", "z3"]
    dpus = await plane.queries.ListDpus(pb.ListDpusRequest(label_selector="row,row!=2"))
    assert sorted(dpu.dpu for dpu in dpus.dpus) == ["z1-d", "z3-d"]
    for method, kind in (("ListNodes", pb.ListNodesRequest), ("ListZones", pb.ListZonesRequest)):
        with pytest.raises(grpc.aio.AioRpcError, match="label_selector: 'row in' must be") as refused:
            await getattr(plane.queries, method)(kind(label_selector="row in"))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_dpus_are_registered_driven_and_listed(plane: Served) -> None:
    register = pb.RegisterDpuRequest(zone="z1", dpu="d1", node="n1", serial="MT1", bmc_address="redfish://10.9.0.1")
    assert (await plane.calls.RegisterDpu(register)).outcome == pb.OUTCOME_DONE
    provision = pb.RequestLifecycleRequest(zone="z1", dpu="d1", verb="VERB_PROVISION", image="bundle-2")
    answer = await plane.calls.RequestLifecycle(provision)
    assert answer.outcome == pb.OUTCOME_DONE, answer.reason
    shown = await plane.queries.GetDpu(pb.GetDpuRequest(dpu="d1", min_position=answer.position))
    assert (shown.zone, shown.ordinal, shown.image, shown.serial) == ("z1", 0, "bundle-2", "MT1")
    listed = await plane.queries.ListDpus(pb.ListDpusRequest(zone="z1", phase=shown.phase))
    assert [dpu.dpu for dpu in listed.dpus] == ["d1"]
    nowhere = await plane.calls.RequestLifecycle(pb.RequestLifecycleRequest(zone="z1", dpu="d2", verb="VERB_PAUSE"))
    assert (nowhere.outcome, "'d2'" in nowhere.reason) == (pb.OUTCOME_REFUSED, True)


async def test_pages_of_nodes_with_many_labels_are_short(plane: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.queries.service._LABELS_PER_PAGE", 4)
    await plane.join("z1", *(node(f"n{number}", a="1", b="2") for number in range(5)))
    sizes: list[int] = []
    token = ""
    while not sizes or token:
        found = await plane.queries.ListNodes(pb.ListNodesRequest(zone="z1", page_size=1_000, page_token=token))
        sizes.append(len(found.nodes))
        token = found.next_page_token
    assert sizes == [2, 2, 1]


async def test_pages_of_large_cliques_are_short(plane: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.queries.service._CLIQUE_NODES_PER_PAGE", 3)
    for number in range(5):
        claims = [pb.ClaimSpec(node=f"n{number}-{member}") for member in range(1 + number % 3)]
        answer = await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique=f"c{number}", claims=claims))
    pages: list[list[int]] = []
    token = ""
    while not pages or token:
        wanted = pb.ListCliquesRequest(domain="d", min_position=answer.position, page_token=token)
        found = await plane.queries.ListCliques(wanted)
        pages.append([len(clique.members) for clique in found.cliques])
        token = found.next_page_token
    assert pages == [[1, 2], [3], [1, 2]]


async def test_zones_are_described_frozen_and_shown(plane: Served) -> None:
    await plane.join("z1", node("n1", "10.0.0.1"))
    described = await plane.calls.UpdateZone(
        pb.UpdateZoneRequest(zone="z1", set_labels=True, labels={"tier": "gpu"}, parallel_installs=3)
    )
    assert described.outcome == pb.OUTCOME_DONE, described.reason
    frozen = await plane.calls.FreezeWrites(pb.FreezeWritesRequest(zone="z1"))
    shown = await plane.queries.GetZone(pb.GetZoneRequest(zone="z1", min_position=frozen.position))
    assert (dict(shown.labels), shown.parallel_installs, shown.frozen, shown.nodes) == ({"tier": "gpu"}, 3, True, 1)
    assert (await plane.calls.ThawWrites(pb.ThawWritesRequest(zone="z1"))).outcome == pb.OUTCOME_DONE
    status = await plane.queries.GetStatus(pb.GetStatusRequest())
    assert list(status.frozen) == []


async def test_policies_are_set_listed_and_deleted(plane: Served) -> None:
    await until_members(plane, await plane.join("z1", node("n1", "10.0.0.1", tier="web"), node("n2", "10.0.0.2")))
    spec = pb.PolicySpec(
        name="web",
        action="allow",
        priority=5,
        protocol="tcp",
        ports=[{"first": 443, "last": 443}],
        sources={"tier": "web"},
    )
    answer = await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=spec))
    assert answer.outcome == pb.OUTCOME_DONE, answer.reason
    listed = await plane.queries.ListPolicies(pb.ListPoliciesRequest(min_position=answer.position))
    assert [policy.name for policy in listed.policies] == ["web", "default"]
    assert [(p.first, p.last) for p in listed.policies[0].ports] == [(443, 443)]
    rules = [page async for page in plane.queries.GetRules(pb.GetRulesRequest(zone="z1"))]
    assert next((rule.policy, rule.prefix) for page in rules for rule in page.rules) == ("web", "10.0.0.1/32")
    assert (await plane.calls.DeletePolicy(pb.DeletePolicyRequest(name="web"))).outcome == pb.OUTCOME_DONE


async def test_status_names_the_replica_the_log_and_every_partition(plane: Served) -> None:
    status = await plane.queries.GetStatus(pb.GetStatusRequest())
    (replica,) = status.replicas
    assert (replica.name, list(replica.roles), replica.version) == ("replica-1", ["api"], "1.2.3")
    assert {part.partition for part in replica.partitions} == {
        "fleet/0",
        *(f"{topic}/{number}" for topic in ("zones", "cliques", "resources", "installs") for number in range(3)),
    }
    assert (status.log.engine, status.log.partition_count, status.log_id) == ("embedded", 3, plane.replica.log_id)
    assert not status.halted


async def test_devices_are_requested_from_their_source(plane: Served) -> None:
    plane.held = {"z1": {"d1": Held(1, 7, b"\1\2")}, "z2": {"d2": Held(1, 8, b"\3")}}
    found = [page async for page in plane.queries.ListDevices(pb.ListDevicesRequest(zones=["z1"]))]
    assert [(d.zone, d.dpu, d.version, d.digest) for page in found for d in page.devices] == [("z1", "d1", 7, "0102")]


async def test_the_status_of_a_command_that_never_arrived(plane: Served) -> None:
    soon = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=plane.command_id()))
    assert (soon.outcome, "not in the log yet" in soon.reason) == (pb.OUTCOME_UNKNOWN, True)
    late = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=plane.command_id(late_ms=200_000)))
    assert (late.outcome, "no longer take effect" in late.reason) == (pb.OUTCOME_REFUSED, True)
    expired = await plane.join("z1", node("n1"), command_id=plane.command_id(late_ms=150_000))
    assert (expired.outcome, "expired" in expired.reason) == (pb.OUTCOME_REFUSED, True)


async def test_health_and_reflection_respond(plane: Served) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    health = health_pb2_grpc.HealthStub(plane.channel)
    for service in ("", "dpuplane.v1.Commands", "dpuplane.v1.Queries"):
        found = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert found.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(plane.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for listed in reflection.ServerReflectionInfo(iter([asked])):
        names = {service.name for service in listed.list_services_response.service}
        assert {"dpuplane.v1.Commands", "dpuplane.v1.Queries"} <= names


async def test_policies_holds_and_budgets_are_paged_in_their_order(plane: Served) -> None:
    for name, priority, action in (("c", 5, "allow"), ("b", 5, "drop"), ("a", 5, "allow"), ("z", 90, "allow")):
        policy = pb.PolicySpec(name=name, priority=priority, action=action, sources={"no": "node"})
        answer = await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=policy))
    request = pb.ListPoliciesRequest(page_size=2, min_position=answer.position)
    pages: list[list[str]] = []
    while not pages or request.page_token:
        page = await plane.queries.ListPolicies(request)
        pages.append([policy.name for policy in page.policies])
        request.page_token = page.next_page_token
    assert pages == [["z", "b"], ["a", "c"], ["default"]]
    whole = (await plane.queries.ListBudgets(pb.ListBudgetsRequest())).budgets
    first = await plane.queries.ListBudgets(pb.ListBudgetsRequest(page_size=3))
    rest = await plane.queries.ListBudgets(pb.ListBudgetsRequest(page_token=first.next_page_token))
    assert ([*first.budgets, *rest.budgets], rest.next_page_token) == ([*whole], "")
    for kind in ("Policies", "Holds", "Budgets"):
        with pytest.raises(grpc.aio.AioRpcError, match="page_size: 1001 must be"):
            await getattr(plane.queries, f"List{kind}")(getattr(pb, f"List{kind}Request")(page_size=1_001))


def test_every_unary_list_is_paged() -> None:
    for method in pb.DESCRIPTOR.services_by_name["Queries"].methods:
        if method.name.startswith("List") and not method.server_streaming:
            assert {"page_size", "page_token"} <= {*method.input_type.fields_by_name}
            assert "next_page_token" in method.output_type.fields_by_name

"""Dry runs and explanations through the API: they predict the result, and append nothing."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from pyroaring import BitMap

from drivers.relays.reports import ReportBuffer
from eventstore.avro.codec import encode
from eventstore.log import FLEET_0, INSTALLS
from projections.fleet.tables.zone_table import table
from projections.installs.rows import Level
from projections.rules.rule import Held
from schemas.api import dpuplane_pb2 as pb
from tests.support.eventually import until
from tests.support.served import Served, now_ms, served


def nodes(count: int, **labels: str) -> list[pb.NodeSpec]:
    return [pb.NodeSpec(name=f"n{i}", addresses=[f"10.0.0.{i}"], labels=labels) for i in range(count)]


def policy(name: str = "web", action: str = "allow", **fields: object) -> pb.PolicySpec:
    return pb.PolicySpec(name=name, action=action, protocol="tcp", **fields)  # type: ignore[arg-type]


async def joined(plane: Served, count: int = 8) -> None:
    await plane.join("z1", *nodes(count, tier="web"))
    await until(lambda: len(plane.replica.state(FLEET_0).members.rows) == count)


async def rules_of(plane: Served) -> set[tuple[str, str]]:
    pages = [page async for page in plane.queries.GetRules(pb.GetRulesRequest(zone="z1"))]
    return {(rule.policy, rule.prefix) for page in pages for rule in page.rules}


async def test_a_dry_run_of_a_policy_predicts_its_effect_and_appends_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await joined(plane)
        stated, before = await plane.stated(), await rules_of(plane)
        request = pb.SetPolicyRequest(policy=policy(sources={"tier": "web"}, ports=[pb.PortRange(first=443, last=443)]))
        said = await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=request.policy, dry_run=True))
        assert said.outcome == pb.OUTCOME_DONE and not said.dry_run.budget and not said.HasField("hold")
        (effect,) = said.dry_run.effects
        (rule,) = effect.rules
        assert (effect.zones, effect.zone_count) == (["z1"], 1)
        assert (rule.policy, rule.added, rule.removed) == ("web", ["10.0.0.0/29"], [])
        assert (rule.prefixes_added, rule.prefixes_removed) == (1, 0)
        assert (effect.addresses_allowed, effect.addresses_denied) == (0, 0), (
            "the default policy allows the addresses already"
        )
        assert await plane.stated() == stated and await rules_of(plane) == before
        assert (await plane.calls.SetPolicy(request)).outcome == pb.OUTCOME_DONE
        assert sum((await plane.stated()).values()) == sum(stated.values()) + 1
        assert await rules_of(plane) == before | {("web", "10.0.0.0/29")}


async def test_a_dry_run_predicts_that_a_leave_is_held(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await joined(plane)
        await plane.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-leave", permille=0, min_addresses=1))
        names = ["n0", "n1", "nobody"]
        said = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=names, dry_run=True))
        assert said.outcome == pb.OUTCOME_HELD and not said.HasField("hold")
        assert (said.dry_run.budget, said.dry_run.addresses) == ("denied-by-leave", 2)
        (effect,) = said.dry_run.effects
        (rule,) = effect.rules
        assert rule.removed == ["10.0.0.0/29"] and rule.added == ["10.0.0.2/31", "10.0.0.4/30"]
        assert (effect.addresses_allowed, effect.addresses_denied) == (0, 2), (
            "the six other addresses keep their verdict"
        )
        assert [(item.name, item.outcome) for item in said.items] == [("nobody", pb.OUTCOME_UNCHANGED)]
        real = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=names))
        assert real.outcome == pb.OUTCOME_HELD
        one = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n5"], dry_run=True))
        assert one.outcome == pb.OUTCOME_DONE and not one.dry_run.budget


async def test_a_dry_run_predicts_a_deletion_and_a_refusal(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await joined(plane)
        none = await plane.calls.DeletePolicy(pb.DeletePolicyRequest(name="web", dry_run=True))
        assert none.outcome == pb.OUTCOME_REFUSED and "must be the name of an existing policy" in none.reason
        await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=policy()))
        gone = await plane.calls.DeletePolicy(pb.DeletePolicyRequest(name="web", dry_run=True))
        (effect,) = gone.dry_run.effects
        assert [rule.removed for rule in effect.rules] == [["10.0.0.0/29"]]
        assert (effect.addresses_allowed, effect.addresses_denied) == (0, 0), (
            "the default policy still allows the addresses"
        )
        with pytest.raises(grpc.aio.AioRpcError, match="action"):
            await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=policy(action="maybe"), dry_run=True))
        lost = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["nobody"], dry_run=True))
        assert (lost.outcome, "'nobody' is not in zone 'z1'" in lost.reason) == (pb.OUTCOME_UNCHANGED, True)


async def test_nodes_kept_by_holds_and_conflicts_are_listed(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await joined(plane, 4)
        await plane.join("z2", pb.NodeSpec(name="twin", addresses=["10.0.0.3"]))
        await until(lambda: len(plane.replica.state(FLEET_0).members.rows) == 5)
        await plane.calls.SetBudget(pb.SetBudgetRequest(kind="denied-by-leave", permille=0, min_addresses=0))
        left = await plane.calls.LeaveNodes(pb.LeaveNodesRequest(zone="z1", names=["n0"]))
        assert left.outcome == pb.OUTCOME_HELD
        for zone, names in (("", ["n0", "n1", "n2", "n3", "twin"]), ("z1", ["n0", "n1", "n2", "n3"]), ("z2", ["twin"])):
            listed, token = [], ""
            while True:
                request = pb.ListNodesRequest(zone=zone, page_size=2, page_token=token)
                found = await plane.queries.ListNodes(request)
                listed += found.nodes
                token = found.next_page_token
                if not token:
                    break
            assert sorted(node.name for node in listed) == names
            by_name = {node.name: node for node in listed}
            assert [name for name, node in by_name.items() if node.held] == [name for name in names if name == "n0"]
            conflicts = {"n3": ["twin"], "twin": ["n3"]}
            assert all(list(node.conflicts) == conflicts.get(name, []) for name, node in by_name.items())
        shown = await plane.queries.GetNode(pb.GetNodeRequest(name="n0"))
        assert (shown.held, shown.zone) == (True, "z1")


async def explained(plane: Served, node: str = "n0") -> pb.Explanation:
    found: pb.Explanation = await plane.queries.ExplainAccess(pb.ExplainAccessRequest(node=node, dpu="dpu1"))
    return found


async def report(plane: Served, version: int, level: Level) -> None:
    """Append the report of a relay that the DPU has this version at this level."""
    pending = ReportBuffer()
    pending.reach(version, level, BitMap([0]), now_ms() - 50, now_ms())
    partition = plane.replica.partition_for(INSTALLS, "z1")
    event = pending.event("z1", "relay-1", plane.replica.generation, 1, now_ms())
    end = await plane.log.end(partition)
    await plane.log.append(partition, b"z1", encode(event))
    await plane.replica.wait_for_position(partition, end + 1, timeout_s=60)


async def test_an_explanation_advances_step_by_step_to_the_hardware(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="dpu1", bmc_address="simulated:x"))
        with pytest.raises(grpc.aio.AioRpcError, match="'n0' is not a node of any zone"):
            await explained(plane)
        assert not await rules_of(plane), "a table has no history before its first read"
        await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=policy(zones={"row": "7"})))
        await joined(plane, 4)
        away = await explained(plane)
        assert away.missing_step == "sent" and "not connected" in away.reason
        assert [(a.address, a.prefix, a.policy) for a in away.addresses] == [("10.0.0.0", "10.0.0.0/30", "default")]
        version = table(plane.replica.state(FLEET_0), "z1").version
        plane.held = {"z1": {"dpu1": Held(plane.replica.generation, version - 1, bytes(16))}}
        lags = await explained(plane)
        assert lags.missing_step == "received" and f"needs {lags.steps[2].version or 0}" in lags.reason
        await report(plane, version, Level.APPLIED)
        applied = await explained(plane)
        assert applied.missing_step == "in_hardware"
        assert [step.name for step in applied.steps if step.HasField("reach_time")][-2:] == ["received", "applied"]
        await report(plane, version, Level.IN_HARDWARE)
        whole = await explained(plane)
        assert (whole.missing_step, whole.steps[-1].name, whole.steps[-1].reached) == ("", "in_hardware", True)


async def test_an_explanation_names_the_freeze_the_missing_policy_and_the_version(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="dpu1", bmc_address="simulated:x"))
        await joined(plane, 4)
        await rules_of(plane)
        await plane.join("z1", pb.NodeSpec(name="late", addresses=["10.9.0.1", "fd00::1"]))
        await until(lambda: "late" in plane.replica.state(FLEET_0).members.rows)
        version = table(plane.replica.state(FLEET_0), "z1").version
        late = await explained(plane, "late")
        assert {address.version for address in late.addresses} == {version}
        assert [address.prefix for address in late.addresses] == ["10.9.0.1/32", "fd00::1/128"]
        assert late.steps[2].position == f"fleet/0/{version - 1}"
        await plane.calls.FreezeWrites(pb.FreezeWritesRequest(zone="z1"))
        assert "frozen" in (await explained(plane, "late")).reason
        only = policy("default", sources={"tier": "web"})
        await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=only))
        (hold,) = (await plane.queries.ListHolds(pb.ListHoldsRequest())).holds
        for name in ("bob", "cid"):
            approve = pb.ApproveHoldRequest(hold=hold.hold, hash=hold.hash)
            await plane.calls.ApproveHold(approve, metadata=[("x-dpuplane-as", name)])
        assert (await explained(plane, "late")).missing_step == "intended"
        with pytest.raises(grpc.aio.AioRpcError, match="is not a DPU of any zone"):
            await plane.queries.ExplainAccess(pb.ExplainAccessRequest(node="n0", dpu="other"))

"""RulePolicy objects with stages, as the edge states them to the plane."""

from __future__ import annotations

import asyncio

import pytest

from commands.kubernetes.object_edge import CHECK_S
from eventstore.log import FLEET_0
from projections.staging.plan import StagePlan
from schemas.events import PolicyStaged, StagesRequested
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.memory_plane import plane
from tests.unit.test_object_edge import DROP, Objects

pytestmark = pytest.mark.virtual_clock

STAGING = {"stages": ["1", "row=7", "100%"], "bakeTimeSeconds": 60, "failureBudget": "5%"}


async def test_a_policy_with_stages_is_staged_once_and_stays_undone() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(RULE_POLICY, "p", {**DROP, "staging": STAGING})
        await made.until(lambda: made.fleet().staged is not None, timeout_s=2)
        staged = made.fleet().staged
        assert staged is not None and objects.policies == {}
        assert (staged.policy, staged.requested_by) == ("p", "operator/ann")
        assert staged.plan == StagePlan(("1", "row=7", "100%"), 60_000, "5%")
        await made.until(lambda: objects.said(RULE_POLICY, "p")[0] == "Accepted", timeout_s=2)
        objects.put(RULE_POLICY, "p", {**DROP, "staging": STAGING}, restate="1")
        await made.until(lambda: "has this spec already" in objects.said(RULE_POLICY, "p")[1], timeout_s=2)
        undo = StagesRequested(made.command("p", "dan"), "p", "undo")
        await made.replicas["r1"].submit(FLEET_0, b"", undo, timeout_s=5)
        objects.complete()
        await asyncio.sleep(3 * CHECK_S)
        assert objects.count(PolicyStaged) == 1 and objects.policies == {}


async def test_a_change_of_a_policy_waits_for_the_end_of_a_staged_one() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        objects = Objects(made)
        objects.put(RULE_POLICY, "p", {**DROP, "staging": STAGING})
        await made.until(lambda: made.fleet().staged is not None, timeout_s=2)
        objects.put(RULE_POLICY, "p", {**DROP, "priority": 9})
        objects.put(RULE_POLICY, "q", {**DROP, "staging": STAGING, "state": "Absent"})
        await made.until(lambda: objects.said(RULE_POLICY, "p")[0] == "Waiting", timeout_s=2)
        assert "a change of policy 'p' is staged" in objects.said(RULE_POLICY, "p")[1]
        await made.until(lambda: objects.said(RULE_POLICY, "q")[0] == "Accepted", timeout_s=2)
        undo = StagesRequested(made.command("p", "dan"), "p", "undo")
        await made.replicas["r1"].submit(FLEET_0, b"", undo, timeout_s=5)
        await made.until(lambda: objects.policies == {"p": 9}, timeout_s=3 * CHECK_S)

"""The contract of Host. It runs unchanged against a node of a real API server and a simulated host."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from drivers.hosts.host import DONE, Host, Progress
from projections.kubernetes.node_claims import NodeClaim
from projections.kubernetes.ready_taint import TAINT as READY_TAINT
from projections.resources.host_effects import Effect

PATIENCE_S = 90.0
TAINT = {"key": "example.org/work", "value": "dpu", "effect": "NoSchedule"}


class HostUnderTest(ABC):
    """A host with a workload."""

    host: Host

    @abstractmethod
    async def node(self) -> Mapping[str, Any]:
        """The Node of the host."""

    @abstractmethod
    async def change(self, patch: Mapping[str, Any]) -> None:
        """Change the Node as an operator does, by a merge patch."""

    async def spec(self) -> tuple[bool, list[dict[str, str]]]:
        """Whether the node is cordoned, and its taints but for the one that says so."""
        spec = (await self.node())["spec"]
        taints = [each for each in spec.get("taints") or () if not each["key"].startswith("node.kubernetes.io/")]
        return bool(spec.get("unschedulable")), taints

    async def labels(self) -> dict[str, str]:
        found = (await self.node())["metadata"].get("labels") or {}
        return {key: value for key, value in found.items() if key.startswith("example.org/")}

    async def claims(self) -> list[str]:
        return [key for key in (await self.node())["metadata"].get("annotations") or {} if "dpuplane" in key]


def claim(effect: Effect, uid: str = "u1") -> NodeClaim:
    return NodeClaim(f"h1-{effect.kind.lower()}", "dpf", uid, effect)


async def until_done(call: Callable[[], Awaitable[Progress]], host: Host) -> list[str]:
    """Repeat a call until it is done, as a step does. Returns what it waited for."""
    waited: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            progress = await call()
            if progress == DONE:
                return waited
            waited.append(progress.message)
            try:
                async with asyncio.timeout(1.0):
                    await host.changed()
            except TimeoutError:
                continue


class HostContract(ABC):
    @pytest.fixture
    @abstractmethod
    def tested(self) -> HostUnderTest: ...

    async def test_a_drained_host_is_cordoned_without_workload_and_comes_back(self, tested: HostUnderTest) -> None:
        drain = claim(Effect())
        waited = await until_done(lambda: tested.host.apply(drain), tested.host)
        assert waited and "pods of the host to end" in waited[0]
        assert await tested.spec() == (True, [])
        assert await tested.host.apply(drain) == DONE, "a repeated call does nothing"
        await until_done(lambda: tested.host.lift(drain), tested.host)
        assert await tested.spec() == (False, []) and not await tested.claims()
        assert await tested.host.lift(drain) == DONE

    async def test_a_host_that_an_operator_cordoned_stays_cordoned(self, tested: HostUnderTest) -> None:
        await tested.change({"spec": {"unschedulable": True}})
        drain = claim(Effect())
        await until_done(lambda: tested.host.apply(drain), tested.host)
        await until_done(lambda: tested.host.lift(drain), tested.host)
        assert await tested.spec() == (True, [])
        await tested.change({"spec": {"unschedulable": None}})

    async def test_a_host_that_an_operator_uncordons_is_cordoned_again(self, tested: HostUnderTest) -> None:
        drain = claim(Effect())
        await until_done(lambda: tested.host.apply(drain), tested.host)
        await tested.change({"spec": {"unschedulable": None}})
        await until_done(lambda: tested.host.apply(drain), tested.host)
        assert await tested.spec() == (True, [])
        await until_done(lambda: tested.host.lift(drain), tested.host)

    async def test_a_taint_replaces_that_of_an_operator_until_it_is_lifted(self, tested: HostUnderTest) -> None:
        before = [{**TAINT, "value": "theirs"}, {"key": "example.org/other", "effect": "NoSchedule"}]
        await tested.change({"spec": {"taints": before}})
        taint = claim(Effect("taint", TAINT))
        await until_done(lambda: tested.host.apply(taint), tested.host)
        _, taints = await tested.spec()
        assert TAINT in taints and before[1] in taints and before[0] not in taints
        await until_done(lambda: tested.host.lift(taint), tested.host)
        _, taints = await tested.spec()
        assert sorted(taints, key=str) == sorted(before, key=str)
        await tested.change({"spec": {"taints": []}})

    async def test_labels_are_set_and_put_back(self, tested: HostUnderTest) -> None:
        await tested.change({"metadata": {"labels": {"example.org/a": "theirs"}}})
        label = claim(Effect("customLabel", {"example.org/a": "ours", "example.org/b": "ours"}))
        await until_done(lambda: tested.host.apply(label), tested.host)
        assert await tested.labels() == {"example.org/a": "ours", "example.org/b": "ours"}
        await until_done(lambda: tested.host.lift(label), tested.host)
        assert await tested.labels() == {"example.org/a": "theirs"}

    async def test_a_late_lift_of_an_earlier_maintenance_leaves_that_of_a_later_one(
        self, tested: HostUnderTest
    ) -> None:
        earlier, later = claim(Effect(), "u1"), claim(Effect(), "u2")
        await until_done(lambda: tested.host.apply(earlier), tested.host)
        await until_done(lambda: tested.host.apply(later), tested.host)
        assert await tested.host.lift(earlier) == DONE
        assert await tested.spec() == (True, [])
        await until_done(lambda: tested.host.lift(later), tested.host)
        assert await tested.spec() == (False, []), "the state before the earlier one is put back"

    async def test_a_hold_and_no_effect_change_nothing(self, tested: HostUnderTest) -> None:
        before = await tested.node()
        for kind in ("hold", "noEffect"):
            assert await tested.host.apply(claim(Effect(kind))) == await tested.host.lift(claim(Effect(kind))) == DONE
        assert await tested.node() == before

    async def test_new_workload_is_kept_away_until_the_dpus_are_ready(self, tested: HostUnderTest) -> None:
        other = {"key": "example.org/other", "effect": "NoSchedule"}
        await tested.change({"spec": {"taints": [other]}})
        for _ in range(2):
            await tested.host.keep_taint(is_wanted=True)
            assert await tested.spec() == (False, [other, READY_TAINT])
        for _ in range(2):
            await tested.host.keep_taint(is_wanted=False)
            assert await tested.spec() == (False, [other]) and not await tested.claims()
        await tested.change({"spec": {"taints": []}})

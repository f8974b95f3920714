"""Steps on hosts: DPUs of one host share one drain and one reboot, handshakes wait for people, and nothing is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from drivers.backends.bmc import NeedsOperator
from drivers.backends.simulated_bmc import BmcFaults
from drivers.hosts.host import DONE
from drivers.hosts.unmanaged_host import UnmanagedHost
from drivers.provisioning.maintenance_sweep import UNNEEDED_S
from drivers.provisioning.reboots import REQUESTED_FOR
from projections.kubernetes.node_claims import NodeClaim
from projections.resources import kinds
from projections.resources.host_effects import Effect
from projections.resources.state import ObjectId, Resource
from projections.resources.step_facts import HostRef
from projections.zones.dpus.phases import NODE_EFFECT, NODE_EFFECT_REMOVAL, READY, REBOOTING
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED, POWER_CYCLE_COMMAND, WAIT_FOR_NODE_EFFECT
from tests.support.host_steps import QUIET, HostsPlane
from tests.support.memory_plane import running

pytestmark = pytest.mark.virtual_clock


@asynccontextmanager
async def hosts_plane(faults: BmcFaults = QUIET, seed: int = 1) -> AsyncIterator[HostsPlane]:
    async with running(lambda tasks: HostsPlane(tasks, faults=faults, seed=seed)) as made:
        await made.provision("p1")
        yield made


async def until_ready(made: HostsPlane, *names: str) -> None:
    await made.until(lambda: all(made.dpu(name).phase == READY for name in names), timeout_s=7_200)


async def test_two_dpus_of_a_host_share_one_drain_and_one_reboot() -> None:
    async with hosts_plane() as made:
        names = await made.want("h1", "d1", "d2")
        for name in names:
            await made.request(name, "provision", "image")
        await until_ready(made, *names)
        host = made.host("h1")
        assert host.drains == 1 and [each.was_drained for each in host.reboots] == [True]
        assert not host.is_cordoned and made.object(kinds.DPU_NODE_MAINTENANCE, "h1-drain") is None
        assert host.node == {"metadata": {"name": "h1", "labels": {}, "annotations": {}}, "spec": {}}


async def test_a_second_dpu_that_joins_later_finds_the_host_drained() -> None:
    """The first one does not lift the effect while the other needs it."""
    async with hosts_plane() as made:
        first, second = await made.want("h1", "d1", "d2")
        await made.request(first, "provision", "image")
        await made.until(lambda: made.dpu(first).phase == REBOOTING)
        await made.request(second, "provision", "image")
        await until_ready(made, first, second)
        host = made.host("h1")
        assert host.drains <= 2 and all(each.was_drained for each in host.reboots)
        assert not host.is_cordoned and made.object(kinds.DPU_NODE_MAINTENANCE, "h1-drain") is None


async def test_a_hold_waits_for_the_removal_of_its_annotation() -> None:
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", effect={"hold": True})
        await made.request(name, "provision", "image")
        await made.until(lambda: made.object(kinds.DPU_NODE_MAINTENANCE, "h1-hold") is not None)
        await asyncio.sleep(60)
        assert made.dpu(name).phase == NODE_EFFECT and WAIT_FOR_NODE_EFFECT in made.dpu(name).task
        await made.annotate(kinds.DPU_NODE_MAINTENANCE, "h1-hold", **{WAIT_FOR_NODE_EFFECT: None})
        took_s = await made.until(lambda: made.dpu(name).phase != NODE_EFFECT)
        assert took_s < 0.5, "the release is seen at once"
        await until_ready(made, name)


async def test_an_operator_reboots_the_host_and_says_so_by_removing_the_annotation() -> None:
    async with hosts_plane() as made:
        names = await made.want("h1", "d1", "d2", reboot={"external": {}})
        for name in names:
            await made.request(name, "provision", "image")
        await made.until(lambda: is_asked_to_reboot(made))
        await asyncio.sleep(60)
        assert {made.dpu(name).phase for name in names} == {REBOOTING}
        row = made.object(kinds.DPU_NODE, "h1")
        assert row is not None and len(row.annotations[REQUESTED_FOR].split(",")) == 2, "one reboot for both"
        assert made.host("h1").is_drained
        await made.annotate(kinds.DPU_NODE, "h1", **{EXTERNAL_REBOOT_REQUIRED: None})
        await until_ready(made, *names)
        assert not is_asked_to_reboot(made), "the host is not rebooted again"


async def test_a_host_whose_power_cycle_is_skipped_is_not_rebooted() -> None:
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", annotations={POWER_CYCLE_COMMAND: "skip"})
        await made.request(name, "provision", "image")
        await until_ready(made, name)
        assert made.host("h1").reboots == []


async def test_a_reboot_that_is_skipped_while_it_is_waited_for_is_asked_for_no_longer() -> None:
    async with hosts_plane() as made:
        names = await made.want("h1", "d1", "d2", reboot={"external": {}})
        for name in names:
            await made.request(name, "provision", "image")

        def is_asked() -> bool:
            row = made.object(kinds.DPU_NODE, "h1")
            return row is not None and EXTERNAL_REBOOT_REQUIRED in row.annotations

        await made.until(is_asked)
        await made.annotate(kinds.DPU_NODE, "h1", **{POWER_CYCLE_COMMAND: "skip"})
        await until_ready(made, *names)
        assert not is_asked(), "nobody is asked for a reboot that no DPU needs"


async def test_a_reboot_method_that_changes_while_it_is_waited_for_applies_at_once() -> None:
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", reboot={"external": {}})
        await made.request(name, "provision", "image")
        await made.until(lambda: EXTERNAL_REBOOT_REQUIRED in made.dpu(name).task)
        row = made.object(kinds.DPU_NODE, "h1")
        assert row is not None
        changed = {"dpus": [{"name": "d1"}], "nodeRebootMethod": {"hostAgent": {}}}
        await made.state(kinds.DPU_NODE, "h1", changed, labels=row.labels)
        await until_ready(made, name)
        node = made.object(kinds.DPU_NODE, "h1")
        assert len(made.host("h1").reboots) == 1
        assert node is not None and EXTERNAL_REBOOT_REQUIRED not in node.annotations, "nobody is asked any longer"


@pytest.mark.parametrize(
    "effect",
    [
        {"taint": {"key": "a", "effect": "NoExecute"}},
        {"customLabel": {"maintenance": "yes"}},
        {"customAction": "pod"},
        {"noEffect": True},
    ],
)
async def test_each_effect_is_applied_and_removed(effect: dict[str, object]) -> None:
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", effect=effect)
        await made.request(name, "provision", "image")
        await made.until(lambda: made.dpu(name).phase == REBOOTING)
        node = made.host("h1").node
        assert (node["spec"].get("taints") or node["metadata"]["labels"]) or {*effect} & {"customAction", "noEffect"}
        await until_ready(made, name)
        assert not node["spec"].get("taints") and not node["metadata"]["labels"] and not node["metadata"]["annotations"]
        assert not made.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)


async def test_at_most_as_many_hosts_are_in_maintenance_as_allowed() -> None:
    async with hosts_plane() as made:
        await made.state(kinds.DPF_OPERATOR_CONFIG, "config", {"provisioningController": {"maxUnavailableDPUNodes": 2}})
        names = [name for number in range(5) for name in await made.want(f"h{number}", f"d{number}")]
        most = 0
        for name in names:
            await made.request(name, "provision", "image")
        while not all(made.dpu(name).phase == READY for name in names):
            most = max(most, sum(host.is_cordoned for host in made.simulated.hosts.values()))
            await asyncio.sleep(0.1)
        assert most == 2


async def test_a_deleted_dpu_leaves_no_effect_on_its_host() -> None:
    async with hosts_plane() as made:
        first, _ = await made.want("h1", "d1", "d2", reboot={"external": {}})
        await made.request(first, "provision", "image")
        await made.until(lambda: made.dpu(first).phase == REBOOTING and made.host("h1").is_drained)
        await made.unstate(kinds.DPU_SET, "of-h1")
        await made.request(first, "delete")
        await made.until(lambda: first not in made.zone("z1").dpus.rows)
        assert not made.host("h1").is_cordoned
        assert not made.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)


async def test_a_dpu_whose_end_of_the_effect_was_skipped_does_not_keep_it() -> None:
    async with hosts_plane() as made:
        first, second = await made.want("h1", "d1", "d2", reboot={"none": {}})
        await made.request(first, "provision", "image")
        await made.until(lambda: made.dpu(first).phase == NODE_EFFECT_REMOVAL)
        await made.request(first, "skip")
        await made.until(lambda: made.dpu(first).phase == READY)
        row = made.object(kinds.DPU_NODE_MAINTENANCE, "h1-drain")
        await made.state(kinds.DPU_NODE_MAINTENANCE, "h1-drain", maintenance_spec(row, first))
        await made.request(second, "provision", "image")
        await until_ready(made, second)
        assert not made.host("h1").is_cordoned and not made.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)


def maintenance_spec(row: Resource | None, requestor: str) -> dict[str, object]:
    """The spec of a maintenance that still has a requestor: the skip came before the DPU had left."""
    spec = {"dpuNodeName": "h1", "nodeEffect": {"drain": True}} if row is None else json.loads(row.spec)
    return {**spec, "requestor": [requestor]}


@pytest.mark.parametrize("end", ["skip", "delete"])
async def test_a_maintenance_that_no_step_ends_is_swept(end: str) -> None:
    """The last step on the host is skipped before it did anything: the process that would do it is dead."""
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", reboot={"external": {}})
        await made.request(name, "provision", "image")
        await made.until(lambda: made.dpu(name).phase == REBOOTING and made.host("h1").is_drained)
        made.kill("p1")
        await made.start("p2", "api", acts=False)
        if end == "delete":
            await made.unstate(kinds.DPU_SET, "of-h1")
            await made.request(name, "delete")
        while name in made.zone("z1").dpus.rows and made.dpu(name).phase != READY:
            await made.request(name, "skip")
        assert made.host("h1").is_cordoned
        await made.provision("p3")
        await asyncio.sleep(UNNEEDED_S - 1)
        assert made.host("h1").is_cordoned, "the folds may lag behind"
        await made.until(lambda: made.object(kinds.DPU_NODE_MAINTENANCE, "h1-drain") is None)
        assert made.host("h1").node == {"metadata": {"name": "h1", "labels": {}, "annotations": {}}, "spec": {}}


async def test_a_maintenance_that_a_dpu_or_a_person_needs_is_not_swept() -> None:
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", reboot={"external": {}})
        spec = {"dpuNodeName": "h2", "nodeEffect": {"drain": True}, "requestor": ["a-person", "h2-gone"]}
        await made.state(kinds.DPU_NODE_MAINTENANCE, "h2-drain", spec)
        await made.request(name, "provision", "image")
        await made.until(lambda: made.dpu(name).phase == REBOOTING and made.host("h1").is_drained)
        await asyncio.sleep(10 * UNNEEDED_S)
        assert made.host("h1").is_drained
        row = made.object(kinds.DPU_NODE_MAINTENANCE, "h2-drain")
        assert row is not None and json.loads(row.spec)["requestor"] == ["a-person"]


@pytest.mark.parametrize("effect", [{"drain": True}, {"taint": {"key": "a", "effect": "NoExecute"}}])
async def test_a_deleted_maintenance_leaves_no_effect_on_its_host(effect: dict[str, object]) -> None:
    """A user deletes it while the host is rebooted, so that only the removal of the effect is left."""
    async with hosts_plane() as made:
        (name,) = await made.want("h1", "d1", effect=effect, reboot={"external": {}})
        await made.request(name, "provision", "image")
        await made.until(lambda: is_asked_to_reboot(made))
        (key,) = made.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)
        await made.unstate(kinds.DPU_NODE_MAINTENANCE, key.rpartition("/")[2])
        await made.annotate(kinds.DPU_NODE, "h1", **{EXTERNAL_REBOOT_REQUIRED: None})
        await until_ready(made, name)
        node = made.host("h1").node
        assert not any(node["spec"].values()) and not node["metadata"]["annotations"]


def is_asked_to_reboot(made: HostsPlane) -> bool:
    row = made.object(kinds.DPU_NODE, "h1")
    return row is not None and EXTERNAL_REBOOT_REQUIRED in row.annotations


async def test_a_host_that_the_plane_cannot_reach_is_only_held() -> None:
    host = UnmanagedHost(HostRef(ObjectId("local", kinds.DPU_NODE, "dpf", "h1"), "dpf", is_external=False))
    claim = NodeClaim("h1-hold", "dpf", "u", Effect("hold"))
    assert await host.apply(claim) == await host.lift(claim) == DONE
    with pytest.raises(NeedsOperator, match="nodeEffect: drain needs a node of a Kubernetes cluster"):
        await host.apply(claim._replace(effect=Effect("drain")))


@pytest.mark.parametrize("seed", range(3))
async def test_provisioners_that_die_at_any_time_leave_the_host_drained_once_and_undrained(seed: int) -> None:
    """Each life of a process ends after a random time. Calls are lost, too."""
    faults = BmcFaults(latency_s=0.01, unreachable=0.05, mute=0.05)
    async with hosts_plane(faults, seed=seed) as made:
        names = await made.want("h1", "d1", "d2")
        for name in names:
            await made.request(name, "provision", "image")
        draws = made.rng()
        for number in range(2, 40):
            await asyncio.sleep(draws.uniform(0.05, 1.0))
            if all(made.dpu(name).phase == READY for name in names):
                break
            made.kill(f"p{number - 1}")
            await made.provision(f"p{number}")
        await until_ready(made, *names)
        host = made.host("h1")
        assert len(host.reboots) == 1 and host.reboots[0].was_drained
        assert not host.is_cordoned and not made.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)

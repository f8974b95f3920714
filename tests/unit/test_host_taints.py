"""The taint of hosts whose DPUs do not run their critical services, on simulated hosts."""

from __future__ import annotations

import asyncio

import pytest

from projections.resources import kinds
from projections.resources.host_readiness import READY_MARK
from projections.resources.state import ObjectId
from projections.zones.dpus.phases import READY, REBOOTING
from schemas.resources.dpf.names import CRITICAL_SERVICE, DPU_READY, EXTERNAL_REBOOT_REQUIRED
from tests.support.host_steps import HostsPlane
from tests.support.memory_plane import running

pytestmark = pytest.mark.virtual_clock

TAINT = {"key": DPU_READY, "effect": "NoSchedule"}
SERVICE = {"helmChart": {"source": {"repoURL": "https://example.com", "version": "1", "chart": "network"}}}


def has_taint(made: HostsPlane, host: str = "h1") -> bool:
    return TAINT in (made.host(host).node["spec"].get("taints") or [])


async def report(made: HostsPlane, name: str, phase: str) -> None:
    """Observe the phase of a DPU, as its zone reports that of a wanted one."""
    await made.observe(ObjectId(made.source, kinds.DPU, made.namespace, name), ready=phase == READY, phase=phase)


async def test_a_host_takes_no_new_workload_until_all_its_dpus_are_ready() -> None:
    async with running(HostsPlane) as made:
        await made.provision("p1")
        await made.state(kinds.DPU_SERVICE, "network", SERVICE, labels={CRITICAL_SERVICE: ""})
        names = await made.want("h1", "d1", "d2")
        await made.until(lambda: ("local", "h1") in made.simulated.hosts and has_taint(made))
        await report(made, names[0], READY)
        await asyncio.sleep(5)
        assert has_taint(made), "the other DPU is not ready"
        await report(made, names[1], READY)
        await made.until(lambda: not has_taint(made))
        await report(made, names[1], REBOOTING)
        await made.until(lambda: has_taint(made))
        made.kill("p1")
        await made.provision("p2")
        await report(made, names[1], READY)
        await made.until(lambda: not has_taint(made))
        assert READY_MARK not in made.host("h1").node["metadata"]["annotations"]


async def test_the_taint_goes_with_the_service_the_dpus_or_a_setting() -> None:
    async with running(HostsPlane) as made:
        await made.provision("p1")
        await made.state(kinds.DPU_SERVICE, "network", SERVICE, labels={CRITICAL_SERVICE: ""})
        for host, device in (("h1", "d1"), ("h2", "d2")):
            await made.want(host, device)
            await made.until(lambda host=host: ("local", host) in made.simulated.hosts and has_taint(made, host))  # type: ignore[misc]
        await made.unstate(kinds.DPU_SET, "of-h2")
        await made.until(lambda: not has_taint(made, "h2"))
        assert has_taint(made)
        await made.state(kinds.DPU_SERVICE, "network", SERVICE)
        await made.until(lambda: not has_taint(made))


async def test_a_host_without_critical_services_or_with_the_feature_off_gets_no_taint() -> None:
    async with running(HostsPlane) as made:
        await made.provision("p1")
        off = {"dpuServiceController": {"disableDPUReadyTaints": True}}
        await made.state(kinds.DPF_OPERATOR_CONFIG, "config", off)
        await made.state(kinds.DPU_SERVICE, "network", SERVICE, labels={CRITICAL_SERVICE: ""})
        (name,) = await made.want("h1", "d1", reboot={"external": {}})
        await made.request(name, "provision", "image")
        await made.until(lambda: EXTERNAL_REBOOT_REQUIRED in made.dpu(name).task)
        assert not has_taint(made)
        await made.state(kinds.DPF_OPERATOR_CONFIG, "config", {})
        await made.until(lambda: has_taint(made))

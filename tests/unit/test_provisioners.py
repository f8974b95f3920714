"""Ownership of steps between provisioners, and steps that a single provisioner must end itself."""

from __future__ import annotations

import asyncio

import pytest

from drivers.provisioning.attempts import CallTiming
from drivers.provisioning.provisioner import ProvisionerSettings
from projections.zones.dpus.phases import OS_INSTALLING, PROVISIONING, READY
from schemas.events import StepStarted
from tests.support.memory_plane import plane
from tests.unit.test_provisioner import HOUR_S, QUIET, devices, provisioner

pytestmark = pytest.mark.virtual_clock


async def test_a_provisioner_of_lower_rank_starts_no_step_of_the_first() -> None:
    async with plane() as made:
        await made.add("p1")
        await made.add("p2")
        bmcs = devices(made)
        provisioner(made, "p1", bmcs)
        second = provisioner(made, "p2", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=600)
        await asyncio.sleep(10)
        assert made.count(made.partition("z1"), StepStarted) == len(PROVISIONING)
        assert not second.internal_events.turns


async def test_no_step_of_a_paused_dpu_is_started() -> None:
    """The fold would refuse the start, and the provisioner would append it again each second."""
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.request("d", "pause")
        provisioner(made, "p1", bmcs)
        await asyncio.sleep(600)
        assert made.dpu("d").paused and made.count(made.partition("z1"), StepStarted) == 0
        await made.request("d", "resume")
        await made.until(lambda: made.dpu("d").phase == READY)


async def test_short_gaps_of_a_beacon_do_not_add_up() -> None:
    async with plane() as made:
        await made.add("p1")
        await made.add("p2")
        bmcs = devices(made, QUIET._replace(pace=30.0))
        provisioner(made, "p1", bmcs)
        second = provisioner(made, "p2", bmcs, ProvisionerSettings(lost_after_s=3.0, idle_check_s=0.5))
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == OS_INSTALLING and made.dpu("d").task != "")
        for _ in range(10):
            made.gone.add("p1")
            await asyncio.sleep(2.0)
            made.gone.discard("p1")
            await asyncio.sleep(2.0)
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)
        assert not second.ended


async def test_a_start_that_never_lands_is_appended_again() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        found = provisioner(made, "p1", bmcs)
        await made.register("d")
        made.log.failures.append_latency_s = 0.01
        await made.request("d", "provision", "image-1")
        made.log.failures.late_s[made.partition("z1")] = 10 * HOUR_S
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=600)
        assert found.internal_events.failures == 1


async def test_a_hanging_call_is_cancelled_at_the_deadline_of_its_step() -> None:
    """No call may reach the device after the attempt has ended in the log, even if a call may take longer."""
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        patient = ProvisionerSettings(calls=CallTiming(call_s=10 * HOUR_S))
        found = provisioner(made, "p1", bmcs, patient)
        await made.register("d")
        bmcs.device("d").faults = QUIET._replace(hang=1.0)
        await made.request("d", "provision", "image-1")
        deadline_ms = made.dpu("d").deadline_ms
        await made.until(lambda: made.dpu("d").deadline_ms > deadline_ms)
        await asyncio.sleep((made.dpu("d").deadline_ms - made.now_ms()) / 1_000 - 1)
        assert found.under_way == 1
        await asyncio.sleep(1)
        await made.until(lambda: found.under_way == 0, timeout_s=ProvisionerSettings().landing_s + 1)

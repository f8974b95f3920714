"""Provisioners visit the devices of Ready DPUs whose certificates end soon: once, few at a time, until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest

from deploy.web.metrics import fleet
from deploy.web.metrics.catalog import DEVICE_CERTIFICATE_EXPIRY
from deploy.web.metrics.survey import Survey
from drivers.backends.bmc import Unreachable
from drivers.provisioning.attempts import Attempt
from drivers.provisioning.provisioner import Accepts, Provisioner, ProvisionerSettings
from eventstore.log import FLEET_0
from projections.zones.dpus.certificates import (
    AUTHORITY,
    CERTIFICATE_FACT,
    DAY_MS,
    ENDS_FACT,
    FIRST_RETRY_MS,
    HOUR_MS,
    end_ms,
    visit_ms,
)
from projections.zones.dpus.index import is_stuck
from projections.zones.dpus.phases import CLUSTER, DEVICE, NODE, READY, RELEASE, RENEWAL
from projections.zones.fold import ZonesFold2
from projections.zones.rows import Dpu
from schemas.events import FoldVersionUpgraded, StepFailed, StepStarted, StepSucceeded, WritesFrozen, WritesThawed
from tests.support.memory_plane import Plane, plane
from tests.unit.test_metric_values import values_of

pytestmark = pytest.mark.virtual_clock

SOON_DAYS = 10
"""Days until the end of a certificate whose device is visited at once."""


class Devices:
    """Devices that do every step at once, and get a certificate for a year at a visit. `visited` are the DPUs that were
    visited. A visit first reads from the device, which waits for `answers`, then changes it and waits for `gate`; a
    device that `is_away` does not answer. A certificate ends on `day` if it is given."""

    def __init__(self, made: Plane, days: int) -> None:
        self.visited: list[str] = []
        self.under_way = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_away = False
        self.day = ""
        self._made = made
        self._days = days

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        if attempt.dpu.phase != READY:
            return self._facts(self._days)
        await attempt.call(self.answers.wait, alters=False)
        return await attempt.call(lambda: self._visit(attempt))

    async def _visit(self, attempt: Attempt) -> Mapping[str, str]:
        assert attempt.step.name == "renew-certificate"
        self.visited.append(attempt.name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.gate.wait()
            if self.is_away:
                raise Unreachable("device: it is away")
            await asyncio.sleep(0.05)
            return self._facts(365)
        finally:
            self.under_way -= 1

    def _facts(self, days: int) -> Mapping[str, str]:
        end = datetime.fromtimestamp((self._made.now_ms() + days * DAY_MS) / 1_000, UTC)
        return {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: self.day or f"{end:%Y-%m-%d}"}


def accept_all(dpu: str, row: Dpu) -> bool:
    return True


def provisioner(
    made: Plane,
    name: str,
    devices: Devices,
    *,
    ahead_ms: Callable[[], int] = lambda: 0,
    settings: ProvisionerSettings | None = None,
    accepts: Accepts = accept_all,
) -> Provisioner:
    """A provisioner whose clock is ahead of the log's by `ahead_ms`."""
    found = Provisioner(
        made.replicas[name],
        made.ranks(name),
        dict.fromkeys((DEVICE, NODE, CLUSTER, RELEASE), devices),
        now_ms=lambda: made.now_ms() + ahead_ms(),
        rng=made.rng(),
        settings=settings or ProvisionerSettings(),
        accepts=accepts,
    )
    made.spawn(name, found.run())
    return found


async def installed(made: Plane, *names: str, zone: str = "z1") -> None:
    for name in names:
        await made.register(name, scheme="redfish", zone=zone)
        await made.request(name, "provision", "image-1", zone=zone)
    await made.until(lambda: all(made.dpu(name, zone).phase == READY for name in names), timeout_s=600)


async def later(made: Plane, by_ms: int) -> None:
    """Set all clocks ahead. A record of another DPU shows it to the provisioners of the partition."""
    made.ahead_ms += by_ms
    await made.register(f"at-{made.now_ms()}")
    await asyncio.sleep(2)


async def test_a_device_is_visited_when_it_is_time_and_its_dpu_stays_ready() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, 32)
        found = provisioner(made, "p1", devices)
        await installed(made, "d")
        since, due_ms = made.dpu("d").since, visit_ms("d", made.dpu("d"))
        assert due_ms is not None and due_ms > made.now_ms() + HOUR_MS
        await later(made, due_ms - made.now_ms() - HOUR_MS // 2)
        assert not devices.visited
        await asyncio.sleep(HOUR_MS / 2_000)
        await made.until(lambda: found.ended[READY, "done"] == 1)
        assert (made.dpu("d").phase, made.dpu("d").since, made.dpu("d").step_state) == (READY, since, "idle")
        await later(made, 3 * DAY_MS)
        assert devices.visited == ["d"]


async def test_a_clock_that_was_set_is_noticed_without_a_record() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, 40)
        provisioner(made, "p1", devices)
        await installed(made, "d")
        made.ahead_ms += 30 * DAY_MS
        await asyncio.sleep(ProvisionerSettings().visit_check_s + 10)
        assert devices.visited == ["d"]


async def test_a_partition_is_upgraded_to_the_rules_of_visits_when_it_needs_them() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, 365)
        provisioner(made, "p1", devices)
        await installed(made, "later")
        await later(made, DAY_MS)
        assert made.replicas["p1"].folded(made.partition("z1")).version == 1
        soon = Devices(made, SOON_DAYS)
        await made.add("p2")
        made.kill("p1")
        provisioner(made, "p2", soon)
        await installed(made, "a", "b", "c")
        await made.until(lambda: sorted(soon.visited) == ["a", "b", "c"])
        assert made.replicas["p2"].folded(made.partition("z1")).version == ZonesFold2.version
        assert made.count(made.partition("z1"), FoldVersionUpgraded) == 1


async def test_a_visit_waits_until_every_replica_has_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    async with plane() as made:
        await made.add("p1")
        supported = False
        ranks = made.ranks("p1")
        monkeypatch.setattr(ranks, "all_support", lambda topic, version: supported)
        monkeypatch.setattr(made, "ranks", lambda name: ranks)
        devices = Devices(made, SOON_DAYS)
        provisioner(made, "p1", devices)
        await installed(made, "d")
        await asyncio.sleep(600)
        assert not devices.visited and made.count(made.partition("z1"), FoldVersionUpgraded) == 0
        await made.request("d", "provision", "image-2")
        await made.until(lambda: made.dpu("d").installed == "image-2" and made.dpu("d").phase == READY, timeout_s=30)
        supported = True
        await made.until(lambda: devices.visited == ["d"], timeout_s=120)


async def test_a_partition_that_cannot_be_upgraded_keeps_no_visits_of_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with plane() as made:
        await made.add("p1")
        ranks = made.ranks("p1")
        monkeypatch.setattr(ranks, "all_support", lambda topic, version: False)
        monkeypatch.setattr(made, "ranks", lambda name: ranks)
        other = next(f"y{number}" for number in range(50) if made.partition(f"y{number}") != made.partition("z1"))
        await made.submit(other, FoldVersionUpgraded(made.command(other), ZonesFold2.version))
        devices = Devices(made, SOON_DAYS)
        found = provisioner(made, "p1", devices)
        await installed(made, *(f"d{number}" for number in range(ProvisionerSettings().visits_at_once + 4)))
        await asyncio.sleep(1)
        assert found.under_way == 0, "the wait for an upgrade is no visit"
        await installed(made, "other", zone=other)
        await made.until(lambda: devices.visited == ["other"], timeout_s=ProvisionerSettings().upgrade_s / 2)


async def test_a_provisioner_whose_clock_is_ahead_waits_for_the_time_of_the_log() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, 32)
        ahead_ms = 0
        found = provisioner(made, "p1", devices, ahead_ms=lambda: ahead_ms)
        await installed(made, "d")
        due_ms = visit_ms("d", made.dpu("d"))
        assert due_ms is not None
        ahead_ms = HOUR_MS
        started = made.count(made.partition("z1"), StepStarted)
        await later(made, due_ms - made.now_ms() - HOUR_MS + 60_000)
        await asyncio.sleep((due_ms - made.now_ms()) / 1_000 - 60)
        assert made.count(made.partition("z1"), StepStarted) == started + 1 and not devices.visited
        await made.until(lambda: found.ended[READY, "done"] == 1, timeout_s=120)
        assert made.count(made.partition("z1"), StepStarted) == started + 2
        assert made.now_ms() >= due_ms


async def test_a_retry_ends_the_wait_of_a_provisioner_whose_clock_is_ahead() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, SOON_DAYS)
        devices.is_away = True
        ahead_ms = 0
        found = provisioner(made, "p1", devices, ahead_ms=lambda: ahead_ms)
        await installed(made, "d")
        await made.until(lambda: made.dpu("d").failures == 1)
        started = made.count(made.partition("z1"), StepStarted)
        ahead_ms = HOUR_MS
        await later(made, 1_000)
        await asyncio.sleep(60)
        assert made.count(made.partition("z1"), StepStarted) == started + 1, "a second failure has not come about"
        devices.is_away = False
        await made.request("d", "retry")
        await made.until(lambda: found.ended[READY, "done"] == 1, timeout_s=10)


async def test_a_check_looks_at_few_visits_and_the_next_one_at_others() -> None:
    """Visits that this process cannot do, by the thousand, keep no others waiting and do not block the loop."""
    looked_at: list[str] = []

    def accepts(dpu: str, row: Dpu) -> bool:
        if row.phase == READY:
            looked_at.append(dpu)
        return row.phase != READY or dpu == "last"

    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, SOON_DAYS)
        settings = ProvisionerSettings(visits_examined=5)
        provisioner(made, "p1", devices, settings=settings, accepts=accepts)
        names = [f"d{number:02}" for number in range(23)]
        await installed(made, *names)
        await installed(made, "last")
        await made.until(lambda: devices.visited == ["last"])
        await asyncio.sleep(settings.idle_check_s / 2)
        looked_at.clear()
        await asyncio.sleep(10 * settings.idle_check_s)
        assert sorted({*looked_at}) == names
        assert len(looked_at) <= 11 * settings.visits_examined


async def test_another_provisioner_repeats_the_visit_of_one_that_died() -> None:
    async with plane() as made:
        await made.add("p1")
        await made.add("p2")
        devices = Devices(made, SOON_DAYS)
        provisioner(made, "p1", devices)
        second = provisioner(made, "p2", devices)
        devices.gate.clear()
        await installed(made, "d")
        await made.until(lambda: made.dpu("d").step_state == "running")
        assert made.dpu("d").provisioner.startswith("p1#")
        made.kill("p1")
        await made.until(lambda: made.dpu("d").provisioner.startswith("p2#"), timeout_s=2 * FIRST_RETRY_MS / 1_000)
        devices.gate.set()
        await made.until(lambda: second.ended[READY, "done"] == 1, timeout_s=300)
        assert second.ended[READY, "lost"] == 1 and made.dpu("d").phase == READY
        visits = made.count(made.partition("z1"), StepSucceeded)
        await later(made, DAY_MS)
        assert made.count(made.partition("z1"), StepSucceeded) == visits


async def test_devices_that_are_due_together_are_visited_few_at_a_time() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, SOON_DAYS)
        names = [f"d{number:02}" for number in range(45)]
        found = provisioner(made, "p1", devices)
        devices.gate.clear()
        await installed(made, *names)
        await made.until(lambda: devices.under_way == ProvisionerSettings().visits_at_once)
        await asyncio.sleep(5)
        assert devices.most == ProvisionerSettings().visits_at_once
        devices.gate.set()
        await made.until(lambda: found.ended[READY, "done"] == len(names), timeout_s=300)
        assert sorted(devices.visited) == names and found.under_way == 0


async def test_no_visit_begins_during_a_freeze() -> None:
    async with plane() as made:
        replica = await made.add("p1")
        devices = Devices(made, 31)
        provisioner(made, "p1", devices)
        await installed(made, "d")
        assert visit_ms("d", made.dpu("d")) is not None
        await replica.submit(FLEET_0, b"fleet", WritesFrozen(made.command("z1"), "z1"), timeout_s=5.0)
        await later(made, 17 * DAY_MS)
        assert not devices.visited
        await replica.submit(FLEET_0, b"fleet", WritesThawed(made.command("z1"), "z1"), timeout_s=5.0)
        await made.until(lambda: devices.visited == ["d"])


async def test_a_freeze_during_a_visit_is_no_failure_of_the_device() -> None:
    async with plane() as made:
        replica = await made.add("p1")
        devices = Devices(made, SOON_DAYS)
        devices.answers.clear()
        found = provisioner(made, "p1", devices)
        await installed(made, "d")
        await made.until(lambda: made.dpu("d").step_state == "running")
        await replica.submit(FLEET_0, b"fleet", WritesFrozen(made.command("z1"), "z1"), timeout_s=5.0)
        devices.answers.set()
        await made.until(lambda: made.dpu("d").step_state == "idle", timeout_s=RENEWAL.deadline_ms / 1_000 + 60)
        dpu = made.dpu("d")
        assert (dpu.phase, dpu.failures) == (READY, 0) and not is_stuck(dpu)
        assert dpu.message == "the zone was frozen until the deadline of the visit"
        assert found.ended == {(READY, "lost"): 1} | {key: 1 for key in found.ended if key[0] != READY}
        await asyncio.sleep(FIRST_RETRY_MS / 1_000)
        assert not devices.visited
        await replica.submit(FLEET_0, b"fleet", WritesThawed(made.command("z1"), "z1"), timeout_s=5.0)
        await made.until(lambda: found.ended[READY, "done"] == 1)


async def test_a_device_that_is_away_for_days_costs_few_records_and_is_renewed_when_it_is_back() -> None:
    async with plane() as made:
        await made.add("p1")
        devices = Devices(made, SOON_DAYS)
        devices.is_away = True
        found = provisioner(made, "p1", devices)
        await installed(made, "d")
        for _ in range(5 * 24):
            await later(made, HOUR_MS)
        dpu = made.dpu("d")
        assert dpu.phase == READY and is_stuck(dpu) and dpu.message == "device: it is away"
        assert 8 <= made.count(made.partition("z1"), StepFailed) <= 22
        devices.is_away = False
        await made.request("d", "retry")
        await made.until(lambda: found.ended[READY, "done"] == 1)
        assert not is_stuck(made.dpu("d")) and made.dpu("d").phase == READY
        started = made.count(made.partition("z1"), StepStarted)
        await later(made, 2 * DAY_MS)
        assert made.count(made.partition("z1"), StepStarted) == started


async def expiry_of(made: Plane, survey: Survey) -> dict[tuple[str, ...], float]:
    await survey.walk()
    return values_of(fleet.collect(made.replicas["p1"], survey), DEVICE_CERTIFICATE_EXPIRY)


@pytest.mark.parametrize("day", ["1960-01-01", "1970-01-01"])
async def test_a_certificate_of_a_device_without_a_clock_is_in_the_metric_beside_others(day: str) -> None:
    async with plane() as made:
        survey = Survey(await made.add("p1"), None)
        devices = Devices(made, 100)
        provisioner(made, "p1", devices)
        await installed(made, "healthy")
        devices.day = day
        devices.is_away = True
        await installed(made, "odd")
        (value,) = (await expiry_of(made, survey)).values()
        assert 0 < value < DAY_MS / 1_000, "the alert is about values above 0"


async def test_the_earliest_end_of_a_certificate_is_a_metric() -> None:
    async with plane() as made:
        survey = Survey(await made.add("p1"), None)

        async def expiry() -> dict[tuple[str, ...], float]:
            return await expiry_of(made, survey)

        provisioner(made, "p1", Devices(made, 100))
        assert await expiry() == {(): 0}
        await installed(made, "a")
        first_ms = end_ms(made.dpu("a"))
        assert first_ms is not None
        await later(made, DAY_MS)
        await installed(made, "b")
        assert end_ms(made.dpu("b")) == first_ms + DAY_MS
        assert await expiry() == {(): first_ms / 1_000}
        await made.request("a", "delete")
        await made.until(lambda: "a" not in made.zone("z1").dpus.rows, timeout_s=600)
        assert await expiry() == {(): first_ms / 1_000 + DAY_MS / 1_000}

"""Statuses in a cluster: they follow the folds in few writes, with one replica or several, and through outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from drivers.kubernetes.flip_limit import FLIPS_MAX, WINDOW_S
from drivers.kubernetes.holds import FINISHED_MAX, FINISHED_MS
from drivers.kubernetes.racks import UNKNOWN_MS
from drivers.kubernetes.status import EVERY_S
from schemas.events import ZoneDeleted
from schemas.kubernetes.api import ApiError
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.rule_policy import RULE_POLICY
from tests.support.kubernetes.requests import create
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.statuses import Statuses
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock


class SimulatedStatuses(Statuses):
    """Statuses in a simulated API server, which counts the requests."""

    api: SimulatedApi

    def __init__(self, made: Plane) -> None:
        super().__init__(made, SimulatedApi(Random(1)))

    @property
    def writes(self) -> int:
        return sum(count for (verb, _), count in self.api.requests.items() if verb in ("create", "patch", "delete"))


@asynccontextmanager
async def statuses(*names: str) -> AsyncIterator[SimulatedStatuses]:
    async with plane() as made:
        found = SimulatedStatuses(made)
        await found.install()
        found.api.requests.clear()
        for name in names:
            await found.start(name)
        yield found


def ready(status: dict[str, Any]) -> tuple[str, str]:
    found = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}
    return found.get("Ready", ("", ""))


async def test_each_zone_gets_an_object_with_its_status() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1", "n2")
        await made.plane.join("Rack_2", "n3")
        await asyncio.sleep(5)
        found = await made.objects(DPU_RACK)
        (other,) = found.keys() - {"z1"}
        assert other.startswith("rack-2-") and found[other]["spec"] == {"zone": "Rack_2"}
        assert found["z1"]["spec"] == {} and found["z1"]["status"]["members"] == ["n[1-2]"]
        assert found[other]["status"]["nodes"] == 1
        assert ready(found["z1"]["status"]) == ("True", "NoDPUs")
        assert found["z1"]["status"]["logPosition"]["zones"] > 0
        assert made.writes == 4


async def test_a_status_is_written_at_most_every_15_s_and_never_for_its_position() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(30)
        before = made.writes
        for number in range(60):
            await made.plane.join("z1", f"m{number}")
            await asyncio.sleep(1)
        await asyncio.sleep(2 * EVERY_S)
        status = await made.status(DPU_RACK, "z1")
        assert status["nodes"] == 61 and made.writes - before <= 60 / EVERY_S + 2
        before, position = made.writes, status["logPosition"]
        for _ in range(20):
            await made.plane.join("z1", "n1")
            await asyncio.sleep(2)
        assert made.writes == before, "the log grew, and nothing changed"
        assert (await made.status(DPU_RACK, "z1"))["logPosition"] == position


async def test_a_condition_that_flips_is_written_at_once() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(3)
        await made.plane.join("z1", "n2")
        await asyncio.sleep(2)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 1
        await made.plane.register("d1")
        await asyncio.sleep(2)
        status = await made.status(DPU_RACK, "z1")
        assert (status["nodes"], status["dpus"], ready(status)) == (2, 1, ("False", "Installing"))


@pytest.mark.parametrize("every_s", [0.5, 5.0, EVERY_S - 0.1])
async def test_a_controller_that_writes_a_status_all_the_time_delays_ours_by_a_minute_at_most(every_s: float) -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(30)
        before, foreign, minutes = made.writes, 0, 10
        while foreign * every_s < minutes * 60:
            operations = [{"op": "add", "path": "/status/nodes", "value": 1_000 + foreign}]
            await made.api.patch(DPU_RACK.path(name="z1", subresource="status"), operations, "json")
            foreign += 1
            await asyncio.sleep(every_s)
        assert minutes - 2 <= made.writes - before - foreign <= minutes * 60 / EVERY_S


async def test_another_controller_that_writes_our_conditions_is_not_answered_in_a_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(30)
        right, before = await made.status(DPU_RACK, "z1"), made.writes
        wrong = [{**each, "status": "Unknown"} for each in right["conditions"]]
        foreign = 0
        for _ in range(1_200):
            if (await made.status(DPU_RACK, "z1"))["conditions"] != wrong:
                operations = [{"op": "add", "path": "/status/conditions", "value": wrong}]
                await made.api.patch(DPU_RACK.path(name="z1", subresource="status"), operations, "json")
                foreign += 1
            await asyncio.sleep(0.5)
        minutes = 10
        assert FLIPS_MAX < made.writes - before - foreign <= minutes * (FLIPS_MAX + 60 / EVERY_S)
        assert "another controller may write the status" in caplog.text
        await asyncio.sleep(2 * EVERY_S)
        assert ready(await made.status(DPU_RACK, "z1")) == ("True", "NoDPUs")
        await asyncio.sleep(WINDOW_S)
        await made.plane.register("d1")
        await asyncio.sleep(2)
        assert ready(await made.status(DPU_RACK, "z1")) == ("False", "Installing"), "a later flip is written at once"


async def test_a_deleted_object_is_made_again_and_a_users_own_object_is_used() -> None:
    async with statuses("r1") as made:
        spec = {"zone": "z2", "parallelInstalls": 2}
        await create(made.api, DPU_RACK.path(), {"metadata": {"name": "mine"}, "spec": spec})
        await asyncio.sleep(1)
        await made.plane.join("z1", "n1")
        await made.plane.join("z2", "n2")
        await asyncio.sleep(EVERY_S + 3)
        assert (await made.objects(DPU_RACK)).keys() == {"mine", "z1"}
        assert (await made.status(DPU_RACK, "mine"))["nodes"] == 1
        uid = (await made.objects(DPU_RACK))["z1"]["metadata"]["uid"]
        await made.api.delete(DPU_RACK.path(name="z1"), uid=uid)
        await asyncio.sleep(2)
        found = (await made.objects(DPU_RACK))["z1"]
        assert found["metadata"]["uid"] != uid and found["status"]["nodes"] == 1


async def test_a_new_generation_is_observed() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(3)
        await made.api.patch(DPU_RACK.path(name="z1"), {"spec": {"parallelInstalls": 3}}, "merge")
        await asyncio.sleep(EVERY_S + 3)
        status = await made.status(DPU_RACK, "z1")
        assert status["observedGeneration"] == status["conditions"][0]["observedGeneration"] == 2


async def test_one_of_three_replicas_writes_and_another_follows_when_it_dies() -> None:
    async with statuses("r1", "r2", "r3") as made:
        for number in range(10):
            await made.plane.join(f"z{number}", f"n{number}")
        await asyncio.sleep(5)
        assert len(await made.objects(DPU_RACK)) == 10
        assert made.writes == 20 == made.writers["r1"].counts.writes
        made.plane.kill("r1", beacon=True)
        await made.plane.join("z0", "other")
        await asyncio.sleep(EVERY_S + 5)
        assert (await made.status(DPU_RACK, "z0"))["nodes"] == 2
        assert made.writes == 21 and made.writers["r2"].counts.writes == 1


async def test_replicas_of_equal_rank_do_no_harm() -> None:
    async with statuses("r1", "r2") as made:
        made.plane.gone.update(("r1", "r2"))
        for number in range(5):
            await made.plane.join(f"z{number}", f"n{number}")
        await asyncio.sleep(20)
        assert {name: item["status"]["nodes"] for name, item in (await made.objects(DPU_RACK)).items()} == {
            f"z{number}": 1 for number in range(5)
        }
        before = made.writes
        await asyncio.sleep(120)
        assert made.writes == before


async def test_a_policy_object_shows_whether_it_is_in_force() -> None:
    async with statuses("r1") as made:
        await create(
            made.api, RULE_POLICY.path(), {"metadata": {"name": "p"}, "spec": {"action": "drop", "priority": 1}}
        )
        await made.plane.join("z1", "n1")
        await asyncio.sleep(3)
        assert ready(await made.status(RULE_POLICY, "p")) == ("False", "NotApplied")
        assert (await made.policy("p")).code == "done"
        await asyncio.sleep(3)
        status = await made.status(RULE_POLICY, "p")
        assert ready(status) == ("True", "Applied") and status["version"] > 0
        assert "default" not in await made.objects(RULE_POLICY), "nobody made an object of this policy"


async def test_a_hold_gets_an_object_that_tells_its_end_and_goes_after_an_hour() -> None:
    async with statuses("r1") as made:
        await made.hold()
        await asyncio.sleep(3)
        ((name, found),) = (await made.objects(HOLD)).items()
        number = found["status"]["hold"]
        assert (name, found["status"]["state"]) == (f"hold-{number}", "Open")
        await made.approve(number)
        await asyncio.sleep(3)
        status = await made.status(HOLD, name)
        assert (status["state"], status["subject"]) == ("Approved", "policy")
        await asyncio.sleep(FINISHED_MS / 1_000 - 60)
        assert await made.status(HOLD, name) == status
        await asyncio.sleep(120)
        assert not await made.objects(HOLD)


async def test_a_deleted_hold_object_is_made_again_only_while_the_hold_is_open() -> None:
    async with statuses("r1") as made:
        number = await made.hold()
        await asyncio.sleep(3)
        for is_open in (True, False):
            ((name, found),) = (await made.objects(HOLD)).items()
            if not is_open:
                await made.approve(number)
                await asyncio.sleep(3)
            await made.api.delete(HOLD.path(name=name), uid=found["metadata"]["uid"])
            await asyncio.sleep(3)
            assert bool(await made.objects(HOLD)) == is_open


async def test_an_hour_without_the_api_server_costs_one_write_per_object() -> None:
    async with statuses("r1") as made:
        for number in range(20):
            await made.plane.join(f"z{number}", f"n{number}")
        await asyncio.sleep(20)
        made.api.go_down()
        for step in range(12):
            for number in range(20):
                await made.plane.join(f"z{number}", f"n{number}-{step}")
            await asyncio.sleep(300)
        made.api.requests.clear()
        made.api.faults.is_down = False
        await asyncio.sleep(120)
        assert {item["status"]["nodes"] for item in (await made.objects(DPU_RACK)).values()} == {13}
        assert made.writes == 20


async def test_an_api_server_that_goes_back_in_time_gets_the_present_statuses_again() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(20)
        saved = made.api.save()
        await made.plane.join("z1", "n2")
        await made.plane.join("z2", "n3")
        await asyncio.sleep(60)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 2
        made.api.restore(saved)
        await asyncio.sleep(120)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 2
        assert (await made.status(DPU_RACK, "z2"))["nodes"] == 1


async def test_an_api_server_that_goes_back_unnoticed_by_its_watches_gets_each_status_once() -> None:
    """The answer to a write shows the restore. Without it, the write would be repeated until the watches stall."""
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(20)
        saved = made.api.save()
        for number in range(5):
            await made.plane.join("z1", f"m{number}")
            await asyncio.sleep(EVERY_S)
        made.api.restore(saved, ends_watches=False)
        before = made.writes
        await made.plane.join("z1", "n2")
        await asyncio.sleep(20)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 7
        assert made.writes == before + 1


async def test_a_replica_writes_nothing_while_its_watch_is_interrupted_and_reads_before_it_writes_again() -> None:
    async with statuses("r1", "r2") as made:
        for number in range(10):
            await made.plane.join(f"z{number}", f"n{number}")
        await asyncio.sleep(20)
        interrupted, other = made.edges["r1"], made.edges["r2"]
        is_watching = False
        interrupted.follow(DPU_RACK.plural, lambda: is_watching)
        other.follow(DPU_RACK.plural, lambda: True)
        made.api.stall_watches()
        before = made.writers["r1"].counts.writes, made.writes
        for number in range(10):
            await made.plane.join(f"z{number}", f"m{number}")
        await asyncio.sleep(20)
        assert (made.writers["r1"].counts.writes, made.writes) == (before[0], before[1] + 10)
        is_watching = True
        await asyncio.sleep(10)
        assert made.writes == before[1] + 10, "the watch has not yet delivered the writes of the other replica"


async def test_a_replica_whose_watch_is_late_reads_an_object_before_it_takes_over() -> None:
    async with statuses("r1", "r2") as made:
        await made.plane.join("z1", "n")
        await asyncio.sleep(20)
        before = made.writes
        for number in range(10):
            made.api.stall_watches()
            await made.plane.join("z1", f"m{number}")
            await asyncio.sleep(EVERY_S + 5)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 11
        assert made.writes == before + 10


async def test_a_replica_whose_folds_are_behind_the_object_waits() -> None:
    async with statuses("r1") as made:
        await made.plane.join("z1", "n1")
        await asyncio.sleep(3)
        status = await made.status(DPU_RACK, "z1")
        ahead = {**status, "nodes": 7, "logPosition": {**status["logPosition"], "zones": 10}}
        operations = [{"op": "add", "path": "/status", "value": ahead}]
        await made.api.patch(DPU_RACK.path(name="z1", subresource="status"), operations, "json")
        before = made.writes
        await asyncio.sleep(50)
        edge = made.edges["r1"]
        assert edge.objects_ahead()["dpuracks"] == 0, "another replica may have folded more"
        await asyncio.sleep(20)
        assert made.writes == before and (await made.status(DPU_RACK, "z1"))["nodes"] == 7
        assert edge.objects_ahead() == {"dpuracks": 1, "rulepolicies": 0, "holds": 0}
        for number in range(10):
            await made.plane.join("z1", f"m{number}")
        await asyncio.sleep(30)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 11
        assert edge.objects_ahead()["dpuracks"] == 0


async def test_objects_of_an_earlier_log_are_reported_and_made_again_after_their_deletion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = SimulatedApi(Random(1))
    async with plane() as old:
        made = SimulatedStatuses(old)
        made.api = server
        await made.install()
        await made.start("r1")
        for number in range(10):
            await old.join("z1", f"n{number}")
        await asyncio.sleep(60)
        old.kill("r1")
    async with plane() as new:
        made = SimulatedStatuses(new)
        made.api = server
        edge = await made.start("r1")
        await new.join("z1", "n1")
        await asyncio.sleep(120)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 10, "the API server refuses an earlier position"
        assert edge.objects_ahead()["dpuracks"] == 1
        (said,) = [record.message for record in caplog.records if record.name.endswith("ahead")]
        assert "delete the object, which is then created again" in said
        rack = (await made.objects(DPU_RACK))["z1"]
        await server.delete(DPU_RACK.path(name="z1"), uid=rack["metadata"]["uid"])
        await asyncio.sleep(30)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 1
        assert edge.objects_ahead()["dpuracks"] == 0


@pytest.mark.parametrize("seed", range(3))
async def test_disordered_watches_and_lost_answers_cost_no_further_writes(seed: int) -> None:
    async with statuses("r1", "r2") as made:
        made.api.faults.disorder = Random(seed)
        needed = 0
        for step in range(6):
            for number in range(10):
                await made.plane.join(f"z{number}", f"n{number}-{step}")
            needed += 10 + 10 * (not step)
            made.api.faults.refuse(504, "patch", times=4, is_committed=True)
            made.api.faults.refuse(409, "patch", times=2)
            made.api.faults.refuse(429, "patch", times=2, retry_after_s=1.0)
            await asyncio.sleep(4 * EVERY_S)
            made.api.end_watches(ApiError(0, "Unreachable", "the connection was reset"))
        found = await made.objects(DPU_RACK)
        assert {item["status"]["nodes"] for item in found.values()} == {6}
        confirmed = made.api.requests["patch", 200] + made.api.requests["patch", 504] + made.api.requests["create", 201]
        assert needed <= confirmed <= 1.1 * needed


async def test_more_finished_holds_than_are_kept_go_at_once() -> None:
    async with statuses("r1") as made:
        names = [f"hold-{number}" for number in range(1, FINISHED_MAX + 4)]
        for name in names:
            await create(made.api, HOLD.path(), {"metadata": {"name": name}, "spec": {}})
            finished = {"state": "Ended", "hold": int(name.removeprefix("hold-"))}
            operations = [{"op": "add", "path": "/status", "value": finished}]
            await made.api.patch(HOLD.path(name=name, subresource="status"), operations, "json")
        await create(made.api, HOLD.path(), {"metadata": {"name": "of-a-user"}, "spec": {}})
        await asyncio.sleep(40)
        assert (await made.objects(HOLD)).keys() == {*names[3:], "of-a-user"}


async def delete_zone(made: Plane, zone: str, *nodes: str) -> None:
    assert (await made.leave(zone, *nodes)).outcome.code == "done"
    assert (await made.submit(zone, ZoneDeleted(made.command(zone), zone))).outcome.code == "done"


async def test_the_object_of_a_deleted_zone_says_so_and_is_deleted_an_hour_later() -> None:
    async with statuses("r1", "r2") as made:
        for zone in ("z1", "Rack_2", "back"):
            await made.plane.join(zone, f"n-{zone}")
        await asyncio.sleep(30)
        for zone in ("z1", "Rack_2", "back"):
            await delete_zone(made.plane, zone, f"n-{zone}")
        await asyncio.sleep(30)
        assert ready(await made.status(DPU_RACK, "z1")) == ("False", "ZoneUnknown")
        await asyncio.sleep(UNKNOWN_MS / 2_000)
        await made.plane.join("back", "n-back")
        await asyncio.sleep(UNKNOWN_MS / 2_000 - 90)
        assert len(await made.objects(DPU_RACK)) == 3
        await asyncio.sleep(120)
        assert set(await made.objects(DPU_RACK)) == {"back"}
        assert ready(await made.status(DPU_RACK, "back")) == ("True", "NoDPUs")
        await made.plane.join("z1", "n-z1")
        await asyncio.sleep(30)
        assert (await made.status(DPU_RACK, "z1"))["nodes"] == 1, "created again with its zone"


async def test_the_object_of_a_deleted_zone_stays_if_a_user_created_or_edited_it() -> None:
    async with statuses("r1") as made:
        head = {"apiVersion": DPU_RACK.api_version, "kind": DPU_RACK.name}
        await create(made.api, DPU_RACK.path(), {**head, "metadata": {"name": "of-a-user"}, "spec": {}})
        for zone in ("edited", "labelled"):
            await made.plane.join(zone, f"n-{zone}")
        await asyncio.sleep(30)
        path = DPU_RACK.path(name="edited")
        await made.api.patch(path, [{"op": "add", "path": "/spec/labels", "value": {"row": "7"}}], "json")
        path = DPU_RACK.path(name="labelled")
        await made.api.patch(path, [{"op": "add", "path": "/metadata/labels/team", "value": "x"}], "json")
        for zone in ("edited", "labelled"):
            await delete_zone(made.plane, zone, f"n-{zone}")
        await asyncio.sleep(2 * UNKNOWN_MS / 1_000)
        for name in ("of-a-user", "edited", "labelled"):
            assert ready(await made.status(DPU_RACK, name)) == ("False", "ZoneUnknown"), name

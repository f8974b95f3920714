"""DPUs that objects want: registered, installed, changed and deleted as their objects say, from any phase."""

from __future__ import annotations

from random import Random

import pytest

from eventstore.reasons import Reason
from projections.zones.dpus.phases import (
    DELETING,
    ERROR,
    INITIALIZING,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    OS_INSTALLING,
    PENDING,
    PROVISIONING,
    READY,
)
from tests.support.zones import (
    ZONE,
    ZonesPartition,
    check_dpus,
    derived_of,
    installing,
    reloaded,
    replayed,
    rows_of,
    unavailable,
)


def ready(*dpus: str) -> ZonesPartition:
    """A partition whose wanted DPUs are installed."""
    log = ZonesPartition()
    log.want(*dpus)
    for dpu in dpus:
        log.do_until(dpu, READY)
    return log


def fail(log: ZonesPartition, dpu: str) -> None:
    log.start(dpu)
    log.fail(dpu, "operator")
    assert log.row(dpu).phase == ERROR


def test_a_wanted_dpu_is_registered_and_its_installation_begins() -> None:
    log = ZonesPartition()
    assert log.want("a").code == "done"
    row = log.row("a")
    assert (row.phase, row.image, row.node, row.bmc_address) == (NODE_EFFECT, "i1", "n-a", "simulated:a")
    log.do_until("a", READY)
    assert log.row("a").installed == "i1"


def test_a_dpu_without_a_wanted_image_waits_for_one() -> None:
    log = ZonesPartition()
    log.want("a", image="")
    assert log.row("a").phase == INITIALIZING
    log.want("a", image="i1")
    assert log.row("a").phase == NODE_EFFECT
    log.want("a", image="")
    assert log.row("a").image == "i1", "an image that is not known any more changes nothing"


def test_a_record_is_accepted_only_where_the_last_one_ended() -> None:
    log = ZonesPartition()
    log.want("a", from_offset=0, to_offset=5)
    for first, last in ((0, 5), (0, 9), (5, 4), (6, 9)):
        told = log.want("a", image="old", from_offset=first, to_offset=last)
        assert (told.code, told.reason_code) == ("refused", Reason.OUT_OF_ORDER)
    assert log.row("a").image == "i1"
    assert log.want("b", from_offset=5, to_offset=5).code == "done", "a second record of the same range"
    assert log.want("c", cause_partition=1, from_offset=0, to_offset=1).code == "done", "each partition has a mark"
    assert (log.state.wanted_before(0), log.state.wanted_before(1)) == (5, 1)


@pytest.mark.parametrize("phase", [INITIALIZING, PENDING, *PROVISIONING, READY, ERROR])
def test_another_image_is_installed_from_every_phase(phase: str) -> None:
    log = ZonesPartition()
    if phase == PENDING:
        log.limit(1, 1)
        log.want("first")
    log.want("a", image="" if phase == INITIALIZING else "i1")
    if phase == ERROR:
        fail(log, "a")
    elif phase not in (INITIALIZING, PENDING):
        log.do_until("a", phase)
    if log.row("a").step_state == "open":
        log.start("a")
    attempt = log.row("a").attempt
    log.want("a", image="i2")
    assert (log.row("a").phase, log.row("a").image) == (PENDING if phase == PENDING else NODE_EFFECT, "i2")
    if phase == PENDING:
        log.do_until("first", READY)
    assert log.succeed("a", attempt=attempt).code == "refused", "the earlier attempt has ended"
    log.do_until("a", READY)
    assert log.row("a").installed == "i2"


def test_an_undone_change_that_did_not_alter_the_device_only_returns_the_node() -> None:
    log = ready("a")
    log.want("a", image="i2")
    assert log.row("a").phase == NODE_EFFECT
    log.want("a", image="i1")
    assert log.row("a").phase == NODE_EFFECT_REMOVAL
    log.do_step("a")
    assert (log.row("a").phase, log.row("a").installed) == (READY, "i1")


def test_an_undone_change_that_altered_the_device_installs_it_again() -> None:
    log = ready("a")
    log.want("a", image="i2")
    log.do_until("a", OS_INSTALLING)
    log.want("a", image="i1")
    assert (log.row("a").phase, log.row("a").installed) == (NODE_EFFECT, "")


def test_the_same_statement_again_changes_nothing() -> None:
    log = ready("a")
    before = rows_of(log.state)
    mark = log.state.wanted_before(0)
    assert log.want("a", from_offset=mark, to_offset=mark).code == "unchanged"
    assert rows_of(log.state) == before


def test_limits_hold_for_a_crowd_and_the_queue_advances() -> None:
    log = ZonesPartition()
    log.limit(3, 2)
    names = [f"d{number}" for number in range(10)]
    log.want(*names)
    check_dpus(log.state)
    assert [log.row(name).phase for name in names].count(NODE_EFFECT) == 2
    while waiting := [name for name in names if log.row(name).phase != READY]:
        for name in waiting:
            if log.row(name).step_state == "open":
                log.do_step(name)
        assert len({log.row(name).node for name in names if log.row(name).effect}) <= 2
    assert derived_of(reloaded(log.state)) == derived_of(log.state)


def test_a_dpu_that_its_object_wants_no_more_is_deleted() -> None:
    log = ready("a")
    assert log.want("a", zone="").code == "done"
    assert log.row("a").phase == DELETING
    assert "a" not in log.state.wanted.rows
    log.do_step("a")
    assert "a" not in log.state.dpus.rows


def test_a_dpu_that_is_wanted_again_while_it_is_deleted_is_registered_anew() -> None:
    log = ready("a")
    log.want("a", zone="")
    log.want("a", image="i2")
    assert log.row("a").phase == DELETING
    log.do_step("a")
    assert (log.row("a").phase, log.row("a").image, log.row("a").installed) == (NODE_EFFECT, "i2", "")


def test_a_wanted_dpu_that_an_operator_deletes_is_installed_anew() -> None:
    log = ready("a")
    ordinal = log.row("a").ordinal
    log.request("a", "delete")
    log.do_step("a")
    assert (log.row("a").phase, log.row("a").installed) == (NODE_EFFECT, "")
    assert log.row("a").ordinal != ordinal, "reports about the earlier DPU must not count for the new one"
    check_dpus(log.state)


def test_dpus_of_operators_stay_theirs() -> None:
    log = ZonesPartition()
    log.register("a", bmc="simulated:a")
    told = log.want("a")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_REGISTERED)
    assert log.want("a", zone="").code == "unchanged"
    assert log.row("a").phase == INITIALIZING
    log.want("b")
    told = log.register("b", bmc="simulated:c")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_WANTED)
    assert log.row("b").bmc_address == "simulated:b"


def test_an_object_cannot_take_the_dpu_of_another() -> None:
    log = ready("a")
    told = log.want("a", object_="east/DPU.p/dpf/a", image="i2")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_WANTED)
    assert log.want("a", object_="east/DPU.p/dpf/a", zone="").code == "unchanged"
    assert log.row("a").phase == READY


def test_a_move_to_another_zone_waits_for_the_deletion() -> None:
    log = ready("a")
    told = log.want("a", zone="z2")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_IN_OTHER_ZONE)
    log.want("a", zone="")
    log.do_step("a")
    assert log.want("a", zone="z2").code == "done"
    assert log.row("a").zone == "z2"


def test_another_node_takes_effect_once_the_former_is_in_service() -> None:
    log = ZonesPartition()
    log.want("a")
    log.want("a", nodes=["other"])
    assert (log.row("a").node, log.row("a").effect) == ("n-a", True)
    log.do_until("a", READY)
    assert log.row("a").node == "other"


def test_another_card_is_reported_and_another_address_is_used() -> None:
    log = ZonesPartition()
    log.want("a", serials=["s"])
    log.do_until("a", READY)
    log.want("a", serials=["s"], bmc_addresses=["simulated:x"])
    assert (log.row("a").phase, log.row("a").bmc_address) == (READY, "simulated:x")
    log.want("a", serials=["t"])
    assert (log.row("a").phase, log.row("a").serial, log.row("a").installed) == (ERROR, "t", "")
    log.want("a", serials=["t"], image="i2")
    assert (log.row("a").phase, log.row("a").image) == (NODE_EFFECT, "i2")


def test_an_operator_can_pause_and_abort_without_a_fight() -> None:
    log = ready("a")
    log.want("a", image="i2")
    log.request("a", "abort")
    log.do_step("a")
    assert (log.row("a").phase, log.row("a").installed) == (READY, "i1")
    mark = log.state.wanted_before(0)
    log.want("a", image="i2", from_offset=mark, to_offset=mark)
    assert log.row("a").phase == READY, "the object wants nothing new"
    log.want("a", image="i3")
    assert log.row("a").phase == NODE_EFFECT


def test_some_items_of_a_record_can_be_refused_alone() -> None:
    log = ZonesPartition()
    log.register("a", zone=ZONE)
    told = log.want("a", "b")
    assert told.code == "done"
    assert [(item.name, item.code) for item in told.items] == [("a", "refused")]
    assert log.row("b").phase == NODE_EFFECT


@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_of_records_limits_hold_and_a_restart_changes_nothing(seed: int) -> None:
    rng, log = Random(seed), ZonesPartition()
    log.limit(2, 2)
    names = [f"d{number}" for number in range(6)]
    reached = set()
    for _ in range(800):
        log.now_ms += rng.choice([0, 1_000, 60_000])
        name = rng.choice(names)
        row = log.state.dpus.rows.get(name)
        if row is None or rng.random() < 0.02:
            some = rng.sample(names, rng.choice([1, 1, 4]))
            log.want(*some, zone=rng.choice([ZONE, ZONE, ZONE, ""]), image=rng.choice(["", "i1", "i2"]))
        elif row.step_state == "idle" or rng.random() < 0.02:
            log.request(
                name, rng.choice(["provision", "pause", "resume", "resume", "retry", "skip", "abort", "delete"])
            )
        elif row.step_state == "open":
            log.wait_for_backoff(name)
            log.start(name)
        elif rng.random() < 0.85:
            log.succeed(name)
        else:
            log.fail(name, rng.choice(["transient", "device", "operator", "lost"]))
        check_dpus(log.state)
        assert len(installing(log.state)) <= 2
        assert len(unavailable(log.state)) <= 2
        reached |= {row.phase for row in log.state.dpus.rows.values()}
    assert reached >= {PENDING, NODE_EFFECT, READY, DELETING}
    assert rows_of(replayed(log)) == rows_of(log.state)
    assert derived_of(reloaded(log.state)) == derived_of(log.state)


def test_dpus_of_one_record_queue_in_one_order_before_and_after_a_restart() -> None:
    log = ZonesPartition()
    log.limit(1, 9)
    log.want("c", "a", "d", "b")
    assert installing(log.state) == ["a"]
    assert derived_of(log.state) == derived_of(reloaded(log.state))
    log.do_until("a", READY)
    assert installing(log.state) == ["b"]


def test_a_statement_without_an_image_leaves_the_wanted_one() -> None:
    log = ready("a")
    log.want("a", image="i2")
    log.want("a", image="", nodes=["other"])
    assert log.state.wanted.rows["a"].image == log.row("a").image == "i2"
    fail(log, "a")
    log.want("a", image="i2", nodes=["other"])
    assert log.row("a").phase == ERROR, "the same image is not installed a second time"


def test_a_dpu_whose_deletion_failed_is_still_in_its_zone() -> None:
    log = ready("a")
    log.want("a", zone="")
    fail(log, "a")
    told = log.want("a", zone="z2")
    assert (told.code, told.reason_code) == ("refused", Reason.DPU_IN_OTHER_ZONE)
    assert log.want("a").code == "done", "it is registered anew once it is gone"
    log.request("a", "retry")
    log.do_step("a")
    assert (log.row("a").phase, log.row("a").zone) == (NODE_EFFECT, ZONE)


def test_a_dpu_of_an_operator_that_is_being_deleted_is_not_wanted_in_another_zone() -> None:
    log = ZonesPartition()
    log.register("a", bmc="simulated:a")
    log.request("a", "delete")
    assert log.want("a", zone="z2").reason_code == Reason.DPU_IN_OTHER_ZONE
    log.do_step("a")
    assert log.want("a", zone="z2").code == "done"
    assert log.row("a").zone == "z2"

"""Admission to installs: the queue, the two limits, and nodes that stay out of service after a failure."""

from __future__ import annotations

import pytest

from projections.zones.dpus import rollout
from projections.zones.dpus.phases import (
    ERROR,
    INITIALIZE_INTERFACE,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    OS_INSTALLING,
    PENDING,
    READY,
)
from tests.support.zones import ZonesPartition, installing, unavailable


def zone_of(count: int, *, installs: int, nodes: int, per_node: int = 1) -> ZonesPartition:
    """A partition with the DPUs d0, d1, ... on nodes n0, n1, ... under these limits."""
    log = ZonesPartition()
    log.limit(installs, nodes)
    for i in range(count):
        log.register(f"d{i}", node=f"n{i // per_node}")
    return log


def provision(log: ZonesPartition, *numbers: int) -> list[tuple[str, int]]:
    """Request a provision of each DPU. Returns the code and queue position of each."""
    outcomes = [log.request(f"d{i}", "provision", "image-1") for i in numbers]
    return [(outcome.code, outcome.result.get("queue_position", 0)) for outcome in outcomes]


def test_a_dpu_beyond_a_limit_waits_in_the_queue_with_the_reason() -> None:
    log = zone_of(4, installs=2, nodes=10)
    assert provision(log, 3, 1, 0) == [("done", 0), ("done", 0), ("waiting", 1)]
    outcome = log.request("d2", "provision", "image-1")
    assert (outcome.code, outcome.result) == ("waiting", {"queue_position": 2})
    assert outcome.reason == "parallel_installs: 2 DPUs of zone 'z1' are being installed, the limit"
    again = log.request("d2", "provision", "image-2")
    assert (again.code, again.result["queue_position"], log.row("d2").image) == ("waiting", 2, "image-2")


def test_the_next_dpu_in_the_queue_starts_when_an_install_ends() -> None:
    log = zone_of(3, installs=1, nodes=10)
    provision(log, 0, 1, 2)
    log.do_until("d0", NODE_EFFECT_REMOVAL)
    assert (log.row("d1").phase, log.row("d2").phase) == (NODE_EFFECT, PENDING)
    log.do_until("d0", READY)
    log.request("d1", "delete")
    assert log.row("d2").phase == NODE_EFFECT


def test_a_failure_frees_the_install_slot_but_not_the_node() -> None:
    log = zone_of(3, installs=1, nodes=2)
    provision(log, 0, 1, 2)
    for name in ("d0", "d1"):
        log.start(name)
        log.fail(name, "operator")
    assert [log.row(f"d{i}").phase for i in range(3)] == [ERROR, ERROR, PENDING]
    assert unavailable(log.state) == {"n0", "n1"}
    outcome = log.request("d2", "provision", "image-2")
    assert outcome.reason == "unavailable_nodes: 2 nodes of zone 'z1' are out of service, the limit"
    log.request("d0", "abort")
    log.do_step("d0")
    assert log.row("d2").phase == NODE_EFFECT


def test_a_dpu_whose_node_is_out_of_service_goes_first() -> None:
    log = zone_of(4, installs=1, nodes=10)
    provision(log, 0, 1)
    log.start("d0")
    log.fail("d0", "operator")
    assert log.row("d1").phase == NODE_EFFECT
    provision(log, 2)
    outcome = log.request("d0", "retry")
    assert (outcome.code, outcome.result) == ("waiting", {"queue_position": 1})
    log.request("d1", "delete")
    assert (log.row("d0").phase, log.row("d2").phase) == (NODE_EFFECT, PENDING)


def test_dpus_of_one_node_count_as_one_node_out_of_service() -> None:
    log = zone_of(4, installs=10, nodes=1, per_node=2)
    assert provision(log, 0, 2, 1) == [("done", 0), ("waiting", 1), ("done", 0)]
    log.do_until("d0", READY)
    assert unavailable(log.state) == {"n0"}
    log.do_until("d1", READY)
    assert installing(log.state) == ["d2"]


def test_a_dpu_without_a_node_counts_as_one() -> None:
    log = ZonesPartition()
    log.limit(10, 1)
    log.register("a")
    log.register("b")
    assert log.request("a", "provision", "i").code == "done"
    assert log.request("b", "provision", "i").code == "waiting"


def test_a_paused_dpu_keeps_its_queue_place_and_others_pass_it() -> None:
    log = zone_of(4, installs=1, nodes=10)
    provision(log, 0, 1, 2)
    assert log.request("d1", "pause").reason == "dpu: 'd1' is paused"
    log.request("d0", "delete")
    assert (log.row("d1").phase, log.row("d2").phase) == (PENDING, NODE_EFFECT)
    provision(log, 3)
    assert log.request("d1", "resume").result["queue_position"] == 1
    log.request("d2", "delete")
    assert (log.row("d1").phase, log.row("d3").phase) == (NODE_EFFECT, PENDING)


def test_raised_limits_admit_as_many_as_they_permit() -> None:
    log = zone_of(6, installs=1, nodes=1)
    provision(log, *range(6))
    log.limit(4, -1)
    assert installing(log.state) == ["d0"]
    log.limit(-1, 3)
    assert installing(log.state) == ["d0", "d1", "d2"]
    log.limit(0, 0)
    assert len(installing(log.state)) == 6


def test_lowered_limits_stop_no_running_install() -> None:
    log = zone_of(4, installs=3, nodes=3)
    provision(log, 0, 1, 2, 3)
    log.limit(1, 1)
    log.do_until("d0", OS_INSTALLING)
    assert installing(log.state) == ["d0", "d1", "d2"]
    for name in ("d0", "d1"):
        log.do_until(name, READY)
    assert log.row("d3").phase == PENDING
    log.do_until("d2", READY)
    assert log.row("d3").phase == NODE_EFFECT


def test_a_dpu_that_skips_its_node_effect_still_counts_its_node() -> None:
    """The node once counted only in the record that admitted the DPU, so the next DPU waited for a free slot."""
    log = zone_of(3, installs=1, nodes=2)
    log.register("d0", node="n0", serial="the first card")
    provision(log, 0)
    log.do_until("d0", READY)
    provision(log, 2)
    log.register("d0", node="n0", serial="another card")
    assert log.request("d0", "skip").code == "waiting"
    assert provision(log, 1) == [("waiting", 2)]
    log.limit(5, -1)
    assert (log.row("d0").phase, log.row("d0").effect) == (INITIALIZE_INTERFACE, True)
    assert unavailable(log.state) == {"n0", "n2"}
    assert log.row("d1").phase == PENDING, "both permitted nodes are out of service"
    log.do_until("d0", READY)
    assert log.row("d1").phase == NODE_EFFECT


def test_zones_do_not_wait_for_one_another() -> None:
    log = ZonesPartition()
    for zone in ("z1", "z2"):
        log.limit(1, 1, zone=zone)
        log.register(f"{zone}-d", zone=zone)
        assert log.request(f"{zone}-d", "provision", "i", zone=zone).code == "done"


def test_a_step_that_frees_no_slot_does_not_read_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DPU in Error leaves room under the limit of installs and none under the limit of nodes; all others wait."""
    log = zone_of(5, installs=2, nodes=2)
    provision(log, *range(5))
    log.start("d0")
    log.fail("d0", "operator")

    def fail_on_read(*_: object) -> None:
        raise AssertionError("the queue was read")

    monkeypatch.setattr(rollout, "_queued", fail_on_read)
    log.start("d1")
    assert log.progress("d1", "draining", 10).code == "done"
    log.fail("d1")
    assert log.row("d1").step_state == "open"


def test_a_dpu_that_joins_the_queue_does_not_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for installs and none for nodes out of service, so no DPU in the queue can be admitted."""
    log = zone_of(6, installs=9, nodes=1)
    assert provision(log, 0, 1, 2) == [("done", 0), ("waiting", 1), ("waiting", 2)]

    def fail_on_read(*_: object) -> None:
        raise AssertionError("the queue was read")

    monkeypatch.setattr(rollout, "_queued", fail_on_read)
    assert provision(log, 3, 4) == [("waiting", 3), ("waiting", 4)]
    log.do_step("d0")
    log.request("d2", "delete")
    log.register("d6", node="n0")
    assert provision(log, 6, 5) == [("done", 0), ("waiting", 4)]

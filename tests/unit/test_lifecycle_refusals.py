"""Refusals of the lifecycle, and transitions at the edges of its rules."""

from __future__ import annotations

import pytest

from eventstore.folding.fold import RecordMetadata
from projections.attempt_limits import DEFAULT_LIMITS
from projections.zones.dpus.lifecycle import MAX_ATTEMPTS, Trigger, backoff_ms, transition
from projections.zones.dpus.phases import (
    DELETING,
    ERROR,
    INITIALIZING,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    OS_INSTALLING,
    PENDING,
    READY,
)
from projections.zones.rows import Dpu
from tests.support.zones import PARTITION, START_MS, ZonesPartition

AT = RecordMetadata(PARTITION, 9, START_MS, START_MS)


def provisioned() -> ZonesPartition:
    log = ZonesPartition()
    log.register("d", node="n", serial="s")
    log.request("d", "provision", "image-1")
    return log


def row_in(phase: str, **fields: object) -> Dpu:
    row = provisioned().row("d")
    values = {name: getattr(row, name) for name in row.__struct_fields__} | {"phase": phase} | fields
    return Dpu(**values)


@pytest.mark.parametrize(
    ("row", "trigger", "reason"),
    [
        (
            row_in(INITIALIZING, image=""),
            Trigger("provision", AT),
            "image: '' must name an image for dpu 'd', which has none yet",
        ),
        (
            row_in(NODE_EFFECT, step_state="running", attempt=3, provisioner="p1"),
            Trigger("started", AT, attempt=4),
            "attempt: 4 of dpu 'd' must wait for attempt 3 of 'p1'",
        ),
        (
            row_in(NODE_EFFECT, step_state="open", attempt=3),
            Trigger("started", AT, attempt=5),
            "attempt: 5 of dpu 'd' must be 4",
        ),
        (
            row_in(NODE_EFFECT, step_state="open", attempt=3, not_before_ms=START_MS + 1),
            Trigger("started", AT, attempt=4),
            f"attempt: 4 of dpu 'd' must not start before {START_MS + 1}",
        ),
        (
            row_in(NODE_EFFECT, step_state="running", attempt=3),
            Trigger("progressed", AT, attempt=2),
            "attempt: 2 of dpu 'd' has ended",
        ),
        (
            row_in(NODE_EFFECT, step_state="open", attempt=3),
            Trigger("lost", AT, attempt=3),
            "attempt: 3 of dpu 'd' has ended",
        ),
    ],
)
def test_a_statement_out_of_order_is_refused_with_the_reason(row: Dpu, trigger: Trigger, reason: str) -> None:
    assert transition("d", row, trigger) == reason


def test_an_attempt_may_start_at_the_exact_end_of_its_wait() -> None:
    row = row_in(NODE_EFFECT, step_state="open", attempt=3, not_before_ms=START_MS)
    started = transition("d", row, Trigger("started", AT, attempt=4, provisioner="p"))
    assert isinstance(started, Dpu)
    assert (started.step_state, started.attempt, started.provisioner, started.not_before_ms) == ("running", 4, "p", 0)


def test_a_new_attempt_shows_no_progress_of_the_one_before() -> None:
    log = provisioned()
    log.start("d")
    log.progress("d", "task-9", 40)
    assert (log.row("d").task, log.row("d").percent) == ("task-9", 40)
    log.fail("d", "lost")
    log.start("d", "p2")
    assert log.row("d").percent == 0


def test_a_provision_request_in_the_queue_changes_the_image_and_restarts_the_steps() -> None:
    row = row_in(PENDING, image="old", resume=OS_INSTALLING)
    changed = transition("d", row, Trigger("provision", AT, image="new"))
    assert isinstance(changed, Dpu)
    assert (changed.phase, changed.image, changed.resume) == (PENDING, "new", NODE_EFFECT)


def test_a_provision_request_without_an_image_uses_the_last_image() -> None:
    changed = transition("d", row_in(READY, image="last"), Trigger("provision", AT))
    assert isinstance(changed, Dpu)
    assert (changed.phase, changed.image) == (PENDING, "last")


@pytest.mark.parametrize("name", ["failed", "lost"])
def test_only_the_last_permitted_attempt_ends_in_error(name: str) -> None:
    most = MAX_ATTEMPTS + sum(DEFAULT_LIMITS)
    for attempts, phase in ((most - 1, NODE_EFFECT), (most, ERROR)):
        row = row_in(NODE_EFFECT, step_state="running", attempt=99, entered=99 - attempts)
        after = transition("d", row, Trigger(name, AT, attempt=99, kind="transient", message="m"))
        assert isinstance(after, Dpu)
        assert (after.phase, after.message) == (phase, "m")


def test_a_swap_deletes_the_facts_of_the_former_card() -> None:
    facts = {"boot_id": "1"}
    row = row_in(OS_INSTALLING, installed="image-1", facts=facts)
    after = transition("d", row, Trigger("swapped", AT, serial="t"))
    assert isinstance(after, Dpu)
    assert (after.phase, after.resume, after.installed, after.facts, after.swapped) == (
        ERROR,
        NODE_EFFECT,
        "",
        {},
        True,
    )
    assert after.message == "serial: 't' is another card than the one provisioned; retry provisions it"
    unknown = transition("d", row_in(OS_INSTALLING, facts={}, swapped=False), Trigger("swapped", AT, serial="t"))
    assert isinstance(unknown, Dpu)
    assert not unknown.swapped


def test_a_swap_in_the_queue_restarts_the_steps() -> None:
    after = transition("d", row_in(PENDING, resume=OS_INSTALLING, facts={"a": "b"}), Trigger("swapped", AT, serial="t"))
    assert isinstance(after, Dpu)
    assert (after.phase, after.resume, after.serial, after.swapped) == (PENDING, NODE_EFFECT, "t", True)


def test_a_swap_does_not_end_a_deletion() -> None:
    for row in (row_in(DELETING), row_in(ERROR, resume=DELETING)):
        after = transition("d", row, Trigger("swapped", AT, serial="t"))
        assert isinstance(after, Dpu)
        assert (after.phase, after.resume, after.serial) == (row.phase, row.resume, "t")


def test_a_retry_of_a_step_with_a_queue_waits_in_the_queue() -> None:
    """The row keeps the phase in which the DPU continues after the queue."""
    after = transition("d", row_in(ERROR, resume=OS_INSTALLING), Trigger("retry", AT))
    assert isinstance(after, Dpu)
    assert (after.phase, after.resume, after.step_state) == (PENDING, OS_INSTALLING, "idle")


def test_an_abort_in_the_queue_returns_a_node_that_is_out_of_service() -> None:
    """This happens to a DPU whose install failed and whose retry was requested while the zone was full."""
    row = row_in(PENDING, effect=True, image="new", installed="old", resume=OS_INSTALLING)
    after = transition("d", row, Trigger("abort", AT))
    assert isinstance(after, Dpu)
    assert (after.phase, after.image, after.step_state) == (NODE_EFFECT_REMOVAL, "old", "open")


def test_the_shortest_backoff_is_one_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKOFF_MS", "LONGEST_BACKOFF_MS"):
        monkeypatch.setattr(f"projections.zones.dpus.lifecycle.{name}", 1)
    assert backoff_ms("d", 7, 1) == backoff_ms("d", 8, 9) == 1


def test_the_backoff_of_a_retry_is_pinned_for_this_fold_version() -> None:
    """The row contains the backoff, so replicas that compute it differently would have different states of one log."""
    assert [backoff_ms("d", attempt, failures) for attempt, failures in ((9, 1), (10, 2), (11, 30))] == [
        1_154,
        3_369,
        281_584,
    ]


def test_the_first_serial_that_a_device_reports_is_stored() -> None:
    after = transition(
        "d", row_in(NODE_EFFECT, step_state="running", attempt=3, serial=""), succeeded_with({"serial": "t"})
    )
    assert isinstance(after, Dpu)
    assert (after.serial, after.swapped) == ("t", False)
    again = transition("d", row_in(NODE_EFFECT, step_state="running", attempt=3, serial="s"), succeeded_with({}))
    assert isinstance(again, Dpu)
    assert again.serial == "s"


def succeeded_with(facts: dict[str, str]) -> Trigger:
    return Trigger("succeeded", AT, attempt=3, facts=facts)


def test_only_a_device_failure_disowns_the_task_and_devices_have_different_backoffs() -> None:
    """The next attempt adopts a task that keeps running after a transient failure."""
    row = row_in(NODE_EFFECT, step_state="running", attempt=9, disowned=7)
    for kind, disowned in (("transient", 7), ("device", 9)):
        after = transition("d", row, Trigger("failed", AT, attempt=9, kind=kind, failed_ms=START_MS))
        assert isinstance(after, Dpu)
        assert (after.disowned, after.not_before_ms) == (disowned, START_MS + backoff_ms("d", 9, 1))
    assert len({backoff_ms(name, attempt, 1) for name in "de" for attempt in (9, 10)}) == 4
    late = transition("d", row, Trigger("failed", AT, attempt=8, kind="transient"))
    assert late == "attempt: 8 of dpu 'd' has ended"


def test_a_swap_is_over_once_the_card_is_provisioned() -> None:
    log = provisioned()
    log.start("d")
    log.succeed("d", {"boot_id": "1"})
    log.register("d", node="n", serial="t")
    assert log.row("d").swapped
    log.request("d", "retry")
    log.do_until("d", READY)
    assert (log.row("d").swapped, log.row("d").serial) == (False, "t")

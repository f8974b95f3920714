"""The lifecycle of a DPU: every pair of phase and trigger, and the path of one DPU from Initializing to Ready."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from eventstore.ids import internal_envelope
from projections.attempt_limits import DEFAULT_LIMITS, FAILURE_KINDS, AttemptsByFailure, in_force
from projections.field_checks import MAX_AHEAD_MS
from projections.installs.fold import MAX_ORDINAL
from projections.zones.dpus.lifecycle import (
    BACKOFF_MS,
    LONGEST_BACKOFF_MS,
    MAX_ATTEMPTS,
    REQUESTS,
    TRANSITIONS,
    Trigger,
    backoff_ms,
    transition,
    wait_ms,
)
from projections.zones.dpus.phases import (
    CONFIG_FIRMWARE,
    DELETING,
    DPU_CONFIG,
    ERROR,
    HOST_NETWORK,
    INITIALIZE_INTERFACE,
    INITIALIZING,
    NODE_EFFECT,
    NODE_EFFECT_REMOVAL,
    OS_INSTALLING,
    PENDING,
    PHASES,
    PROVISIONING,
    READY,
    REBOOTING,
    STEPS,
)
from projections.zones.rows import Dpu, Zone
from schemas.events import StepFailed
from tests.support.zones import PARTITION, START_MS, ZonesPartition, check_dpus, derived_of, reloaded, replayed, rows_of

TRIGGERS = (*REQUESTS, "started", "progressed", "succeeded", "failed", "lost", "expired", "swapped", "follow")

AT = RecordMetadata(PARTITION, 9, START_MS, START_MS)
WORK = set(STEPS)
IDLE = set(PHASES) - WORK

LEGAL = {
    "provision": {INITIALIZING, PENDING, READY, ERROR},
    "pause": set(PHASES),
    "resume": set(PHASES),
    "retry": WORK | {ERROR},
    "skip": WORK | {ERROR},
    "abort": WORK | {ERROR, PENDING},
    "delete": set(PHASES),
    "swapped": set(PHASES),
    "follow": set(PHASES) - {DELETING},
    **dict.fromkeys(("started", "progressed", "succeeded", "failed", "lost", "expired"), WORK),
}


def row_in(phase: str) -> Dpu:
    """A DPU in a phase, with a running attempt if the phase has a step."""
    running = phase in WORK
    return Dpu(
        "z1",
        0,
        "n",
        "s",
        "b",
        phase,
        3,
        2,
        1,
        1,
        step_state="running" if running else "idle",
        image="image-1",
        installed="image-1" if phase == READY else "",
        resume=NODE_EFFECT if phase in (PENDING, ERROR) else "",
        provisioner="p1" if running else "",
        deadline_ms=START_MS if running else 0,
    )


@pytest.mark.parametrize(("phase", "name"), list(itertools.product(PHASES, TRIGGERS)))
def test_every_pair_is_in_the_table_or_refused(phase: str, name: str) -> None:
    trigger = Trigger(name, AT, attempt=3, kind="transient", serial="other", message="m", image="image-2")
    result = transition("d", row_in(phase), trigger)
    legal = phase in LEGAL[name]
    assert ((phase, name) in TRANSITIONS) == legal
    if not legal:
        assert result == f"{name}: does not apply to dpu 'd' in phase {phase}"
    elif name == "started":
        assert isinstance(result, str) and "must wait" in result
    else:
        assert result is None or (isinstance(result, Dpu) and result.phase in PHASES)


def test_the_table_has_no_other_pairs() -> None:
    assert set(LEGAL) == set(TRIGGERS)
    assert set(TRANSITIONS) <= set(itertools.product(PHASES, TRIGGERS))


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase not in (INITIALIZING, READY)])
def test_no_phase_is_terminal(phase: str) -> None:
    """In every phase with a step, a wait or a failure, an operator may abort, and may delete the DPU."""
    for name in ("abort", "delete"):
        assert (phase, name) in TRANSITIONS


def test_the_steps_lead_from_pending_to_ready() -> None:
    log = provisioned()
    seen = [log.row("d").phase]
    while log.row("d").phase != READY:
        log.do_step("d", {"image": "image-1"})
        seen.append(log.row("d").phase)
    assert tuple(seen) == (*PROVISIONING, READY)
    assert (log.row("d").installed, log.row("d").effect) == ("image-1", False)


def provisioned(image: str = "image-1") -> ZonesPartition:
    """A partition with one DPU in its first step."""
    log = ZonesPartition()
    log.register("d", node="n", serial="s")
    assert log.request("d", "provision", image).code == "done"
    return log


def test_a_dpu_is_registered_once_and_keeps_its_ordinal() -> None:
    log = ZonesPartition()
    for name in ("a", "b", "c"):
        log.register(name, node="n1")
    before = log.end
    assert log.register("b", node="n2", bmc="sim:y").code == "done"
    assert (log.row("b").ordinal, log.row("b").node, log.row("b").bmc_address) == (1, "n2", "sim:y")
    assert "registered in zone 'z1'" in log.register("b", zone="z2").reason
    log.request("b", "delete")
    log.do_step("b")
    assert "b" not in log.state.dpus.rows
    log.register("d")
    assert log.row("d").ordinal == 3, "reports of b must not count for d"
    assert log.state.dpu_index.zone("z1").names == {0: "a", 2: "c", 3: "d"}
    assert log.row("d").attempt > before
    log.limit(2, 2)
    log.register("e")
    assert log.row("e").ordinal == 4


def test_a_zone_without_unused_ordinals_assigns_the_lowest_free_one() -> None:
    log = ZonesPartition()
    for name in ("a", "b"):
        log.register(name)
    log.request("a", "delete")
    log.do_step("a")
    log.state.zone_rows.put("z1", Zone(ordinals=MAX_ORDINAL))
    for name in ("c", "d"):
        log.register(name)
    assert log.state.dpu_index.zone("z1").names == {0: "c", 1: "b", 2: "d"}
    assert log.state.zone_rows.rows["z1"].ordinals == MAX_ORDINAL


def test_a_dpu_keeps_its_node_while_the_node_is_out_of_service() -> None:
    log = provisioned()
    assert "node: 'm' cannot replace 'n'" in log.register("d", node="m").reason
    assert log.register("d", node="n", bmc="sim:y").code == "done"


def test_only_statements_of_the_running_attempt_count() -> None:
    log = provisioned()
    number = log.row("d").attempt + 1
    assert "must be" in log.start("d", attempt=number + 1).reason
    assert log.start("d", "p1").code == "done"
    assert "must wait" in log.start("d", "p2").reason
    assert log.succeed("d", attempt=number - 1).code == "refused"
    assert log.fail("d", attempt=number + 1).code == "refused"
    log.succeed("d")
    assert log.row("d").phase == INITIALIZE_INTERFACE
    log.start("d", "p1")
    assert "has ended" in log.succeed("d", attempt=number).reason
    assert log.row("d").phase == INITIALIZE_INTERFACE


def test_a_statement_about_a_former_dpu_of_the_same_name_is_refused() -> None:
    log = provisioned()
    log.start("d")
    stale = log.row("d").attempt
    log.request("d", "delete")
    log.do_step("d")
    log.register("d", node="n", serial="s")
    log.request("d", "provision", "image-1")
    log.start("d")
    assert log.row("d").phase == NODE_EFFECT
    assert log.succeed("d", attempt=stale).code == "refused"


@pytest.mark.parametrize("stated", [(), (4, 2, 3), (0, 1, 0)])
@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_a_step_is_attempted_up_to_the_limits_of_its_zone_and_ends_in_error(kind: str, stated: tuple[int, ...]) -> None:
    log = provisioned()
    log.limit(0, 0, attempt_limits=stated)
    limit = getattr(in_force(AttemptsByFailure(*stated)), kind)
    for failure in range(1, limit + 1):
        log.wait_for_backoff("d")
        assert log.start("d").code == "done"
        assert log.fail("d", kind, message="bad\nflash").code == "done"
        row = log.row("d")
        assert row.message == "bad flash"
        assert (row.phase == ERROR) == (failure == limit)
        assert (row.phase_attempts, row.failures, getattr(row.failed, kind)) == (failure, failure, failure)
    assert (row.resume, row.effect, row.step_state) == (NODE_EFFECT, True, "idle")
    log.request("d", "retry")
    row = log.row("d")
    assert (row.phase_attempts, row.failures, row.failed) == (0, 0, AttemptsByFailure()), (
        "a retry resets the counts of the step"
    )


def test_failures_of_a_kind_use_up_the_attempts_of_that_kind_only() -> None:
    log = provisioned()
    for kind in ("device", *["transient"] * 5, "device"):
        log.wait_for_backoff("d")
        log.start("d")
        log.fail("d", kind)
    assert (log.row("d").phase, log.row("d").failed) == (NODE_EFFECT, AttemptsByFailure(5, 2, 0))


def test_the_default_limits_outlast_the_reboot_of_a_bmc() -> None:
    """A BMC may be unreachable for ten minutes, and each attempt may fail at once because its connection is refused."""
    shortest_ms = sum(
        min(backoff_ms(f"d{i}", 7, failures) for i in range(2_000)) for failures in range(1, DEFAULT_LIMITS.transient)
    )
    assert shortest_ms > 600_000


def test_a_failed_attempt_waits_before_the_next() -> None:
    log = provisioned()
    log.start("d")
    log.fail("d")
    not_before_ms = log.row("d").not_before_ms
    assert not_before_ms > log.now_ms
    log.now_ms = not_before_ms - 2
    assert "must not start before" in log.start("d").reason
    assert log.start("d").code == "done"


def test_a_fast_broker_clock_prolongs_a_wait_by_at_most_a_minute() -> None:
    log = provisioned()
    log.start("d")
    row, failed_ms = log.row("d"), log.now_ms
    failed = StepFailed(
        internal_envelope("d", "p1", failed_ms), row.zone, "d", row.phase, row.attempt, "transient", "no"
    )
    log.now_ms += 600_000
    assert log.append(failed).code == "done"
    assert log.row("d").not_before_ms <= failed_ms + MAX_AHEAD_MS + BACKOFF_MS
    assert log.start("d").code == "done", "fold time stays ahead, which must not delay an attempt"


def test_a_failure_under_a_fast_clock_causes_no_wait_after_the_correction() -> None:
    log = provisioned()
    before_ms = log.now_ms
    log.now_ms += 7_200_000
    log.start("d")
    log.fail("d")
    log.now_ms = before_ms
    assert log.row("d").not_before_ms > before_ms + LONGEST_BACKOFF_MS
    assert log.start("d").code == "done"


@pytest.mark.parametrize(
    ("left_ms", "wait"),
    [(-1, 0), (0, 0), (1, 1), (LONGEST_BACKOFF_MS, LONGEST_BACKOFF_MS), (LONGEST_BACKOFF_MS + 1, 0)],
)
def test_a_wait_lasts_no_longer_than_the_longest_backoff(left_ms: int, wait: int) -> None:
    assert wait_ms(replace(row_in(NODE_EFFECT), not_before_ms=START_MS), START_MS - left_ms) == wait


def test_a_backoff_has_a_minimum_jitter_and_a_maximum() -> None:
    first = [backoff_ms(f"d{i}", 7, 1) for i in range(400)]
    assert BACKOFF_MS / 2 < min(first) < BACKOFF_MS * 0.6 and max(first) > BACKOFF_MS * 0.9
    assert max(first) <= BACKOFF_MS
    late = [backoff_ms(f"d{i}", 7, 50) for i in range(400)]
    assert LONGEST_BACKOFF_MS * 0.9 < max(late) <= LONGEST_BACKOFF_MS
    assert backoff_ms("d", 7, 3) == backoff_ms("d", 7, 3) != backoff_ms("d", 8, 3)


def test_a_lost_provisioner_costs_no_retry_and_no_wait() -> None:
    log = provisioned()
    log.start("d", "p1")
    log.progress("d", "task-9", 40)
    assert log.fail("d", "lost").code == "done"
    row = log.row("d")
    assert (row.step_state, row.failures, row.not_before_ms, row.task) == ("open", 0, 0, "task-9")
    assert log.start("d", "p2").code == "done"
    assert log.row("d").task == "task-9"


def test_a_dpu_whose_provisioners_are_all_lost_ends_in_error() -> None:
    log = provisioned()
    for _ in range(MAX_ATTEMPTS + sum(DEFAULT_LIMITS)):
        assert log.start("d").code == "done"
        log.fail("d", "lost")
    assert log.row("d").phase == ERROR


def test_a_deadline_counts_if_its_record_is_appended_after_it() -> None:
    log = provisioned()
    log.start("d", "p1")
    deadline_ms = log.row("d").deadline_ms
    assert deadline_ms == log.now_ms + STEPS[NODE_EFFECT].deadline_ms
    assert "is after" in log.expire("d", deadline_ms).reason
    log.now_ms = deadline_ms
    assert log.expire("d", deadline_ms - 1).reason.endswith("has passed already")
    assert log.row("d").step_state == "running"
    assert log.expire("d", deadline_ms).code == "done"
    row = log.row("d")
    assert (row.step_state, row.failures, row.message) == ("open", 1, "'p1' reported no result by the deadline")
    assert log.expire("d", deadline_ms).code == "unchanged"
    assert log.row("d").failures == 1
    assert log.expire("nobody", deadline_ms).code == "refused"


def test_a_retry_from_error_continues_at_the_failed_step() -> None:
    log = provisioned()
    log.do_until("d", OS_INSTALLING)
    log.start("d")
    log.fail("d", "operator")
    assert (log.row("d").phase, log.row("d").resume) == (ERROR, OS_INSTALLING)
    assert log.request("d", "retry").code == "done"
    row = log.row("d")
    assert (row.phase, row.step_state, row.failures, row.phase_attempts) == (OS_INSTALLING, "open", 0, 0)


def test_a_retry_supersedes_a_running_attempt() -> None:
    log = provisioned()
    log.start("d")
    number = log.row("d").attempt
    log.request("d", "retry")
    assert log.succeed("d", attempt=number).code == "refused"
    assert log.start("d").code == "done"
    assert log.row("d").attempt == number + 1


def test_a_skip_omits_a_running_or_failed_step() -> None:
    log = provisioned()
    log.start("d")
    log.request("d", "skip")
    assert (log.row("d").phase, log.row("d").effect) == (INITIALIZE_INTERFACE, True)
    log.start("d")
    log.fail("d", "operator")
    log.request("d", "skip")
    assert log.row("d").phase == CONFIG_FIRMWARE
    log.do_until("d", NODE_EFFECT_REMOVAL)
    log.request("d", "skip")
    assert (log.row("d").phase, log.row("d").effect) == (READY, False)


def test_an_abort_returns_the_node_and_an_unaltered_dpu_to_service() -> None:
    log = provisioned("old")
    log.do_until("d", READY)
    log.request("d", "provision", "new")
    log.do_until("d", INITIALIZE_INTERFACE)
    assert log.request("d", "abort").code == "done"
    assert log.row("d").phase == NODE_EFFECT_REMOVAL
    log.do_step("d")
    assert (log.row("d").phase, log.row("d").image) == (READY, "old")


@pytest.mark.parametrize("failed_first", [False, True])
def test_a_dpu_can_be_provisioned_again_after_an_aborted_install(failed_first: bool) -> None:
    log = provisioned("old")
    log.do_until("d", READY)
    log.request("d", "provision", "new")
    log.do_until("d", CONFIG_FIRMWARE)
    if failed_first:
        log.start("d")
        log.fail("d", "operator")
    log.request("d", "abort")
    log.do_step("d")
    row = log.row("d")
    assert (row.phase, row.installed, row.image, row.effect) == (INITIALIZING, "", "new", False)
    assert log.request("d", "provision").code == "done"


def test_an_abort_in_the_queue_restores_the_former_state() -> None:
    log = provisioned("old")
    log.do_until("d", READY)
    log.limit(1, 1)
    log.register("other", node="m")
    log.request("other", "provision", "x")
    assert log.request("d", "provision", "new").code == "waiting"
    log.request("d", "abort")
    assert (log.row("d").phase, log.row("d").image) == (READY, "old")


def test_a_delete_works_in_every_phase_and_can_be_forced_or_aborted() -> None:
    log = provisioned()
    log.request("d", "pause")
    log.request("d", "delete")
    assert (log.row("d").phase, log.row("d").paused) == (DELETING, False)
    assert log.request("d", "delete").code == "done"
    assert "provision" in log.request("d", "provision", "x").reason
    log.request("d", "abort")
    assert log.row("d").phase == NODE_EFFECT_REMOVAL
    log.request("d", "delete")
    log.start("d")
    log.fail("d", "operator")
    assert (log.row("d").phase, log.row("d").resume) == (ERROR, DELETING)
    log.request("d", "skip")
    assert "d" not in log.state.dpus.rows


def test_a_pause_lets_a_running_attempt_end_and_starts_no_other() -> None:
    log = provisioned()
    log.start("d")
    log.request("d", "pause")
    assert log.succeed("d").code == "done"
    assert log.start("d").reason == "dpu: 'd' is paused"
    log.request("d", "resume")
    assert log.start("d").code == "done"


def test_a_success_with_a_wrong_image_is_a_failure() -> None:
    log = provisioned()
    log.do_until("d", OS_INSTALLING)
    log.start("d")
    assert log.succeed("d", {"image": "another"}).code == "done"
    row = log.row("d")
    assert (row.phase, row.step_state, row.failures, row.disowned) == (OS_INSTALLING, "open", 1, row.attempt)
    assert "reports 'another', but 'image-1' is wanted" in row.message


@pytest.mark.parametrize("phase", [INITIALIZING, NODE_EFFECT, OS_INSTALLING, READY])
def test_a_swapped_card_must_be_provisioned_again(phase: str) -> None:
    log = ZonesPartition()
    log.register("d", node="n", serial="s")
    if phase != INITIALIZING:
        log.request("d", "provision", "image-1")
        log.do_until("d", phase)
    log.register("d", node="n", serial="t")
    row = log.row("d")
    assert (row.serial, row.installed) == ("t", "")
    if phase == INITIALIZING:
        assert row.phase == INITIALIZING
        return
    assert (row.phase, row.resume) == (ERROR, NODE_EFFECT) and "'t' is another card" in row.message
    log.request("d", "retry")
    log.do_until("d", READY)
    assert not log.row("d").swapped


def test_a_different_serial_of_the_device_is_a_swapped_card() -> None:
    log = provisioned()
    log.do_until("d", DPU_CONFIG)
    log.do_step("d", {"serial": "t", "image": "image-1"})
    assert (log.row("d").phase, log.row("d").serial) == (ERROR, "t")


def test_facts_are_validated_and_stored() -> None:
    log = provisioned()
    log.start("d")
    assert "17 are more than the 16" in log.succeed("d", {f"k{i}": "v" for i in range(17)}).reason
    assert log.succeed("d", {"boot_id": "x\n"}).code == "refused"
    log.succeed("d", {"boot_id": "1"})
    log.do_until("d", REBOOTING)
    log.do_step("d", {"boot_id": "2"})
    assert (log.row("d").facts, log.row("d").phase) == ({"boot_id": "2"}, HOST_NETWORK)


@pytest.mark.parametrize(
    ("request_", "image", "reason"),
    [
        ("polish", "", "request: 'polish' must be one of provision, pause"),
        ("retry", "x", "image: 'x' goes with provision only"),
        ("provision", "a\nb", "image: 'a\\nb' must be at most"),
        ("provision", "", "image: '' must name an image"),
    ],
)
def test_an_invalid_request_is_refused(request_: str, image: str, reason: str) -> None:
    log = ZonesPartition()
    log.register("d")
    assert reason in log.request("d", request_, image).reason
    assert "is not registered in zone 'z2'" in log.request("d", "pause", zone="z2").reason


def test_a_restart_and_a_replay_end_in_the_same_state() -> None:
    log = provisioned()
    log.do_until("d", OS_INSTALLING)
    log.start("d")
    log.fail("d")
    check_dpus(log.state)
    assert rows_of(replayed(log)) == rows_of(log.state)
    assert derived_of(reloaded(log.state)) == derived_of(log.state)

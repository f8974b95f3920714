"""When the devices of Ready DPUs are visited, and what a visit does to the DPU: it stays Ready, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.fold import Outcome
from projections.zones.dpus.certificates import (
    AUTHORITY,
    CERTIFICATE_FACT,
    DAY_MS,
    EARLIEST_MS,
    ENDS_FACT,
    FAILURES_MAX,
    FAILURES_UNTIL_STUCK,
    FIRST_RETRY_MS,
    HOUR_MS,
    LATEST_MS,
    LONGEST_RETRY_MS,
    Visits,
    end_ms,
    retry_ms,
    visit_ms,
)
from projections.zones.dpus.index import is_stuck
from projections.zones.dpus.phases import OS_INSTALLING, READY, RENEWAL
from projections.zones.fold import ZonesFold
from projections.zones.rows import Dpu
from schemas.events import StepSucceeded
from tests.support.pinned.zone_visits import day, ends_in
from tests.support.zones import ZONE, ZonesPartition, check_dpus, derived_of, reloaded, replayed, rows_of

DAYS = st.integers(40, 30_000).map(lambda number: number * DAY_MS)
NAMES = st.text("abcdef0123", min_size=1, max_size=8)


def certified(ends_ms: int) -> Dpu:
    facts = {CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: day(ends_ms)}
    return Dpu(ZONE, 0, "", "", "redfish://b:443", READY, 9, 9, 1, 1, image="i", installed="i", facts=facts)


def ready(facts: Mapping[str, str] | None = None, *, bmc: str = "redfish://b:443") -> ZonesPartition:
    """A partition with the Ready DPU `d`, whose device has reported these facts; else a certificate for a year."""
    log = ZonesPartition()
    log.register("d", bmc=bmc)
    log.request("d", "provision", "image-1")
    while log.row("d").phase != READY:
        log.do_step("d", ends_in(log, 365) if facts is None else facts)
    return log


def go_to_visit(log: ZonesPartition) -> None:
    at_ms = visit_ms("d", log.row("d"))
    assert at_ms is not None
    log.now_ms = max(log.now_ms, at_ms)


def visit(log: ZonesPartition) -> Outcome:
    """Start a visit as soon as one is due."""
    go_to_visit(log)
    return log.start("d")


# --- the schedule


@given(NAMES, DAYS)
def test_a_device_is_visited_between_30_and_15_days_before_the_day_of_the_end(name: str, ends_ms: int) -> None:
    dpu = certified(ends_ms)
    assert end_ms(dpu) == ends_ms
    at_ms = visit_ms(name, dpu)
    assert at_ms is not None and ends_ms - EARLIEST_MS <= at_ms < ends_ms - LATEST_MS


def test_a_thousand_certificates_that_end_on_one_day_are_renewed_one_by_one() -> None:
    dpu = certified(400 * DAY_MS)
    hours = Counter((visit_ms(f"dpu-{number}", dpu) or 0) // HOUR_MS for number in range(1_000))
    assert len(hours) > 300, "there are 360 hours"
    assert max(hours.values()) <= 12


@pytest.mark.parametrize("text", ["", "tomorrow", "2027-02-30", "20270101", "2027-01-01T00", "२०२७-01-01"])
def test_a_day_that_is_none_means_no_visit(text: str) -> None:
    log = ready({CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: text})
    assert visit_ms("d", log.row("d")) is None
    assert log.start("d").reason == f"attempt: {log.row('d').attempt + 1} of dpu 'd' has no certificate to renew"


def test_a_certificate_of_the_authority_of_which_no_end_is_known_is_looked_at_within_15_days() -> None:
    """DPUs that were installed by a program that did not report the end."""
    log = ready({CERTIFICATE_FACT: AUTHORITY})
    at_ms = visit_ms("d", log.row("d"))
    assert at_ms is not None and 0 <= at_ms - log.row("d").since_ms < EARLIEST_MS - LATEST_MS


@pytest.mark.parametrize(
    ("bmc", "fact"), [("simulated:d", AUTHORITY), ("rshim:n/h", AUTHORITY), ("redfish://b:443", "0" * 64)]
)
def test_other_devices_are_not_visited(bmc: str, fact: str) -> None:
    log = ready({CERTIFICATE_FACT: fact}, bmc=bmc)
    assert visit_ms("d", log.row("d")) is None


@given(st.dictionaries(NAMES, DAYS, max_size=20), st.data())
def test_the_visits_of_an_index_are_those_of_its_rows(ends: Mapping[str, int], data: st.DataObject) -> None:
    visits, rows = Visits(), {name: certified(ends_ms) for name, ends_ms in ends.items()}
    for name, dpu in rows.items():
        visits.add(name, dpu)
    for name in data.draw(st.lists(st.sampled_from(sorted(rows)), unique=True)) if rows else []:
        visits.discard(name, rows.pop(name))
    times = {name: visit_ms(name, dpu) or 0 for name, dpu in rows.items()}
    now_ms = data.draw(st.sampled_from(sorted(times.values())) if times else DAYS) + data.draw(st.integers(-1, 1))
    assert dict(visits.all()) == times
    assert {*visits.due(now_ms)} == {name for name, at_ms in times.items() if at_ms <= now_ms}
    assert visits.next_ms(now_ms) == min((at_ms for at_ms in times.values() if at_ms > now_ms), default=None)


@given(NAMES, st.integers(0, 1_000), st.integers(1, FAILURES_MAX))
def test_retries_wait_twice_as_long_each_time_up_to_a_day(name: str, attempt: int, failures: int) -> None:
    ceiling_ms = min(FIRST_RETRY_MS << (failures - 1), LONGEST_RETRY_MS)
    assert ceiling_ms // 2 < retry_ms(name, attempt, failures, needs_operator=False) <= ceiling_ms
    asked_ms = retry_ms(name, attempt, failures, needs_operator=True)
    assert LONGEST_RETRY_MS // 2 < asked_ms <= LONGEST_RETRY_MS


# --- a visit


def test_a_visit_leaves_the_dpu_ready_and_the_next_one_follows_from_the_new_certificate() -> None:
    log = ready()
    before = log.row("d")
    assert log.start("d").reason_code == "ATTEMPT_TOO_EARLY"
    assert visit(log).code == "done"
    running = log.row("d")
    assert (running.phase, running.step_state, running.attempt) == (READY, "running", before.attempt + 1)
    assert running.deadline_ms == log.now_ms + RENEWAL.deadline_ms
    assert log.succeed("d", ends_in(log, 365)).code == "done"
    after = log.row("d")
    assert (after.phase, after.step_state, after.since, after.installed) == (READY, "idle", before.since, "image-1")
    assert not is_stuck(after)
    at_ms = visit_ms("d", after)
    assert at_ms is not None and at_ms > log.now_ms + 334 * DAY_MS


def test_a_certificate_that_was_not_renewed_is_looked_at_again_after_a_day() -> None:
    log = ready()
    visit(log)
    log.succeed("d", {ENDS_FACT: log.row("d").facts[ENDS_FACT]})
    assert visit_ms("d", log.row("d")) == log.now_ms + DAY_MS
    log.now_ms += DAY_MS - 2
    assert log.start("d").reason_code == "ATTEMPT_TOO_EARLY"
    assert log.start("d").code == "done"


@pytest.mark.parametrize("kind", ["transient", "device", "operator"])
def test_a_device_that_is_away_keeps_its_dpu_ready_until_the_plane_waits_for_a_person(kind: str) -> None:
    log = ready()
    ends_ms = end_ms(log.row("d"))
    assert ends_ms is not None
    for number in range(FAILURES_MAX):
        assert visit(log).code == "done"
        assert log.fail("d", kind, message="away").code == "done"
        row = log.row("d")
        assert (row.phase, row.step_state, row.failures, row.message) == (READY, "idle", number + 1, "away")
        assert is_stuck(row) == (kind == "operator" or number + 1 >= FAILURES_UNTIL_STUCK)
        assert log.state.dpu_index.zone(ZONE).stuck == ({"d": None} if is_stuck(row) else {})
    assert log.now_ms > ends_ms, "attempts go on for longer than the certificate is valid"
    assert visit_ms("d", log.row("d")) is None
    assert log.start("d").code == "refused"
    assert log.request("d", "retry").code == "done"
    assert not is_stuck(log.row("d"))
    assert log.start("d").code == "done", "at once"
    log.succeed("d", ends_in(log, 365))
    assert visit_ms("d", log.row("d")) is not None


def test_a_device_whose_visits_end_its_provisioners_is_visited_a_few_times_an_hour() -> None:
    log = ready()
    go_to_visit(log)
    began_ms = log.now_ms
    for _ in range(50):
        failed_ms = log.now_ms
        assert visit(log).code == "done"
        assert log.fail("d", "lost").code == "done"
        at_ms = visit_ms("d", log.row("d"))
        assert at_ms is not None and FIRST_RETRY_MS // 2 < at_ms - log.now_ms <= FIRST_RETRY_MS
        assert log.row("d").failures == 0 and log.now_ms > failed_ms
    assert log.now_ms - began_ms > 49 * FIRST_RETRY_MS // 2


def test_a_retry_applies_to_a_failed_visit_only() -> None:
    log = ready()
    assert log.request("d", "retry").reason_code == "PHASE_MISMATCH"
    visit(log)
    assert log.request("d", "retry").reason_code == "PHASE_MISMATCH"
    log.fail("d")
    visit(log)
    assert log.request("d", "retry").code == "done"
    assert log.row("d").step_state == "running", "an attempt at the device is not ended by it"


def test_a_visit_of_a_provisioner_that_died_or_hangs_ends_and_is_repeated() -> None:
    log = ready()
    visit(log)
    assert log.fail("d", "lost", message="gone").code == "done"
    row = log.row("d")
    assert (row.phase, row.failures, row.message) == (READY, 0, "gone") and not is_stuck(row)
    assert log.start("d", "p2").reason_code == "ATTEMPT_TOO_EARLY"
    assert visit(log).code == "done"
    deadline_ms = log.row("d").deadline_ms
    assert log.expire("d", deadline_ms).code == "refused"
    log.now_ms = deadline_ms
    assert log.expire("d", deadline_ms).code == "done"
    assert (log.row("d").phase, log.row("d").step_state, log.row("d").failures) == (READY, "idle", 1)


@pytest.mark.parametrize("request_", ["provision", "delete"])
def test_a_request_that_takes_a_dpu_out_of_ready_ends_its_visit(request_: str) -> None:
    log = ready()
    visit(log)
    attempt = log.row("d").attempt
    assert log.request("d", request_, "image-2" if request_ == "provision" else "").code == "done"
    row = log.row("d")
    assert row.step_state == "open" and row.phase != READY
    late = StepSucceeded(log.envelope(), ZONE, "d", READY, attempt, ends_in(log, 365))
    assert log.append(late).reason_code == "PHASE_MISMATCH"
    assert log.start("d").code == "done"
    assert log.row("d").attempt == attempt + 1


def test_a_paused_dpu_is_not_visited() -> None:
    log = ready()
    go_to_visit(log)
    log.request("d", "pause")
    assert not [*log.state.dpu_index.visits.all()]
    assert log.start("d").reason_code == "DPU_PAUSED"
    log.request("d", "resume")
    assert log.start("d").code == "done"


def test_a_step_ends_what_failed_visits_said() -> None:
    log = ready()
    visit(log)
    log.fail("d", "operator", message="wrong password")
    log.request("d", "provision", "image-2")
    assert log.row("d").failures == 0 and log.row("d").message == ""
    log.do_until("d", OS_INSTALLING)
    assert not [*log.state.dpu_index.visits.all()]


def test_the_first_version_of_the_fold_knows_no_visits() -> None:
    log = ready()
    log.fold = ZonesFold()
    go_to_visit(log)
    assert log.start("d").reason_code == "PHASE_MISMATCH"


def test_a_clock_that_was_ahead_delays_no_visit_by_more_than_a_day() -> None:
    log = ready()
    visit(log)
    log.fail("d", "operator")
    early_ms = log.now_ms - 200 * DAY_MS
    log.fold.rewind(log.state, early_ms)
    assert log.row("d").not_before_ms == early_ms + LONGEST_RETRY_MS
    assert derived_of(reloaded(log.state)) == derived_of(log.state)


def test_a_fast_clock_before_a_pause_delays_the_visit_after_it_by_no_more_than_a_day() -> None:
    log = ready()
    go_to_visit(log)
    good_ms = log.now_ms
    log.now_ms += 365 * DAY_MS
    log.start("d")
    log.succeed("d", {})
    log.request("d", "pause")
    log.fold.rewind(log.state, good_ms)
    log.now_ms = good_ms
    assert log.row("d").not_before_ms > good_ms + 365 * DAY_MS
    log.request("d", "resume")
    at_ms = visit_ms("d", log.row("d"))
    assert at_ms is not None and good_ms < at_ms <= log.now_ms + LONGEST_RETRY_MS
    assert not log.row("d").paused


def test_a_resume_leaves_the_time_of_the_next_visit_otherwise() -> None:
    log = ready()
    visit(log)
    log.fail("d", "operator")
    at_ms = visit_ms("d", log.row("d"))
    log.request("d", "pause")
    log.request("d", "resume")
    assert visit_ms("d", log.row("d")) == at_ms


# --- another address


def test_the_certificate_of_a_former_address_counts_no_longer() -> None:
    log = ready()
    log.register("d", bmc="rshim:ns/h")
    assert not log.state.dpu_index.certificate_ends and visit_ms("d", log.row("d")) is None
    log.register("d", bmc="redfish://b:443")
    log.now_ms += 15 * DAY_MS
    assert visit(log).code == "done", "which certificate the device has now is not known"
    log.succeed("d", ends_in(log, 365))
    assert [*log.state.dpu_index.certificate_ends.values()] == [1]
    log.request("d", "provision", "image-2")
    log.register("d", bmc="simulated:d")
    assert not log.state.dpu_index.certificate_ends
    assert derived_of(replayed(log)) == derived_of(reloaded(log.state)) == derived_of(log.state)


def test_another_address_ends_what_failed_visits_said() -> None:
    log = ready()
    visit(log)
    log.fail("d", "operator", message="wrong password")
    log.register("d", bmc="redfish://b:443")
    assert is_stuck(log.row("d")), "this is its address"
    log.register("d", bmc="rshim:ns/h")
    row = log.row("d")
    assert not is_stuck(row) and (row.phase, row.message, row.failures) == (READY, "", 0)


@pytest.mark.parametrize("bmc", ["redfish://new:443", "rshim:ns/h"])
def test_a_visit_of_the_former_address_ends_with_it(bmc: str) -> None:
    log = ready()
    visit(log)
    facts = log.row("d").facts
    log.register("d", bmc=bmc)
    assert log.succeed("d", ends_in(log, 365)).reason_code == "ATTEMPT_MISMATCH"
    row = log.row("d")
    assert (row.step_state, row.deadline_ms, row.bmc_address) == ("idle", 0, bmc)
    assert row.facts == {key: value for key, value in facts.items() if key != ENDS_FACT}
    assert log.start("d", "p2").code == ("done" if bmc.startswith("redfish") else "refused")


def test_an_object_that_wants_another_address_has_the_device_visited() -> None:
    log = ZonesPartition()
    log.want("d", bmc_addresses=["redfish://b:443"])
    while log.row("d").phase != READY:
        log.do_step("d", ends_in(log, 365) | {"image": "i1"})
    visit(log)
    log.want("d", bmc_addresses=["redfish://new:443"])
    row = log.row("d")
    assert (row.step_state, row.bmc_address, ENDS_FACT in row.facts) == ("idle", "redfish://new:443", False)
    assert row.facts[CERTIFICATE_FACT] == AUTHORITY and visit(log).code == "done"


def test_a_pin_stays_with_the_end_of_its_certificate() -> None:
    facts = {CERTIFICATE_FACT: "0" * 64, ENDS_FACT: "2030-01-01"}
    log = ready(facts)
    log.register("d", bmc="redfish://new:443")
    assert log.row("d").facts == facts


REQUESTS = ("pause", "resume", "retry", "provision", "skip", "abort")
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["start", "succeed", "fail", "request"]), st.integers(0, 400), st.integers(0, 5)),
    max_size=30,
)


@given(ACTIONS)
def test_whatever_happens_rows_fit_and_a_replay_agrees(actions: list[tuple[str, int, int]]) -> None:
    log = ready()
    for action, days, choice in actions:
        log.now_ms += days * DAY_MS // 8
        match action:
            case "start":
                log.start("d")
            case "succeed":
                log.succeed("d", [{}, ends_in(log, days), {ENDS_FACT: ""}][choice % 3])
            case "fail":
                log.fail("d", ["transient", "device", "operator", "lost"][choice % 4])
            case "request":
                log.request("d", REQUESTS[choice])
        check_dpus(log.state)
    assert rows_of(replayed(log)) == rows_of(log.state)
    assert derived_of(replayed(log)) == derived_of(reloaded(log.state)) == derived_of(log.state)


@pytest.mark.parametrize("text", ["1960-01-01", "1970-01-01", "0001-01-01"])
def test_a_certificate_of_a_device_without_a_clock_has_ended(text: str) -> None:
    log = ready({CERTIFICATE_FACT: AUTHORITY, ENDS_FACT: text})
    assert end_ms(log.row("d")) == 1 and log.state.dpu_index.certificate_ends == {1: 1}
    assert visit(log).code == "done"


def test_the_day_of_an_end_is_that_in_utc() -> None:
    assert day(int(datetime(2027, 3, 4, 23, 59, tzinfo=UTC).timestamp() * 1_000)) == "2027-03-04"
    assert end_ms(certified(DAY_MS)) == DAY_MS

"""The legal transitions of DPUs as a table: every other transition is a fault. So are reports by another than the
holder of an attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.log import CLIQUES, FLEET_0, ZONES, Partition
from projections.zones.rows import Dpu, Zone
from schemas import events as e
from tests.simulation.checkers import lifecycle
from tests.simulation.history import BmcCalled
from tests.support.written_run import ZONES_0, WrittenRun
from tests.support.written_steps import WrittenSteps

LOG = WrittenRun()
"""A source of envelopes; their authors and times do not matter."""

INSTALL = (
    "Node Effect",
    "Initialize Interface",
    "Config FW Parameters",
    "Prepare BFB",
    "OS Installing",
    "DPU Config",
    "Rebooting",
    "Host Network Configuration",
    "DPU Cluster Config",
    "Service Readiness",
)
WORK = (*INSTALL, "Node Effect Removal", "Deleting")
PHASES = (*WORK, "Initializing", "Pending", "Ready", "Error")

BACK = "Prepare BFB"
"""The phase in which a Pending or failed DPU of these tests resumes."""

LEGAL = """
anything         | Pending                           | back
register         | all                               | same, Error
provision        | Initializing, Pending, Ready, Error | Pending, Node Effect
pause            | all                               | same
resume           | all                               | same
retry            | Error                             | back, Pending
retry            | work                              | same, Pending
skip             | Error                             | after back, Pending
skip             | work                              | next
abort            | Pending                           | Ready, Initializing, Node Effect Removal
abort            | work, Error                       | Node Effect Removal
delete           | all                               | Deleting
started          | work                              | same
progressed       | work                              | same
succeeded        | work                              | next, same, Error
failed           | work                              | same, Error
deadline         | work                              | same, Error
"""
"""Per line: a kind of record, the phases in which it is legal, and the phases to which it may lead."""


def _request(request: str) -> Callable[[str], e.Event]:
    return lambda dpu: e.LifecycleRequested(LOG.said(), "z", dpu, request, "")


def _step(kind: type, *more: Any) -> Callable[[str], e.Event]:
    return lambda dpu: kind(LOG.stated(), "z", dpu, "Rebooting", 7, *more)


EVENTS: dict[str, Callable[[str], e.Event | None]] = {
    "register": lambda dpu: e.DpuRegistered(LOG.said(), "z", dpu, "n", "s", "b"),
    **{name: _request(name) for name in ("provision", "pause", "resume", "retry", "skip", "abort", "delete", "dance")},
    "started": _step(e.StepStarted, "p#1"),
    "progressed": _step(e.StepProgressed, "t", 50),
    "succeeded": _step(e.StepSucceeded, {}),
    "failed": _step(e.StepFailed, "device", "no"),
    "deadline": lambda dpu: e.DeadlinePassed(LOG.stated(dpu), "step", 1),
    "frozen": lambda dpu: e.WritesFrozen(LOG.said(dpu), "z"),
    "an undecodable record": lambda _: None,
}


def dpu(phase: str, **more: Any) -> Dpu:
    more = {"installed": "bf-1", "resume": BACK if phase in ("Pending", "Error") else "", **more}
    return Dpu("z", 0, "n", "s", "b", phase, more.pop("attempt", 7), 1, 1, 1, **more)


def legal(kind: str) -> set[tuple[str, str]]:
    """The transitions in the table for a record about the DPU itself."""
    found = set()
    for line in LEGAL.strip().splitlines():
        what, froms, tos = (cell.strip() for cell in line.split("|"))
        for phase in PHASES:
            groups = {"all", phase, "work" if phase in WORK else ""}
            if what in (kind, "anything") and groups & set(froms.split(", ")):
                found |= {(phase, to) for word in tos.split(", ") for to in _places(word, phase)}
    return found


def _places(word: str, phase: str) -> set[str]:
    match word:
        case "same":
            return {phase}
        case "back":
            return {BACK}
        case "after back":
            return _after(BACK)
        case "next":
            return _after(phase)
    return {word}


def _after(phase: str) -> set[str]:
    ends = {"Node Effect Removal": {"Ready", "Initializing"}, "Deleting": {"gone"}}
    return ends.get(phase) or {WORK[WORK.index(phase) + 1]}


def allowed(event_of: Callable[[str], e.Event | None], about: str = "{}") -> set[tuple[str, str]]:
    """The transitions that the checker allows for a record about the DPU, or about another one if `about` changes the
    name.
    """
    steps, moves = WrittenSteps(), list(product(PHASES, (*PHASES, "gone")))
    for phase, to in moves:
        name = f"{phase}>{to}"
        steps.add(None, dpus={name: dpu(phase)})
        steps.add(event_of(about.format(name)), dpus={name: None if to == "gone" else dpu(to)})
    faults = {fault.partition(":")[0] for fault in lifecycle.check_transitions(steps.evidence())}
    return {move for number, move in enumerate(moves) if f"zones/0@{2 * number + 1}" not in faults}


@pytest.mark.parametrize("kind", EVENTS)
def test_a_record_about_a_dpu_leads_only_to_the_legal_phases(kind: str) -> None:
    assert allowed(EVENTS[kind]) == legal(kind)


@pytest.mark.parametrize("kind", EVENTS)
def test_a_record_about_another_dpu_may_only_admit_a_pending_one(kind: str) -> None:
    assert allowed(EVENTS[kind], "not {}") == {("Pending", BACK)}


def moved(before: Dpu | None, kind: str, after: Dpu | None) -> list[str]:
    """The report about a transition of a DPU by this kind of record."""
    steps = WrittenSteps()
    if before is not None:
        steps.add(None, dpus={"d": before})
    steps.add(EVENTS[kind]("d"), dpus={"d": after})
    faults = list(lifecycle.check_transitions(steps.evidence()))
    return faults[1:] if before is not None else faults


def test_a_pending_dpu_without_a_phase_to_resume_starts_with_the_first_one() -> None:
    waits = dpu("Pending", resume="")
    assert not moved(waits, "frozen", dpu("Node Effect"))
    assert not moved(waits, "resume", dpu("Node Effect"))
    assert moved(waits, "frozen", dpu(BACK)) == ["zones/0@1: d goes from Pending to Prepare BFB by WritesFrozen "]
    assert moved(waits, "resume", dpu(BACK))


def test_an_error_outside_work_cannot_be_skipped() -> None:
    failed = dpu("Error", resume="Ready")
    assert moved(failed, "skip", dpu("Pending")) == [
        "zones/0@1: d goes from Error to Pending by LifecycleRequested skip"
    ]
    assert not moved(failed, "retry", dpu("Ready"))


def test_a_dpu_starts_with_its_registration() -> None:
    assert not moved(None, "register", dpu("Initializing"))
    assert moved(None, "register", dpu("Ready")) == ["zones/0@0: d begins as Ready by DpuRegistered "]
    assert moved(None, "provision", dpu("Initializing")) == [
        "zones/0@0: d begins as Initializing by LifecycleRequested provision"
    ]


def test_a_ready_dpu_has_something_installed() -> None:
    removal = dpu("Node Effect Removal")
    assert not moved(removal, "succeeded", dpu("Initializing", installed=""))
    assert not moved(removal, "skip", dpu("Ready"))
    assert moved(removal, "skip", dpu("Ready", installed="")) == ["zones/0@1: d is Ready, but nothing is installed"]


@pytest.mark.parametrize("partition", [ZONES_0, Partition(CLIQUES, 0)])
def test_the_removal_of_an_absent_row_is_a_fault(partition: Partition) -> None:
    steps = WrittenSteps()
    steps.add(None, partition, nodes={"a": 1}, lists={"a": 1}, marks={"": None})
    steps.add(None, partition, nodes={"a": None})
    assert not list(lifecycle.check_transitions(steps.evidence()))
    steps.add(None, partition, nodes={"a": None}, lists={"a": None})
    assert list(lifecycle.check_transitions(steps.evidence())) == [
        f"{partition}@2 removes a from nodes, which does not have it"
    ]


def test_the_removal_of_an_absent_dpu_is_a_fault() -> None:
    assert moved(None, "delete", None) == ["zones/0@0 removes d from dpus, which does not have it"]


def test_fleet_may_remove_an_absent_row() -> None:
    steps = WrittenSteps().add(None, FLEET_0, kept={"a": None})
    assert not list(lifecycle.check_transitions(steps.evidence()))


RUNNING = dpu("Rebooting", step_state="running", provisioner="p#1")
REPORTS: tuple[tuple[type, tuple[Any, ...]], ...] = (
    (e.StepProgressed, ("t", 50)),
    (e.StepSucceeded, ({},)),
    (e.StepFailed, ("device", "no")),
)


def counted(event: e.Event, row: Dpu | None, *, partition: Partition = ZONES_0) -> list[str]:
    """The report if this record changes a DPU with this row."""
    steps = WrittenSteps().add(None, FLEET_0)
    if row is not None:
        steps.add(None, partition, dpus={"d": row})
    steps.add(event, partition, dpus={"d": dpu("Rebooting")})
    return list(lifecycle.check_attempts(steps.evidence()))


@pytest.mark.parametrize(("kind", "more"), REPORTS)
def test_only_the_holder_of_the_running_attempt_may_report(kind: type, more: tuple[Any, ...]) -> None:
    def report_by(by: str, phase: str = "Rebooting", attempt: int = 7) -> e.Event:
        event: e.Event = kind(LOG.stated(actor=by), "z", "d", phase, attempt, *more)
        return event

    report = report_by("provisioner/p")
    assert not counted(report, RUNNING)
    where = f"zones/0@1: {kind.__name__} of attempt 7 of d by provisioner/"
    other = "p counts, but that is not the running attempt"
    assert counted(report, dpu("Rebooting", step_state="open", provisioner="p#1")) == [where + other]
    assert counted(report, dpu("DPU Config", step_state="running", provisioner="p#1")) == [where + other]
    assert counted(report, None) == [(where + other).replace("@1", "@0")]
    assert counted(report_by("provisioner/p", attempt=6), RUNNING), "an attempt that has ended"
    assert counted(report_by("provisioner/q"), RUNNING) == [where + "q counts, but p holds the attempt"]
    assert counted(report, None, partition=Partition(ZONES, 1)), "also in another partition"


def test_anyone_may_report_a_lost_attempt() -> None:
    assert not counted(e.StepFailed(LOG.stated(), "z", "d", "Rebooting", 7, "lost", ""), RUNNING)


def test_changes_of_other_dpus_do_not_end_an_attempt() -> None:
    steps = WrittenSteps().add(None, dpus={"d": RUNNING}).add(None, dpus={"e": dpu("Ready")})
    done = e.StepSucceeded(LOG.stated(actor="provisioner/p"), "z", "d", "Rebooting", 7, {})
    assert not list(lifecycle.check_attempts(steps.add(done, dpus={"d": RUNNING}).evidence()))


def test_a_report_without_effect_is_no_fault() -> None:
    steps = WrittenSteps().add(e.StepProgressed(LOG.stated(), "z", "d", "Rebooting", 7, "t", 5), dpus={"e": RUNNING})
    assert not list(lifecycle.check_attempts(steps.evidence()))


def test_the_attempt_of_a_dpu_never_decreases() -> None:
    def faults(*attempts: int | None) -> list[str]:
        steps = WrittenSteps()
        for attempt in attempts:
            steps.add(None, dpus={"d": None if attempt is None else dpu("Rebooting", attempt=attempt)})
        return list(lifecycle.check_attempts(steps.evidence()))

    assert not faults(3, 3, 4, None, 4)
    assert not faults(None, 0)
    assert faults(3, 2, 3) == ["zones/0@1: attempt 2 of d after 3"]
    assert faults(3, None, 2) == ["zones/0@2: attempt 2 of d after 3"]
    assert faults(-1) == ["zones/0@0: attempt -1 of d after 0"]


def membership(cause: int, first: int, end: int) -> e.Event:
    return e.MembershipChanged(LOG.stated(), cause, first, end, 1, ["z"], [], [], [], [], b"", b"", [], [], [], [])


def superseded(first: int, end: int) -> e.Event:
    return e.NodesSuperseded(LOG.stated(), first, end, [], [], [], [], 0)


def limited(first: int, end: int) -> e.Event:
    return e.ZoneLimitsSet(LOG.stated(), first, end, "z", 1, 1)


def marked(*records: tuple[e.Event, bool], partition: Partition = FLEET_0) -> list[str]:
    """The report about records that counted or did not."""
    steps = WrittenSteps()
    for event, counts in records:
        rows: dict[str, dict[str, Any]] = {"marks": {"": 1}} if counts else {}
        steps.add(event, partition, **rows).add(None, partition)
    return list(lifecycle.check_marks(steps.evidence()))


def test_a_caused_record_counts_if_it_starts_at_the_mark() -> None:
    here, there = [(0, 2), (2, 3)], [(0, 5), (5, 6)]
    assert not marked(*((membership(0, *a), True) for a in here), *((membership(1, *a), True) for a in there))
    assert not marked((superseded(0, 4), True), (limited(4, 5), True), (superseded(5, 6), True), partition=ZONES_0)


@pytest.mark.parametrize(("first", "end"), [(0, 3), (1, 3), (3, 4), (2, 2)])
def test_a_gap_a_copy_or_an_empty_range_does_not_count(first: int, end: int) -> None:
    for event in (membership(0, first, end), superseded(first, end), limited(first, end)):
        starting = superseded(0, 2) if not isinstance(event, e.MembershipChanged) else membership(0, 0, 2)
        assert not marked((starting, True), (event, False))
        assert marked((starting, True), (event, True)) == [f"fleet/0@2: [{first}, {end}) at mark 2"]


def test_a_record_at_the_mark_must_count_and_others_do_not_move_the_mark() -> None:
    assert marked((membership(0, 0, 2), False)) == ["fleet/0@0: [0, 2) at mark 0"]
    assert not marked((membership(0, 1, 2), False), (membership(0, 0, 1), True))


def called(*calls: tuple[str, int, str] | tuple[str, int, str, int]) -> list[str]:
    """The report about calls to BMCs. The log has attempt 7 for a reboot of d, and attempt 8 for a configuration."""
    steps = WrittenSteps(*(BmcCalled(*each) for each in calls))
    steps.add(e.StepStarted(LOG.stated(), "z", "d", "DPU Config", 8, "p#1"), dpus={"d": None})
    steps.add(e.StepStarted(LOG.stated(), "z", "d", "Rebooting", 7, "p#1"), dpus={"d": None})
    steps.add(e.StepStarted(LOG.stated(), "z", "d", "Rebooting", 9, "p#1")).add(None)
    return list(lifecycle.check_calls(steps.evidence()))


def test_a_bmc_gets_only_the_action_of_its_attempt() -> None:
    assert not called(("d", 7, "reboot"), ("d", 8, "configure"))
    assert called(("d", 7, "install")) == ["d was told to install by attempt 7, which the log has for reboot"]
    assert called(("d", 9, "reboot")) == ["d was told to reboot by attempt 9, which the log has for None"], (
        "the record did not count"
    )
    assert called(("e", 7, "reboot")) == ["e was told to reboot by attempt 7, which the log has for None"]


def test_a_bmc_gets_one_action_per_attempt_in_order() -> None:
    for calls in ([(7, "reboot"), (7, "reboot")], [(8, "configure"), (7, "reboot")]):
        where = "d was told an action twice, or by an attempt that had ended"
        assert called(*(("d", *each) for each in calls)) == [f"{where}: {calls}"]


def test_attempts_in_another_zone_may_have_lower_numbers_but_begin_later() -> None:
    calls = ("d", 8, "configure", 1_000), ("d", 7, "reboot", 2_000)
    assert not called(*calls)
    assert called(*reversed(calls))


def rolled(*rows: tuple[str, Dpu | None], limits: Zone | None = None, partition: Partition = ZONES_0) -> list[str]:
    """The report if DPUs get these rows, one after the other."""
    steps = WrittenSteps().add(None, FLEET_0, dpus={"x": dpu("Ready")})
    if limits is not None:
        steps.add(None, partition, zones={"z": limits, "gone": None})
    for name, row in rows:
        steps.add(None, partition, dpus={name: row})
    return list(lifecycle.check_rollout(steps.evidence()))


def starting(
    count: int, phase: str = "Node Effect", phase_before: str = "Pending", **more: Any
) -> list[tuple[str, Dpu]]:
    """DPUs of one zone that start an install, all on one node."""
    at_rest = [(f"d{number}", dpu(phase_before)) for number in range(count)]
    return [*at_rest, *((name, dpu(phase, **more)) for name, _ in at_rest)]


@pytest.mark.parametrize("phase", INSTALL)
@pytest.mark.parametrize("phase_before", ["Initializing", "Pending", "Ready"])
def test_installs_stay_within_the_limit_of_the_zone(phase: str, phase_before: str) -> None:
    assert not rolled(*starting(2, phase, phase_before), limits=Zone(2, 9))
    assert rolled(*starting(3, phase, phase_before), limits=Zone(2, 9)) == [
        "zones/0@6 admits d2: 3 DPUs are installing in z, and the limit is 2"
    ]


@pytest.mark.parametrize("phase", ["Node Effect Removal", "Deleting", "Ready"])
def test_a_finished_install_frees_its_place(phase: str) -> None:
    assert not rolled(*starting(3, phase), limits=Zone(2, 9))
    assert not rolled(
        *starting(2), ("d0", dpu(phase)), ("e", dpu("Ready")), ("e", dpu("DPU Config")), limits=Zone(2, 9)
    )
    assert not rolled(*starting(2), ("d0", None), ("e", dpu("Ready")), ("e", dpu("DPU Config")), limits=Zone(2, 9))


def test_a_retry_or_a_new_row_is_no_admission() -> None:
    assert not rolled(*starting(3, phase_before="Error"), limits=Zone(2, 9)), "a retry is no admission"
    assert not rolled(*((f"d{number}", dpu("Rebooting")) for number in range(3)), limits=Zone(2, 9))


def test_an_install_on_a_node_already_out_of_service_is_legal_after_the_limit_was_lowered() -> None:
    steps = WrittenSteps()
    for name, node in (("d0", "n"), ("d1", "m")):
        steps.add(None, dpus={name: replace(dpu("Node Effect", effect=True), node=node)})
    steps.add(None, zones={"z": Zone(9, 1)}).add(None, dpus={"d2": dpu("Ready")})
    steps.add(None, dpus={"d2": dpu("Node Effect", effect=True)})
    assert not list(lifecycle.check_rollout(steps.evidence()))


def test_a_node_out_of_service_is_counted_once() -> None:
    limits = Zone(9, 1)
    assert not rolled(*starting(3, effect=True), limits=limits), "three DPUs of one node"
    separate = [(name, replace(row, node="")) for name, row in starting(2, effect=True)]
    assert rolled(*separate, limits=limits) == [
        "zones/0@4 admits d1: 2 nodes are out of service in z, and the limit is 1"
    ]


@pytest.mark.parametrize("limits", [None, Zone(0, 0)])
def test_the_default_limit_is_50(limits: Zone | None) -> None:
    assert not rolled(*starting(50), limits=limits)
    faults = rolled(*starting(51), limits=limits)
    assert [fault.partition(": ")[2] for fault in faults] == ["51 DPUs are installing in z, and the limit is 50"]
    separate = [(name, replace(row, node="")) for name, row in starting(50, effect=True)]
    assert not rolled(*separate, limits=limits)


def test_every_partition_is_checked_and_each_zone_is_counted_separately() -> None:
    assert rolled(*starting(3), limits=Zone(2, 9), partition=Partition(ZONES, 1))
    others = [(name, replace(row, zone="y")) for name, row in starting(2)]
    assert not rolled(*others, ("e", dpu("Ready")), ("e", dpu("Rebooting")), limits=Zone(2, 9))

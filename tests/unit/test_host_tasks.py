"""Tasks of the agents of hosts, and their reports, as texts beside a DPUNode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from commands.requests.hosts import merged
from projections.resources.host_tasks import (
    DEVICES_MAX,
    HOST_TASKS,
    INSTALL,
    NETWORK,
    REBOOT,
    TASKS_MAX,
    FoundDevice,
    HostReport,
    HostTask,
    HostTasks,
    TaskState,
    is_ended,
    is_lasting,
    observation_text,
    open_tasks,
    report_of,
    tasks_of,
)
from projections.resources.items import MAX_ANNOTATION_BYTES, MAX_OBSERVATION_BYTES
from projections.resources.observation import observation

REPORT = HostReport("run-1", "boot-1", 5, (FoundDevice("0000:03:00.0", serial="S"),), (TaskState("t", "running", 4),))


def task(name: str, action: str = NETWORK, boot_id: str = "") -> HostTask:
    return HostTask(name, action, "z1", boot_id=boot_id, ids=("d1@3",))


def test_texts_are_read_as_they_were_written() -> None:
    tasks = HostTasks((task("t"), task("r", REBOOT, "boot-1")))
    assert tasks_of({HOST_TASKS: tasks.text()}) == tasks
    seen = observation(observation_text(REPORT))
    assert seen.is_ready
    assert report_of(seen) == REPORT


@given(st.text(max_size=30) | st.sampled_from(['{"tasks":[{}]}', '{"bootId":3}', "[]", '{"tasks":null}', "\ud800"]))
def test_a_broken_text_counts_as_none(text: str) -> None:
    assert tasks_of({HOST_TASKS: text}) == HostTasks()
    assert tasks_of({}) == HostTasks()
    assert report_of(None) is None
    assert report_of(observation('{"ready": true}')._replace(text=text)) is None


def test_a_reboot_ends_with_its_boot_and_another_task_when_the_agent_says_so() -> None:
    reboot, network = task("r", REBOOT, "boot-1"), task("t")
    assert open_tasks(HostTasks((reboot, network)), REPORT) == [reboot, network]
    next_boot = HostReport("run-2", "boot-2", tasks=REPORT.tasks)
    assert open_tasks(HostTasks((reboot, network)), next_boot) == [network]
    for state in ("done", "failed"):
        ended = HostReport("run-1", "boot-1", tasks=(TaskState("t", state), TaskState("r", state)))
        assert is_ended(network, ended) and is_ended(reboot, ended)


def test_the_tasks_of_a_host_are_bounded_and_ended_ones_go_first() -> None:
    tasks, report = HostTasks(), HostReport("run", "boot-1", tasks=(TaskState("t5", "done"),))
    for number in range(TASKS_MAX + 2):
        tasks = tasks.with_task(task(f"t{number}"), report)
    names = [each.id for each in tasks.tasks]
    assert (len(names), names[0], "t5" in names, names[-1]) == (TASKS_MAX, "t1", False, f"t{TASKS_MAX + 1}")
    assert [each.id for each in tasks.without(names[1:]).tasks] == ["t1"]
    again = tasks.with_task(HostTask("t7", NETWORK, "z2"), report)
    assert [each.zone for each in again.tasks if each.id == "t7"] == ["z2"], "the same place, another form"
    assert len(again.tasks) == TASKS_MAX


def test_the_largest_tasks_and_reports_fit_into_a_record() -> None:
    ids = tuple(f"{'d' * 60}-{number}@{10**12}" for number in range(16))
    methods = dict.fromkeys(ids, "SystemLevelReset")
    image = f"{'i' * 200}/{'0' * 16}"
    url = f"https://{'h' * 60}.example.org:7083/installations/{'d' * 120}?image={image}"
    largest = (
        [
            HostTask(f"t{number}", INSTALL, "z" * 63, "0000:03:00.0", ids=ids[:1], url=url)
            for number in range(DEVICES_MAX)  # one for each device
        ]
        + [
            HostTask(f"t{number}", NETWORK, "z" * 63, "0000:03:00.0", ids=ids[:1])
            for number in range(DEVICES_MAX, TASKS_MAX - 4)
        ]
    )
    reboots = [
        HostTask(f"r{number}", REBOOT, "z" * 63, boot_id="b" * 36, method="PowerCycle", methods=methods, ids=ids)
        for number in range(4)
    ]
    assert len(HostTasks((*largest, *reboots)).text()) < MAX_ANNOTATION_BYTES / 1.5
    states = tuple(
        TaskState(f"host-network-{10**9 + n}", "failed", 0, "m" * 253, "b" * 36, was_done=True)
        for n in range(TASKS_MAX)
    )
    devices = tuple(FoundDevice("0000:03:00.0", "a2dc", "s" * 30, "p" * 20, "i" * 15, 2, "rshim0") for _ in range(16))
    assert len(observation_text(HostReport("r" * 36, "b" * 36, 10**13, devices, states))) < MAX_OBSERVATION_BYTES


def test_a_report_keeps_the_states_of_tasks_that_exist_and_the_time_of_the_boot() -> None:
    known = HostReport(
        "run-1", "boot-1", 5, (), (TaskState("a", "done"), TaskState("b", "running"), TaskState("gone", "done"))
    )
    given = HostReport("run-2", "boot-1", 9, (), (TaskState("b", "done"), TaskState("strange", "done")))
    tasks = HostTasks(tuple(task(name, REBOOT) for name in "abc"))
    found = merged(given, known, tasks)
    assert found == HostReport("run-2", "boot-1", 5, (), (TaskState("a", "done"), TaskState("b", "done")))
    rebooted = merged(HostReport("", "boot-2", 9), known, tasks.without("bc"))
    assert rebooted == HostReport("run-1", "boot-2", 9, (), (TaskState("a", "done"),))
    assert merged(given, None, HostTasks()) == given


def test_a_network_that_was_done_is_to_be_made_again_in_each_boot() -> None:
    first, last = task("n1"), task("n2")
    tasks = HostTasks((first, last))
    report = HostReport("run-1", "boot-1")

    def reported(boot_id: str, *states: TaskState) -> HostReport:
        return merged(HostReport("run", boot_id, 1, (), states), report, tasks)

    report = reported("boot-1", TaskState("n1", "done"), TaskState("n2", "failed"))
    report = reported("boot-2")
    assert open_tasks(tasks, report) == [first] and not is_lasting(first, tasks, report), "n2 was never done"
    report = reported("boot-2", TaskState("n2", "done"))
    assert is_lasting(last, tasks, report) and is_ended(last, report)
    report = reported("boot-3", TaskState("n2", "running"))
    assert is_lasting(last, tasks, report) and not is_ended(last, report)
    report = reported("boot-3", TaskState("n2", "failed"))
    assert is_ended(last, report), "it is tried once in a boot"
    assert not is_ended(last, reported("boot-4"))


def test_the_last_network_of_a_device_is_not_forgotten_before_other_ended_tasks() -> None:
    states = tuple(TaskState(f"t{number}", "done") for number in range(TASKS_MAX))
    report = HostReport("run-1", "boot-1", 5, (), states)
    tasks = HostTasks((task("t0"), *(task(f"t{number}", REBOOT, "boot-0") for number in range(1, TASKS_MAX))))
    assert [each.id for each in tasks.with_task(task("new", REBOOT, "boot-1"), report).tasks][:2] == ["t0", "t2"]

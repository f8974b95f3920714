"""An update by Redfish is never sent twice, whatever is lost, and is done only when the DPU runs the image."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.redfish.resources import Payload, Task
from drivers.redfish.update_moves import (
    BOOT_S,
    SETTLE_S,
    TASKS_MAX,
    Asked,
    Done,
    Failed,
    Logged,
    Order,
    Seen,
    SeenTask,
    Started,
    Submit,
    Wait,
    logged_of,
    mark_of,
    next_move,
    seen_task,
    target_of,
)

TARGET = "image-2/1 on dpu"
ORDER = Order(TARGET, 10, "boot-1", {"DPU_BSP": "2"}, {"DPU_BSP": "1"})


def seen(*tasks: SeenTask, boot_id: str = "boot-1", is_up: bool = True, bsp: str = "1", quiet_s: float = 0.0) -> Seen:
    return Seen(tasks, boot_id, is_up, {"DPU_BSP": bsp} if is_up else {}, quiet_s)


def update(name: str, state: str = "running", percent: int = 0, target: str = TARGET) -> SeenTask:
    return msgspec.convert((name, state, percent, "", target, True), SeenTask)


def test_an_update_is_sent_after_the_log_was_told_which_tasks_there_are() -> None:
    ended = update("1", "completed")
    assert next_move(ORDER, None, seen(ended)) == Submit(("1",))
    assert next_move(ORDER, Asked(11, ("1",)), seen(ended)) == Submit(("1",))


def test_an_update_that_the_bmc_has_accepted_without_a_task_is_not_sent_again() -> None:
    own = ORDER._replace(attempt=11)
    asked = Asked(11, ("1",))
    assert isinstance(next_move(own, asked, seen(update("1", "completed"))), Wait)
    late = seen(update("1", "completed"), quiet_s=SETTLE_S)
    move = next_move(own, asked, late)
    assert isinstance(move, Failed)
    assert (move.kind, "no longer knows the task of the update" in move.message) == ("device", True)
    assert next_move(own._replace(attempt=12), asked, late) == Submit(("1",))


def test_an_update_of_somebody_else_is_waited_for() -> None:
    move = next_move(ORDER, None, seen(update("1", percent=40)))
    assert move == Failed("transient", "device: another update is in progress (task 1, 40 %)")
    other = next_move(ORDER, Asked(11, ()), seen(update("1", target="image-9/1 on dpu")))
    assert isinstance(other, Failed)
    assert other.kind == "transient"


def test_the_task_of_a_lost_answer_is_adopted_also_without_its_request() -> None:
    for target in (TARGET, ""):
        move = next_move(
            ORDER, Asked(11, ("1",)), seen(update("1", "completed"), update("2", percent=7, target=target))
        )
        assert move == Wait("", 7, Started("2", 11))


def test_a_task_of_a_failed_attempt_is_not_adopted() -> None:
    order = ORDER._replace(disowned=11)
    assert next_move(order, Started("2", 11), seen(update("2", "failed"))) == Submit(("2",))
    assert isinstance(next_move(ORDER, Started("2", 11), seen(update("2", "failed"))), Failed)


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (seen(update("2", "completed"), quiet_s=SETTLE_S), "task 2|completed, but the DPU has not booted since"),
        (
            seen(update("2", "completed"), boot_id="boot-2", quiet_s=SETTLE_S),
            "has DPU_BSP 1, but the image has DPU_BSP 2",
        ),
        (seen(update("2", "completed"), is_up=False, quiet_s=BOOT_S), "the operating system does not run"),
        (seen(quiet_s=SETTLE_S), "no longer knows task 2"),
    ],
)
def test_a_bmc_that_lies_is_waited_for_and_then_found_out(shown: Seen, message: str) -> None:
    assert isinstance(next_move(ORDER, Started("2", 11), shown._replace(quiet_s=0.0)), Wait)
    move = next_move(ORDER, Started("2", 11), shown)
    assert isinstance(move, Failed)
    assert move.kind == "device"
    assert message.rpartition("|")[2] in move.message


def test_versions_prove_an_update_whose_task_was_lost_only_if_they_have_changed() -> None:
    lost = seen(boot_id="boot-2", bsp="2", quiet_s=SETTLE_S)
    assert next_move(ORDER, Started("2", 11), lost) == Done()
    assert next_move(ORDER, Asked(11, ()), lost) == Done()
    again = ORDER._replace(before={"DPU_BSP": "2"})
    assert isinstance(next_move(again, Started("2", 11), lost), Failed)


@dataclass
class Device:
    """A BMC and its DPU. `sent` counts the updates that it accepted."""

    tasks: list[SeenTask] = field(default_factory=list)
    boots: int = 1
    is_up: bool = True
    bsp: str = "1"
    sent: int = 0

    def submit(self) -> None:
        assert not any(task.state == "running" for task in self.tasks), "a second update beside a running one"
        self.sent += 1
        self.tasks.append(update(str(self.sent)))

    def end(self, how: str) -> None:
        """End a running task: as done, as failed, or as done without an effect."""
        for number, task in enumerate(self.tasks):
            if task.state == "running":
                self.tasks[number] = task._replace(state="failed" if how == "fail" else "completed")
                if how == "done":
                    self.boots, self.bsp, self.is_up = self.boots + 1, "2", False

    def restart_bmc(self) -> None:
        """Its tasks are lost, and an update under way with them."""
        self.tasks.clear()

    def seen(self, quiet_s: float) -> Seen:
        versions = {"DPU_BSP": self.bsp} if self.is_up else {}
        return Seen(tuple(self.tasks[-TASKS_MAX:]), f"boot-{self.boots}", self.is_up, versions, quiet_s)


FATES = st.sampled_from(["look", "lose answer", "lose request", "stop", "done", "fail", "lie", "up", "restart", "late"])


@settings(max_examples=150, deadline=None)
@given(st.lists(FATES, max_size=40))
def test_no_update_is_sent_again_unless_one_has_failed(fates: list[str]) -> None:
    """`fates` are what happens at each look. An attempt that stops is followed by the next one, which knows the log."""
    device, attempt, disowned, failures, restarts = Device(), 11, 10, 0, 0
    log = ""
    for fate in fates:
        match fate:
            case "done" | "fail" | "lie":
                device.end(fate)
            case "up":
                device.is_up = True
            case "restart":
                device.restart_bmc()
                restarts += 1
            case "stop":
                attempt += 1
        order = ORDER._replace(disowned=disowned)
        logged: Logged = logged_of(log)
        move = next_move(order, logged, device.seen(BOOT_S if fate == "late" else 0.0))
        match move:
            case Submit(known):
                log = Asked(attempt, known).text()
                assert device.sent <= failures + restarts
                if fate != "lose request":
                    device.submit()
                    if fate != "lose answer":
                        log = Started(str(device.sent), attempt).text()
            case Wait(_, _, started):
                log = started.text() if started is not None else log
            case Failed(kind, _):
                if kind == "device":
                    failures, disowned = failures + 1, attempt
                attempt += 1
            case Done():
                assert device.bsp == "2"
                assert device.is_up
                return


@given(st.text(max_size=300))
def test_no_text_of_the_log_raises(text: str) -> None:
    logged = logged_of(text)
    next_move(ORDER, logged, seen(update("1")))


@given(st.integers(0, 10**9), st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), max_size=TASKS_MAX))
def test_the_log_gives_back_what_it_was_told(attempt: int, tasks: list[str]) -> None:
    asked = Asked(attempt, tuple(mark_of(task) for task in tasks))
    assert len(asked.text()) <= 253
    if "none" not in asked.known:
        assert logged_of(asked.text()) == asked
    for task in tasks:
        assert logged_of(Started(task, attempt).text()) == Started(task, attempt)


def test_tasks_are_read_with_the_request_that_started_them() -> None:
    body = msgspec.json.encode({"ImageURI": "h/a.bfb"}).decode()
    task = Task("7", "", "Exception", 101.5, [], Payload("/redfish/v1/UpdateService/Actions/x", body))
    assert seen_task(task) == SeenTask("7", "failed", 100, "", "h/a.bfb", True)
    dump = Task("8", "", "Running", None, [], Payload("/redfish/v1/Systems/x/LogServices/Dump", "no json"))
    assert not seen_task(dump).is_update


def test_urls_of_one_installation_have_one_target() -> None:
    def url(dpu: str, identity: str, expires: int) -> str:
        token = base64.urlsafe_b64encode(msgspec.json.encode((dpu, identity, expires))).decode().rstrip("=")
        return f"https://h:1/images/{token}.signature/bfb/x"

    assert target_of(url("k/d", "i/1", 1)) == target_of(url("k/d", "i/1", 2)) == "i/1 on k/d"
    assert target_of(url("k/d", "i/1", 1)) != target_of(url("k/e", "i/1", 1))
    assert target_of("http://h/a.bfb") == target_of("h/a.bfb") == "h/a.bfb"

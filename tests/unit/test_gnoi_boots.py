"""The next move of a reboot on a device that speaks gNOI, by what the log says and what the device reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.gnoi.reboot_moves import (
    Ask,
    Asked,
    BootTiming,
    Done,
    Failed,
    Move,
    Order,
    Seen,
    Wait,
    logged_of,
    mark_of,
    next_move,
    runs,
)

TIMING = BootTiming(settle_s=60.0, boot_s=600.0)
ORDER = Order("new.bfb", disowned=3)
ASKED = Asked(4, 7, mark_of("old.bfb"))
IDLE = Seen(False, 7, "old.bfb", "", 0.0, is_answered=False)
ACTIVE = Seen(True, 7, "", "", 0.0, is_answered=False)
REBOOTED = Seen(False, 8, "new.bfb;d.cfg", "", 0.0, is_answered=True)


def move(logged: Asked | None, seen: Seen, order: Order = ORDER) -> Move:
    return next_move(order, logged, seen, TIMING)


def failure(found: Move) -> tuple[str, str]:
    assert isinstance(found, Failed)
    return found.kind, found.message


def test_a_reboot_is_asked_for_once_nothing_is_logged() -> None:
    assert move(None, IDLE) == Ask()
    assert move(None, REBOOTED) == Ask(), "an image that runs already is installed anew: its configuration may differ"
    assert move(ASKED._replace(attempt=3), IDLE) == Ask(), "the task of that attempt has failed"
    assert failure(move(None, ACTIVE)) == ("transient", "device: it reboots, and nothing here asked for it")


def test_a_request_whose_answer_was_lost_is_not_repeated_before_it_had_time_to_show() -> None:
    assert move(ASKED, IDLE) == Wait(ASKED)
    assert move(ASKED, IDLE._replace(quiet_s=59.0)) == Wait(ASKED)
    assert move(ASKED, IDLE._replace(quiet_s=60.0)) == Ask()


def test_a_request_that_was_answered_is_never_repeated() -> None:
    message = "task: the device accepted the request, and did not reboot; it runs old.bfb"
    assert failure(move(ASKED, IDLE._replace(quiet_s=60.0, is_answered=True))) == ("device", message)


def test_a_reboot_is_followed_and_the_log_says_that_it_was_seen() -> None:
    assert move(ASKED, ACTIVE) == Wait(ASKED._replace(is_seen=True))
    assert move(ASKED, ACTIVE._replace(quiet_s=600.0)) == Wait(ASKED._replace(is_seen=True))
    message = "task: the reboot has not ended after 600 s"
    assert failure(move(ASKED, ACTIVE._replace(quiet_s=601.0))) == ("device", message)


@pytest.mark.parametrize(
    ("logged", "seen"),
    [
        (ASKED, REBOOTED),
        (ASKED._replace(is_seen=True), REBOOTED._replace(boots=7)),
        (ASKED._replace(boots=0, is_seen=True), REBOOTED._replace(boots=0)),
        (ASKED._replace(boots=0), REBOOTED._replace(boots=0)),
    ],
)
def test_an_image_runs_after_a_reboot_that_the_count_the_log_or_another_version_proves(
    logged: Asked, seen: Seen
) -> None:
    assert move(logged, seen) == Done()


def test_the_same_image_proves_nothing_on_a_device_without_a_count() -> None:
    again = ASKED._replace(boots=0, before=mark_of("new.bfb;d.cfg"))
    assert move(again, REBOOTED._replace(boots=0)) == Wait(again)


def test_a_device_that_boots_something_else_fails_the_step() -> None:
    other = REBOOTED._replace(version="old.bfb")
    assert move(ASKED, other) == Wait(ASKED)
    message = "image: the device runs old.bfb after new.bfb was activated"
    assert failure(move(ASKED, other._replace(quiet_s=60.0))) == ("device", message)
    message = "image: the device did not boot new.bfb: no space"
    assert failure(move(ASKED, other._replace(failure="no space"))) == ("device", message)


def test_a_reboot_without_an_image_ends_with_any() -> None:
    order = Order("", disowned=3)
    assert move(ASKED, IDLE, order) == Wait(ASKED)
    assert move(ASKED, REBOOTED, order) == Done()
    assert failure(move(ASKED, REBOOTED._replace(failure="hot"), order)) == ("device", "task: the reboot failed: hot")


def test_a_version_may_name_its_configuration() -> None:
    assert runs("a.bfb", "a.bfb")
    assert runs("a.bfb;b.cfg", "a.bfb")
    assert not runs("b.bfb", "a.bfb")


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 32), st.text(), st.booleans())
def test_the_log_is_read_as_it_was_written(attempt: int, boots: int, version: str, is_seen: bool) -> None:
    asked = Asked(attempt, boots, mark_of(version), is_seen)
    assert logged_of(asked.text()) == asked
    assert len(asked.text()) < 200


def test_other_lines_of_the_log_ask_for_nothing() -> None:
    for text in ("", "transfer of a.bfb", "reboot asked by attempt x at boot 1 from 00000000"):
        assert logged_of(text) is None

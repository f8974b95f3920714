"""What answers of BMCs stand for, and the next change of a DPU's settings: both without I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed, Unreachable
from drivers.redfish.answers import NotFound, PasswordChangeRequired, Unauthorized, decoded, error_of
from drivers.redfish.resources import Root, System, best_member
from drivers.redfish.settings import (
    RESTARTS_MAX,
    Change,
    NvidiaSystem,
    Refused,
    Restart,
    SecureBoot,
    SeenSettings,
    Wants,
    first_change,
    lock_down,
)


def body(text: str = "", message_id: str = "Base.1.19.GeneralError") -> bytes:
    return json.dumps({"error": {"@Message.ExtendedInfo": [{"MessageId": message_id, "Message": text}]}}).encode()


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (200, b"", None),
        (202, b"<html>", None),
        (307, b"", TaskFailed),
        (400, body("Another update is in progress, try again"), Unreachable),
        (400, json.dumps({"error": {"message": "An update is in progress."}}).encode(), Unreachable),
        (409, body(message_id="Base.1.8.ResourceInUse"), Unreachable),
        (400, body("the value is wrong"), TaskFailed),
        (401, body(), Unauthorized),
        (403, body(), NeedsOperator),
        (403, body(message_id="Base.1.8.PasswordChangeRequired"), PasswordChangeRequired),
        (404, b"not JSON", NotFound),
        (405, b"", NotFound),
        (500, b"\xff", Unreachable),
        (503, b"[" * 10_000, Unreachable),
    ],
)
def test_each_answer_has_a_kind(status: int, content: bytes, error: type[Exception] | None) -> None:
    found = error_of("10.0.0.1:443/redfish/v1", status, content)
    assert (found and type(found)) == error
    if found is not None:
        assert "10.0.0.1:443/redfish/v1" in str(found)


def test_a_session_that_has_ended_ends_the_attempt() -> None:
    assert issubclass(Unauthorized, SessionEnded)


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_answer_raises_another_error(status: int, content: bytes) -> None:
    error_of("bmc", status, content)
    try:
        decoded("bmc", content, System)
    except TaskFailed as error:
        assert "bmc returned an invalid resource" in str(error)


def test_a_message_of_a_bmc_is_cut_and_printable() -> None:
    text = str(error_of("bmc", 400, body("\x1b[31m" + "x" * 1_000)))
    assert text.isprintable()
    assert len(text) < 300


def test_parts_of_a_card_are_found_by_name() -> None:
    systems = ["/redfish/v1/Systems/Host", "/redfish/v1/Systems/Bluefield"]
    assert best_member(systems, "bluefield") == systems[1]
    assert best_member(systems, "other") == systems[0]
    assert best_member([], "bluefield") == ""
    assert Root(product="BlueField-3 DPU").is_dpu
    assert not Root(product="BlueField-3 DPU").is_bluefield_4
    assert Root(product="BlueField-4 DPU").is_bluefield_4
    assert not Root(product="iDRAC").is_dpu
    found = Root(product="B4240V")  # a part number, as DPF expects it of some cards
    assert (found.is_dpu, found.is_bluefield_4) == (True, True)


def seen(**fields: Any) -> SeenSettings:
    return SeenSettings("/s", "/m", **fields)


def test_a_change_is_sent_once_and_a_bmc_that_does_not_make_it_is_found_out() -> None:
    wants = Wants(secure_boot=True, is_zero_trust=True)
    off = SecureBoot(False, "Disabled")
    move = first_change(wants, seen(secure_boot=off), set(), 0)
    assert isinstance(move, Change)
    assert move.request.body == {"SecureBootEnable": True}
    assert isinstance(first_change(wants, seen(secure_boot=off), {move.name}, 0), Refused)
    locked = lock_down(wants, seen(nvidia=NvidiaSystem("DpuMode", "Enabled")), set())
    assert isinstance(locked, Change)
    assert isinstance(lock_down(wants, seen(nvidia=NvidiaSystem("DpuMode", "Enabled")), {locked.name}), Refused)
    assert lock_down(Wants(), seen(nvidia=NvidiaSystem("DpuMode", "Enabled")), set()) is None


def test_a_bmc_without_secure_boot_is_told_of_only_if_it_is_wanted() -> None:
    assert isinstance(first_change(Wants(secure_boot=True), seen(), set(), 0), Refused)
    assert first_change(Wants(secure_boot=False), seen(), set(), 0) is None
    assert first_change(Wants(), seen(secure_boot=SecureBoot(True, "Disabled")), set(), 0) is None


@given(
    st.builds(Wants, st.sampled_from([None, True, False]), st.booleans()),
    st.sampled_from([None, "DpuMode", "NicMode"]),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, "Enabled", "Disabled"]),
    st.integers(0, 4),
)
def test_the_changes_of_an_attempt_end(
    wants: Wants, mode: str | None, enabled: bool | None, current: str | None, deaf: int
) -> None:
    """A BMC that makes each change, or none, or secure boot only after some restarts: the attempt always ends."""
    secure, sent, restarts = SecureBoot(enabled, current), set[str](), 0
    for _ in range(10):
        shown = seen(nvidia=NvidiaSystem(mode), secure_boot=secure)
        move = first_change(wants, shown, sent, restarts)
        match move:
            case None:
                if wants.secure_boot is not None and enabled is not None and current is not None:
                    assert secure.secure_boot_enable is wants.secure_boot
                return
            case Refused():
                return
            case Change(name, request):
                assert name not in sent
                sent.add(name)
                if name == "SecureBootEnable":
                    secure = SecureBoot(bool((request.body or {})["SecureBootEnable"]), current)
            case Restart():
                restarts += 1
                assert restarts <= RESTARTS_MAX
                if restarts > deaf:
                    secure = SecureBoot(
                        secure.secure_boot_enable, "Enabled" if secure.secure_boot_enable else "Disabled"
                    )
    pytest.fail("the attempt does not end")

"""Denials: all counted, few of them logged."""

from __future__ import annotations

import logging

import pytest

from commands.calls import denials
from commands.calls.denials import QUIET_S, Denials


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{r.getMessage()} {r.__dict__['principal']}" for r in caplog.records if r.name == denials.__name__]


def test_a_loop_of_denials_is_told_once_a_minute_per_principal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = Clock()
    seen = Denials(clock)
    for _ in range(1_000):
        seen.deny("viewer/ann", "no")
        seen.turn_away("ipv4:10.0.0.1", "nobody")
    assert told(caplog) == ["denied viewer/ann", "turned away ipv4:10.0.0.1"]
    assert (seen.denied, seen.unauthenticated) == (1_000, 1_000)
    clock.now_s += QUIET_S
    seen.deny("viewer/ann", "no")
    assert told(caplog)[2:] == ["denied viewer/ann"]


def test_the_principals_remembered_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denials, "PRINCIPALS_MAX", 2)
    seen = Denials(Clock())
    for name in ("a", "b", "c", "b", "a"):
        seen.deny(name, "no")
    assert told(caplog) == ["denied a", "denied b", "denied c", "denied a"]

"""Denials: all are counted, and a few are logged, each with its peer."""

from __future__ import annotations

import logging

import pytest

from commands.rpc import denials
from commands.rpc.denials import Denials
from deploy.telemetry.peer_log_sampler import AT_ONCE, PeerLogSampler


def test_a_loop_of_denials_is_counted_whole_and_logged_in_part(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    lines = PeerLogSampler()
    caplog.handler.addFilter(lines)
    seen = Denials()
    try:
        for _ in range(1_000):
            seen.count_denied("viewer/ann", "no")
            seen.count_unauthenticated("ipv4:10.0.0.1", "nobody")
    finally:
        caplog.handler.removeFilter(lines)
    messages = [f"{r.getMessage()} {r.__dict__['peer']}" for r in caplog.records if r.name == denials.__name__]
    assert messages == ["call denied viewer/ann", "caller not authenticated ipv4:10.0.0.1"] * int(AT_ONCE)
    assert (seen.denied, seen.unauthenticated) == (1_000, 1_000)

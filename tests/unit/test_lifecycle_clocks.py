"""The lifecycle of a DPU after the clock of the log was ahead and was corrected."""

from __future__ import annotations

import pytest

from projections.zones.dpus.phases import NODE_EFFECT, STEPS
from projections.zones.fold import ZonesFold
from tests.support.zones import ZonesPartition, derived_of, reloaded, rows_of


@pytest.mark.parametrize("ahead_ms", [61_000, 3_600_000, 86_400_000])
def test_an_attempt_begun_under_a_fast_clock_gets_its_normal_deadline_after_the_correction(ahead_ms: int) -> None:
    """Without the correction of rows the deadline would stay as far ahead as the clock had been."""
    log = ZonesPartition()
    log.register("early")
    log.register("late")
    for name in ("early", "late"):
        log.request(name, "provision", "image-1")
    log.start("early")
    early_ms = log.row("early").deadline_ms
    log.now_ms += ahead_ms
    log.start("late")
    now_ms = log.now_ms - ahead_ms
    ZonesFold().rewind(log.state, now_ms)
    assert log.row("early").deadline_ms == early_ms, "this attempt began before the clock error"
    assert log.row("late").deadline_ms == now_ms + STEPS[NODE_EFFECT].deadline_ms
    assert derived_of(log.state) == derived_of(reloaded(log.state))
    rows = rows_of(log.state)
    ZonesFold().rewind(log.state, now_ms)
    assert rows_of(log.state) == rows


def test_tokens_of_attempts_rise_whatever_the_clock_does() -> None:
    """The token of an attempt begins with its start time, and a device refuses a lower token."""
    log, began = ZonesPartition(), []
    log.register("d")
    log.request("d", "provision", "image-1")
    for jump_ms in (0, 3_600_000, -7_200_000, 50_000):
        log.now_ms += jump_ms
        log.start("d")
        began.append((log.row("d").began_ms, log.row("d").attempt))
        assert log.row("d").began_ms >= log.row("d").since_ms
        log.fail("d", "lost")
    assert began == sorted(set(began))


def test_a_snapshot_after_the_correction_is_not_older_than_one_under_a_fast_clock() -> None:
    log = ZonesPartition()
    log.now_ms += 3_600_000
    assert log.complete(b"first").code == "done"
    log.now_ms -= 3_600_000
    ZonesFold().rewind(log.state, log.now_ms)
    assert log.complete(b"second").reason == ""
    (row,) = log.state.snapshots.rows.values()
    assert row.list_hash == b"second"

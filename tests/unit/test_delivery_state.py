"""The delivery state of a DPU's table: one transition per message, and groups of DPUs that never lose a member."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivers.relays.delivery_state import (
    BACKOFF_LAST_S,
    WINDOW,
    DeliveryState,
    DeliveryStates,
    Target,
    after_ack,
    after_heartbeat,
    after_refusal,
    after_send,
    arrived,
    due,
)
from drivers.wire.agent_messages import NO_DIGEST, Refusal
from drivers.wire.protocol import TableStatus, numbers_of
from projections.rules.device_table import RefusalCode

NEWEST = Target(1, 9, b"n" * 16)


def status(version: int, digest: bytes = b"d" * 16, *, received: int = 0, epoch: int = 1) -> TableStatus:
    return TableStatus(1, epoch, max(received, version), version, version, digest)


def state(version: int, *, epoch: int = 1) -> DeliveryState:
    return arrived(status(version, epoch=epoch), NEWEST, None)


def refusal(version: int, kept: int, code: RefusalCode) -> Refusal:
    return Refusal(status(kept), version, code, "because")


def test_a_dpu_gets_the_frame_that_leads_to_the_target() -> None:
    assert due(arrived(TableStatus(1, 0, 0, 0, 0, NO_DIGEST), NEWEST, NO_DIGEST), NEWEST, 0.0) == "snapshot"
    assert due(state(5), NEWEST, 0.0) == "delta"
    assert due(state(9), NEWEST, 0.0) == "nothing"
    assert due(state(5), Target(1, 0, NO_DIGEST), 0.0) == "nothing"


def test_a_dpu_of_another_epoch_gets_a_snapshot_and_one_ahead_of_the_relay_nothing() -> None:
    assert due(state(500, epoch=0), NEWEST, 0.0) == "snapshot"
    assert due(state(12), NEWEST, 0.0) == "nothing"
    assert due(state(12)._replace(repair=True), NEWEST, 0.0) == "nothing"


def test_a_slow_dpu_gets_one_merged_delta_after_its_ack() -> None:
    slow = state(5)
    for version in range(6, 6 + WINDOW):
        assert due(slow, Target(1, version, b""), 0.0) == "delta"
        slow = after_send(slow, version, 0.0)
    assert due(slow, NEWEST, 1e9) == "nothing"
    answered = after_ack(slow, status(6), 1, None)
    assert (due(answered, NEWEST, 0.0), answered.sent, answered.in_flight) == ("delta", 7, (7,))


def test_receipt_alone_does_not_end_a_frame_in_flight() -> None:
    sent = after_send(after_send(state(5), 6, 0.0), 7, 0.0)
    assert after_ack(sent, status(5, received=7), 1, None).in_flight == (6, 7)


def test_a_wrong_digest_of_a_known_version_is_repaired() -> None:
    assert arrived(status(5), NEWEST, b"x" * 16).repair
    assert not arrived(status(5), NEWEST, b"d" * 16).repair
    liar = after_ack(state(5), status(5), 1, b"x" * 16)
    assert due(liar, NEWEST, 0.0) == "snapshot"
    sent = after_send(liar, 9, 0.0)
    assert not after_heartbeat(sent, status(5), 1, b"x" * 16, lost_before=-1.0).repair  # the snapshot is in flight
    assert due(after_ack(sent, status(9), 1, b"d" * 16), NEWEST, 0.0) == "nothing"


def test_a_lost_frame_is_sent_again_and_one_in_flight_is_not() -> None:
    sent = after_send(state(5), 9, 10.0)
    waiting = after_heartbeat(sent, status(5), 1, None, lost_before=9.0)
    assert due(waiting, NEWEST, 20.0) == "nothing"
    assert due(after_heartbeat(sent, status(5, received=9), 1, None, lost_before=11.0), NEWEST, 20.0) == "nothing"
    assert due(after_heartbeat(sent, status(5), 1, None, lost_before=11.0), NEWEST, 20.0) == "delta"


def test_a_lost_frame_to_a_dpu_of_another_epoch_is_sent_again() -> None:
    """The restored log has lower versions than those that the DPU has of the former log."""
    had = status(500, epoch=0)
    sent = after_send(arrived(had, NEWEST, None), 9, 10.0)
    assert due(after_heartbeat(sent, had, 1, None, lost_before=9.0), NEWEST, 20.0) == "nothing"
    assert due(after_heartbeat(sent, had, 1, None, lost_before=11.0), NEWEST, 20.0) == "snapshot"


def test_a_dpu_that_returned_to_an_older_version_gets_a_delta_from_it() -> None:
    back = after_heartbeat(state(9), status(4), 1, None, lost_before=0.0)
    assert (due(back, NEWEST, 0.0), back.sent) == ("delta", 4)


def test_a_wrong_base_is_answered_by_a_delta_from_the_held_version_and_then_by_a_snapshot() -> None:
    first = after_refusal(after_send(state(5), 9, 0.0), refusal(9, 3, RefusalCode.BASE), 0.0, 1.0)
    assert (due(first, NEWEST, 0.0), first.sent) == ("delta", 3)
    again = after_refusal(after_send(first, 9, 0.0), refusal(9, 3, RefusalCode.BASE), 0.0, 1.0)
    assert due(again, NEWEST, 0.0) == "nothing"
    assert due(again, NEWEST, again.not_before) == "snapshot"


def test_the_first_wrong_digest_is_answered_by_a_snapshot_at_once() -> None:
    first = after_refusal(after_send(state(5), 9, 0.0), refusal(9, 5, RefusalCode.DIGEST), 0.0, 1.0)
    assert due(first, NEWEST, 0.0) == "snapshot"
    assert (
        due(after_refusal(after_send(first, 9, 0.0), refusal(9, 5, RefusalCode.DIGEST), 0.0, 1.0), NEWEST, 0.0)
        == "nothing"
    )


def test_a_table_that_does_not_fit_is_retried_with_growing_waits() -> None:
    full, now, waits = state(5), 0.0, []
    for _ in range(20):
        full = after_refusal(after_send(full, 9, now), refusal(9, 5, RefusalCode.FULL), now, 1.0)
        assert due(full, NEWEST, now) == "nothing"
        waits.append(full.not_before - now)
        now = full.not_before
        assert due(full, NEWEST, now) == "delta"
    assert waits == sorted(waits)
    assert waits[-1] == BACKOFF_LAST_S
    fits = after_ack(after_send(full, 9, now), status(9), 1, None)
    assert (fits.failures, fits.not_before) == (0, 0.0)


def test_a_refusal_of_a_frame_not_in_flight_causes_no_wait() -> None:
    stale = after_refusal(after_send(state(5), 9, 0.0), refusal(7, 5, RefusalCode.FULL), 0.0, 1.0)
    assert (stale.failures, due(stale, NEWEST, 0.0)) == (0, "delta")
    older = after_refusal(after_send(state(5), 9, 0.0), refusal(9, 12, RefusalCode.OLDER), 0.0, 1.0)
    assert (older.failures, older.applied, due(older, NEWEST, 0.0)) == (0, 12, "nothing")


MASKS = st.integers(0, (1 << 12) - 1)
CHANGES = st.lists(st.tuples(MASKS, st.integers(0, 3), st.sampled_from(("put", "change", "drop"))), max_size=30)


@given(CHANGES)
def test_every_dpu_has_exactly_one_state(changes: list[tuple[int, int, str]]) -> None:
    states, model = DeliveryStates(), dict[int, int]()
    for mask, version, kind in changes:
        if kind == "put":
            states.put(mask, state(version))
            model.update(dict.fromkeys(numbers_of(mask), version))
        elif kind == "drop":
            states.drop(mask)
            model = {number: held for number, held in model.items() if not mask >> number & 1}
        else:
            moves = states.change(mask, lambda s, v=version: after_ack(s, status(v), 1, None))  # type: ignore[misc]
            touched = {number for move in moves for number in numbers_of(move.dpus)}
            assert touched == {number for number in model if mask >> number & 1}
            model.update(dict.fromkeys(touched, version))
        found = [(number, s.applied) for s, dpus in states.dpus.items() for number in numbers_of(dpus)]
        assert sorted(found) == sorted(model.items())
        assert all(states.dpus.values())

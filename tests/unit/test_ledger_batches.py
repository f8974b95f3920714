"""Commands admitted as a batch: only if each would be admitted alone, and with the same ledger afterwards."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.fold import DONE, RecordMetadata
from eventstore.folding.ledger import AHEAD_MS, KEEP_MS, LATE_MS, Ledger, LedgerEntry
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET_0
from schemas.events import Envelope
from tests.support.toy_records import T0

CONTENT = bytes(16)
MINUTE_MS = 60_000
START = T0 // MINUTE_MS * MINUTE_MS


def said_at(*times_ms: int, seed: int = 1) -> list[Envelope]:
    rng = random.Random(seed)
    return [envelope("s", "a", uuid7(time_ms, rng)) for time_ms in times_ms]


def together(ledger: Ledger, said: Sequence[Envelope], append_ms: Sequence[int], time_ms: int) -> bool:
    """Whether the ledger admitted these commands as a batch. It then remembers them."""
    ids = [each.command_id for each in said]
    if not ledger.admits_all(ids, [each.issued_at_ms for each in said], append_ms, time_ms):
        return False
    ledger.remember_all(ids, [LedgerEntry(CONTENT, DONE, offset) for offset in range(len(said))], time_ms)
    return True


def alone(ledger: Ledger, said: Sequence[Envelope], append_ms: Sequence[int], time_ms: int) -> bool:
    """Whether the ledger admitted each command by itself."""
    found = []
    for offset, each in enumerate(said):
        where = RecordMetadata(FLEET_0, offset, append_ms[offset], time_ms)
        found.append(ledger.admit(each, CONTENT, where) is None)
        if found[-1]:
            ledger.remember(each, LedgerEntry(CONTENT, DONE, offset), time_ms)
    return all(found)


def kept(ledger: Ledger) -> tuple[object, ...]:
    return [*ledger.entries.items()], ledger.state(), ledger.unsaved()


@given(
    st.lists(st.sampled_from([0, 1, LATE_MS, LATE_MS + 1, -AHEAD_MS, -AHEAD_MS - 1, 500]), min_size=1, max_size=4),
    st.lists(st.sampled_from([0, 1, 2]), max_size=4),
    st.sampled_from([0, 1, MINUTE_MS, KEEP_MS, KEEP_MS + MINUTE_MS]),
    st.integers(0, 3),
)
def test_commands_admitted_as_a_batch_would_be_admitted_singly(
    late_ms: list[int], before: list[int], since_ms: int, copies: int
) -> None:
    now = START + 5 * MINUTE_MS + since_ms
    earlier = said_at(*(START + 5 * MINUTE_MS + each for each in before), seed=7)
    said = said_at(*(now - each for each in late_ms)) + earlier[:copies]
    one, other = Ledger(ids_max=6), Ledger(ids_max=6)
    for ledger in (one, other):
        alone(ledger, earlier, [each.issued_at_ms for each in earlier], START + 5 * MINUTE_MS)
    if together(one, said, [now] * len(said), now):
        assert alone(other, said, [now] * len(said), now)
        assert kept(one) == kept(other)


@pytest.mark.parametrize(
    ("late_ms", "taken"), [(LATE_MS, True), (LATE_MS + 1, False), (-AHEAD_MS, True), (-AHEAD_MS - 1, False)]
)
def test_a_batch_is_admitted_up_to_the_edges_of_its_window(late_ms: int, taken: bool) -> None:
    """The window refers to append times. Fold time may be later, as after a clock that jumped back."""
    assert together(Ledger(), said_at(START - late_ms), [START], START + 2 * MINUTE_MS) == taken


def test_a_batch_is_admitted_only_while_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(ids_max=4)
    assert together(ledger, said_at(START, START), [START] * 2, START)
    assert together(ledger, said_at(START, START, seed=2), [START] * 2, START)
    assert not together(ledger, said_at(START, seed=3), [START], START)
    monkeypatch.setattr("eventstore.folding.ledger._BUCKET_IDS", 3)
    small, now = Ledger(), START + MINUTE_MS // 2
    assert not together(small, said_at(now, now, now, now), [now] * 4, now)
    assert together(small, said_at(now, now), [now] * 2, now)
    assert together(small, said_at(now, seed=2), [now], now)
    assert not together(small, said_at(now, seed=3), [now], now)


def test_a_bucket_holds_a_limited_number_of_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventstore.folding.ledger._BUCKET_IDS", 3)
    ledger = Ledger()
    assert alone(ledger, said_at(*[START] * 8), [START] * 8, START)
    assert [len(ids) for _, ids in sorted(ledger.unsaved().added.items())] == [3, 3, 2]


def test_new_ids_in_a_saved_and_forgotten_bucket_are_saved() -> None:
    ledger = Ledger(ids_max=2)
    alone(ledger, said_at(START, START), [START] * 2, START)
    ledger.mark_saved()
    alone(ledger, said_at(START + 1, seed=2), [START + 1], START + 1)
    assert not ledger.entries
    alone(ledger, said_at(START + 2, seed=3), [START + 2], START + 2)
    added = ledger.unsaved().added
    assert [command_id for ids in added.values() for command_id in ids] == [*ledger.entries]
    assert len(ledger.entries) == 1


def test_a_batch_with_a_forgotten_id_is_not_admitted() -> None:
    ledger = Ledger()
    first = said_at(START)
    assert together(ledger, first, [START], START)
    now = START + KEEP_MS + MINUTE_MS
    assert together(ledger, said_at(now, seed=2), [now], now)
    assert ledger.has_forgotten(first[0].command_id)
    assert not together(ledger, first, [START], now)
    assert together(ledger, said_at(START + 1, seed=3), [START + 1], now)


@pytest.mark.parametrize(
    ("late_ms", "reason"),
    [
        (LATE_MS + 1, "command_id: expired: appended 120001 ms after its time, over the limit of 120000 ms"),
        (
            -AHEAD_MS - 1,
            "command_id: its time is 60001 ms ahead of the log, over the limit of 60000 ms; check the clocks",
        ),
    ],
)
def test_a_refusal_gives_the_window_in_milliseconds(late_ms: int, reason: str) -> None:
    entry = Ledger().admit(said_at(START)[0], CONTENT, RecordMetadata(FLEET_0, 9, START + late_ms, START))
    assert entry is not None
    assert (entry.content, entry.outcome.reason, entry.offset) == (CONTENT, reason, 9)

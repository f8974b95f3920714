"""The ledger: a command takes effect at most once, and an expired command never, whatever the clocks do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eventstore.folding.fold import DONE, RecordMetadata, fold_time
from eventstore.folding.ledger import AHEAD_MS, KEEP_MS, LATE_MS, Ledger, LedgerEntry
from eventstore.folding.used_ids import RANGES_MAX
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET_0
from projections.field_checks import is_printable
from schemas.events import Envelope
from tests.support.toy_records import T0

RNG = random.Random(3)
CONTENT = bytes(16)


def command(issued_ms: int = T0) -> Envelope:
    return envelope("subject", "?tester", uuid7(issued_ms, RNG))


def at(append_ms: int, time_ms: int | None = None, offset: int = 7) -> RecordMetadata:
    return RecordMetadata(FLEET_0, offset, append_ms, append_ms if time_ms is None else time_ms)


def take(ledger: Ledger, said: Envelope, where: RecordMetadata, content: bytes = CONTENT) -> LedgerEntry | None:
    """Fold a command. Returns None if it takes effect now, and otherwise its ledger entry."""
    entry = ledger.admit(said, content, where)
    if entry is None:
        ledger.remember(said, LedgerEntry(content, DONE, where.offset), where.time_ms)
    return entry


def refusal(entry: LedgerEntry | None) -> str:
    assert entry is not None
    assert entry.outcome.code == "refused"
    return entry.outcome.reason


def test_a_repeat_has_the_outcome_and_offset_of_the_first() -> None:
    ledger, said = Ledger(), command()
    assert take(ledger, said, at(T0, offset=7)) is None
    assert take(ledger, said, at(T0 + 5, offset=9)) == LedgerEntry(CONTENT, DONE, 7)


def test_an_id_used_for_another_body_or_by_another_principal_is_refused() -> None:
    ledger, said = Ledger(), command()
    take(ledger, said, at(T0, offset=7))
    assert f"{said.command_id} was used for another command, at offset 7" in refusal(
        take(ledger, said, at(T0), content=b"x" * 16)
    )
    assert take(ledger, said, at(T0)) == LedgerEntry(CONTENT, DONE, 7)


@pytest.mark.parametrize("late_ms", [0, LATE_MS, -AHEAD_MS])
def test_a_command_is_accepted_in_its_window(late_ms: int) -> None:
    assert take(Ledger(), command(), at(T0 + late_ms)) is None


@pytest.mark.parametrize(("late_ms", "words"), [(LATE_MS + 1, "expired"), (-AHEAD_MS - 1, "ahead")])
def test_a_command_outside_its_window_stays_refused(late_ms: int, words: str) -> None:
    ledger, said = Ledger(), command()
    assert words in refusal(take(ledger, said, at(T0 + late_ms)))
    later = at(T0, T0 + max(0, late_ms))
    assert words in refusal(take(ledger, said, later)), "a copy appended under another clock is refused too"


def test_the_window_refers_to_append_time_and_not_to_fold_time() -> None:
    assert take(Ledger(), command(), at(T0, T0 + 3_600_000)) is None


def test_outcomes_are_kept_for_ten_minutes_and_used_ids_longer() -> None:
    ledger, said = Ledger(), command()
    take(ledger, said, at(T0))
    take(ledger, command(T0 + KEEP_MS), at(T0 + KEEP_MS))
    assert said.command_id in ledger.entries
    take(ledger, command(T0 + KEEP_MS + 61_000), at(T0 + KEEP_MS + 61_000))
    assert said.command_id not in ledger.entries
    assert "expired" in refusal(take(ledger, said, at(T0)))
    assert take(ledger, command(T0 - 1), at(T0)) is None, "an earlier unused id is accepted"


def test_a_valid_command_is_accepted_at_any_age_of_the_ledger() -> None:
    ledger = Ledger()
    for minute in range(60):
        now = T0 + minute * 60_000
        assert take(ledger, command(now + AHEAD_MS), at(now)) is None
        assert take(ledger, command(now - LATE_MS), at(now)) is None


def test_ids_far_ahead_stay_refused_and_do_not_affect_others() -> None:
    ledger, ahead = Ledger(), command(T0 + 3_600_000)
    assert "ahead" in refusal(take(ledger, ahead, at(T0)))
    for minutes in range(10, 70, 10):
        assert take(ledger, command(T0 + minutes * 60_000), at(T0 + minutes * 60_000)) is None
    assert "expired" in refusal(take(ledger, ahead, at(T0 + 3_600_000)))


@pytest.mark.parametrize("fast_ms", [15 * 60_000, 24 * 3_600_000])
@pytest.mark.parametrize("ahead_ms", [120_000, 9 * 60_000, 3_600_000, 40 * 3_600_000])
def test_a_fast_clock_refuses_no_command_after_its_correction(fast_ms: int, ahead_ms: int) -> None:
    """The floor under forgotten ids once lay in the future, and refused commands for as long as the clock was ahead."""
    ledger, used, time_ms = Ledger(), [], T0
    for since_ms in range(0, fast_ms, 30_000):
        now = T0 + since_ms + ahead_ms
        used.append(command(now))
        time_ms = fold_time(time_ms, now)
        assert take(ledger, used[-1], at(now, time_ms)) is None
    for since_ms in range(fast_ms, fast_ms + 2 * ahead_ms, 30_000):
        now = T0 + since_ms
        time_ms = fold_time(time_ms, now)
        assert take(ledger, command(now), at(now, time_ms)) is None
        assert take(ledger, used[since_ms // 30_000 % len(used)], at(now, time_ms)) is not None


def test_too_many_ids_are_forgotten_oldest_first_and_stay_refused() -> None:
    ledger = Ledger(ids_max=100)
    said = [command(T0 + i * 1_000) for i in range(300)]
    for i, one in enumerate(said):
        assert take(ledger, one, at(T0 + i * 1_000)) is None
        assert len(ledger.entries) <= 100
    for one in said:
        assert take(ledger, one, at(one.issued_at_ms)) is not None
    assert take(ledger, command(T0 + 301_000), at(T0 + 301_000)) is None


def test_the_oldest_ids_of_a_minute_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventstore.folding.ledger._BUCKET_IDS", 10)
    ledger = Ledger(ids_max=50)
    said = [command(T0 + i) for i in range(300)]
    for i in range(0, 300, 2):
        for one in (said[i], said[i + 1]):
            assert take(ledger, one, at(T0 + i, offset=i)) is None
        remembered = [each.command_id in ledger.entries for each in said[: i + 2]]
        assert remembered == sorted(remembered), "an older id is still in memory"


@pytest.mark.parametrize("command_id", ["x", "018bcfe5-6800-4d8e-91b7-584a2265b1f5", "z" * 36])
def test_a_malformed_id_is_refused_and_not_remembered(command_id: str) -> None:
    ledger = Ledger()
    assert "UUIDv7" in refusal(take(ledger, Envelope(command_id, "s", "a", T0), at(T0)))
    assert not ledger.entries


def test_a_malformed_id_is_cut_in_the_reason_once_ids_are_forgotten() -> None:
    """A malformed id may have any bytes and any length, and the reason is logged, stored and shown."""
    ledger = Ledger(ids_max=1)
    for _ in range(3):
        take(ledger, command(), at(T0))
    assert ledger.state()[2], "the ledger must have forgotten ids"
    reason = refusal(take(ledger, Envelope("0\x1b[31m" * 999, "s", "?tester", T0), at(T0)))
    assert "must be a UUIDv7" in reason and is_printable(reason) and len(reason) < 200


def test_a_time_that_differs_from_the_id_is_refused() -> None:
    said = command(T0)
    assert f"{T0 + 5}" in refusal(take(Ledger(), Envelope(said.command_id, "s", "a", T0 + 5), at(T0)))


Saved = dict[int, list[tuple[str, LedgerEntry]] | bytes]


def reloaded(ledger: Ledger, saved: Saved) -> Ledger:
    """A ledger saved into `saved` and loaded from it."""
    added, chunks, forgotten = ledger.unsaved()
    for bucket in forgotten:
        saved.pop(bucket, None)
    for bucket, ids in added.items():
        entries = saved.setdefault(bucket, [])
        assert isinstance(entries, list)
        entries.extend((command_id, ledger.entries[command_id]) for command_id in ids)
    saved.update(chunks)
    ledger.mark_saved()
    again = Ledger(ledger._ids_max, ledger._used._ids_max)
    again.load(ledger.ranges, saved.items())
    return again


@settings(max_examples=30, stateful_step_count=60)
class Clocks(RuleBasedStateMachine):
    """Commands and copies under clocks that jump both ways, with restarts from saved state at any point."""

    used_max = 1_000
    """More ids than the machine sends, so that no id is stored as part of a range only."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(ids_max=12, used_max=self.used_max)
        self.saved: Saved = {}
        self.append_ms = self.time_ms = T0
        self.effects: dict[str, int] = {}
        self.refused: set[str] = set()
        self.sent: list[Envelope] = []

    @rule(jump_ms=st.sampled_from([1, 700, 60_000, 200_000, 700_000, 4_000_000, -500, -90_000, -1_000_000, -4_000_000]))
    def clock_moves(self, jump_ms: int) -> None:
        self.append_ms += jump_ms

    @rule(skew_ms=st.sampled_from([0, 0, 0, -5_000, 50_000, -119_000, -130_000, 70_000, 300_000, 4_000_000]))
    def somebody_commands(self, skew_ms: int) -> None:
        self.sent.append(command(max(0, self.append_ms + skew_ms)))
        is_taken = self.land(len(self.sent) - 1)
        is_lost = self.ledger.ranges and not is_taken  # a range may refuse an unused id
        assert is_taken == (-LATE_MS <= skew_ms <= AHEAD_MS) or is_lost, "a correct command was refused"

    @rule(which=st.integers(0, 1_000))
    def a_copy_lands(self, which: int) -> None:
        if self.sent:
            self.land(which % len(self.sent))

    @rule()
    def restart(self) -> None:
        self.ledger = reloaded(self.ledger, self.saved)

    def land(self, which: int) -> bool:
        said = self.sent[which]
        self.time_ms = fold_time(self.time_ms, self.append_ms)
        entry = take(self.ledger, said, RecordMetadata(FLEET_0, which, self.append_ms, self.time_ms))
        if entry is None:
            self.effects[said.command_id] = self.effects.get(said.command_id, 0) + 1
        elif entry.outcome.code == "refused" and said.command_id not in self.effects:
            self.refused.add(said.command_id)
        return entry is None

    @invariant()
    def at_most_once(self) -> None:
        assert all(count == 1 for count in self.effects.values())

    @invariant()
    def what_was_refused_has_no_effect(self) -> None:
        assert not self.refused & self.effects.keys()

    @invariant()
    def bounded(self) -> None:
        assert len(self.ledger.entries) <= 12
        assert len(self.ledger._used) <= self.used_max
        assert len(self.ledger.ranges) <= RANGES_MAX


class ClocksOfASmallLedger(Clocks):
    """The same machine with a ledger that stores most ids as ranges only."""

    used_max = 0


TestClocks = Clocks.TestCase
TestClocksOfASmallLedger = ClocksOfASmallLedger.TestCase


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(0, 79), st.sampled_from([0, 7, 1_000]))
def test_a_ledger_reloaded_at_any_point_continues_unchanged(steps: list[int], cut: int, used_max: int) -> None:
    rng = random.Random(4)
    one, other = Ledger(20, used_max), Ledger(20, used_max)
    saved: Saved = {}
    now = T0
    for number, minutes in enumerate(steps):
        now += minutes * 30_000
        said = envelope("s", "a", uuid7(now, rng))
        take(one, said, at(now, offset=number))
        take(other, said, at(now, offset=number))
        if number % 7 == 0 or number == cut:
            other = reloaded(other, saved)
    assert one.state() == other.state()

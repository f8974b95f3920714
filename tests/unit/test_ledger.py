"""The ledger: a command takes effect at most once, and what was refused for its time never does, whatever clocks do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eventstore.folding.fold import DONE, At
from eventstore.folding.ledger import AHEAD_MS, KEEP_MS, LATE_MS, Entry, Ledger
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET_0
from schemas.events import Envelope
from tests.support.toy_log import T0

RNG = random.Random(3)
CONTENT = bytes(16)


def command(issued_ms: int = T0) -> Envelope:
    return envelope("subject", "?tester", uuid7(issued_ms, RNG))


def at(append_ms: int, time_ms: int | None = None, offset: int = 7) -> At:
    return At(FLEET_0, offset, append_ms, append_ms if time_ms is None else time_ms)


def take(ledger: Ledger, said: Envelope, where: At, content: bytes = CONTENT) -> Entry | None:
    """Fold a command: None if it takes effect now, else what was decided of it."""
    entry = ledger.admit(said, content, where)
    if entry is None:
        ledger.remember(said, Entry(content, DONE, where.offset), where.time_ms)
    return entry


def refusal(entry: Entry | None) -> str:
    assert entry is not None
    assert entry.outcome.code == "refused"
    return entry.outcome.reason


def test_a_repeat_has_the_outcome_and_offset_of_the_first() -> None:
    ledger, said = Ledger(), command()
    assert take(ledger, said, at(T0, offset=7)) is None
    assert take(ledger, said, at(T0 + 5, offset=9)) == Entry(CONTENT, DONE, 7)


def test_an_id_used_for_another_body_or_by_another_principal_is_refused() -> None:
    ledger, said = Ledger(), command()
    take(ledger, said, at(T0, offset=7))
    assert f"{said.command_id} was used for another command, at offset 7" in refusal(
        take(ledger, said, at(T0), content=b"x" * 16)
    )
    assert take(ledger, said, at(T0)) == Entry(CONTENT, DONE, 7)


@pytest.mark.parametrize("late_ms", [0, LATE_MS, -AHEAD_MS])
def test_a_command_is_taken_in_its_window(late_ms: int) -> None:
    assert take(Ledger(), command(), at(T0 + late_ms)) is None


@pytest.mark.parametrize(("late_ms", "words"), [(LATE_MS + 1, "expired"), (-AHEAD_MS - 1, "ahead")])
def test_a_command_out_of_its_window_is_refused_for_ever(late_ms: int, words: str) -> None:
    ledger, said = Ledger(), command()
    assert words in refusal(take(ledger, said, at(T0 + late_ms)))
    later = at(T0, T0 + max(0, late_ms))
    assert words in refusal(take(ledger, said, later)), "a copy stamped by another clock"


def test_the_window_is_about_append_time_so_a_clock_that_jumped_back_refuses_nobody() -> None:
    assert take(Ledger(), command(), at(T0, T0 + 3_600_000)) is None


def test_ids_are_remembered_for_ten_minutes_and_then_under_the_floor() -> None:
    ledger, said = Ledger(), command()
    take(ledger, said, at(T0))
    take(ledger, command(T0 + KEEP_MS), at(T0 + KEEP_MS))
    assert said.command_id in ledger.entries
    take(ledger, command(T0 + KEEP_MS + 61_000), at(T0 + KEEP_MS + 61_000))
    assert said.command_id not in ledger.entries
    assert "expired" in refusal(take(ledger, said, at(T0)))
    earlier_unseen = command(T0 - 1)
    assert "expired" in refusal(take(ledger, earlier_unseen, at(T0)))


def test_the_floor_never_comes_near_the_present_by_age() -> None:
    ledger = Ledger()
    for minute in range(60):
        now = T0 + minute * 60_000
        assert take(ledger, command(now + AHEAD_MS), at(now)) is None
        assert take(ledger, command(now - LATE_MS), at(now)) is None


def test_ids_far_ahead_are_refused_and_do_not_lift_the_floor() -> None:
    ledger = Ledger()
    assert "ahead" in refusal(take(ledger, command(T0 * 2), at(T0)))
    assert not ledger.entries
    take(ledger, command(T0 + 3_600_000), at(T0 + 3_600_000))
    assert ledger.floor == ""


def test_ids_somewhat_ahead_are_remembered_until_their_own_time_is_past() -> None:
    ledger, ahead = Ledger(), command(T0 + KEEP_MS - 5_000)
    assert "ahead" in refusal(take(ledger, ahead, at(T0)))
    now = T0 + KEEP_MS + 65_000
    assert take(ledger, command(T0 + KEEP_MS - 10_000), at(now)) is None
    assert "ahead" in refusal(take(ledger, ahead, at(now)))


def test_too_many_ids_are_forgotten_oldest_first_and_stay_refused() -> None:
    ledger = Ledger(ids_max=100)
    said = [command(T0 + i * 1_000) for i in range(300)]
    for i, one in enumerate(said):
        assert take(ledger, one, at(T0 + i * 1_000)) is None
        assert len(ledger.entries) <= 100
    for one in said:
        assert take(ledger, one, at(one.issued_at_ms)) is not None
    assert take(ledger, command(T0 + 301_000), at(T0 + 301_000)) is None


def test_in_a_minute_of_more_ids_than_are_kept_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventstore.folding.ledger._BUCKET_IDS", 10)
    ledger = Ledger(ids_max=50)
    said = [command(T0 + i) for i in range(300)]
    for i in range(0, 300, 2):
        now = at(T0 + i, offset=i)
        assert take(ledger, said[i + 1], now) is None
        assert take(ledger, said[i], now) is None, "it was overtaken by one other only"
        assert ledger.floor < said[max(0, i - 30)].command_id


@pytest.mark.parametrize("command_id", ["x", "018bcfe5-6800-4d8e-91b7-584a2265b1f5", "z" * 36])
def test_what_is_no_id_of_ours_is_refused_and_never_remembered(command_id: str) -> None:
    ledger = Ledger()
    assert "UUIDv7" in refusal(take(ledger, Envelope(command_id, "s", "a", T0), at(T0)))
    assert not ledger.entries


def test_what_is_no_id_of_ours_is_not_quoted_whole_once_there_is_a_floor() -> None:
    """It may be any bytes of any length, and the reason is logged, stored and shown."""
    ledger = Ledger(ids_max=1)
    for _ in range(3):
        take(ledger, command(), at(T0))
    assert ledger.floor
    reason = refusal(take(ledger, Envelope("0\x1b[31m" * 999, "s", "?tester", T0), at(T0)))
    assert "is not a UUIDv7" in reason and reason.isprintable() and len(reason) < 200


def test_a_time_that_is_not_that_of_the_id_is_refused() -> None:
    said = command(T0)
    assert f"{T0 + 5}" in refusal(take(Ledger(), Envelope(said.command_id, "s", "a", T0 + 5), at(T0)))


def reloaded(ledger: Ledger, saved: dict[int, list[tuple[str, Entry]]]) -> Ledger:
    """A ledger saved into `saved` and loaded from it."""
    added, forgotten = ledger.unsaved()
    for bucket in forgotten:
        saved.pop(bucket, None)
    for bucket, ids in added.items():
        saved.setdefault(bucket, []).extend((command_id, ledger.entries[command_id]) for command_id in ids)
    ledger.mark_saved()
    again = Ledger(ledger._ids_max)
    again.load(ledger.floor, saved.items())
    return again


@settings(max_examples=30, stateful_step_count=60)
class Clocks(RuleBasedStateMachine):
    """Commands, copies, clocks that jump either way, restarts from saved state at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(ids_max=12)
        self.saved: dict[int, list[tuple[str, Entry]]] = {}
        self.append_ms = self.time_ms = T0
        self.effects: dict[str, int] = {}
        self.refused: set[str] = set()
        self.sent: list[Envelope] = []

    @rule(jump_ms=st.sampled_from([1, 700, 60_000, 200_000, 700_000, 4_000_000, -500, -90_000, -1_000_000]))
    def clock_moves(self, jump_ms: int) -> None:
        self.append_ms += jump_ms

    @rule(skew_ms=st.sampled_from([0, 0, 0, -5_000, 50_000, -119_000, -130_000, 70_000, 300_000]))
    def somebody_commands(self, skew_ms: int) -> None:
        self.sent.append(command(max(0, self.append_ms + skew_ms)))
        self.land(len(self.sent) - 1)

    @rule(which=st.integers(0, 1_000))
    def a_copy_lands(self, which: int) -> None:
        if self.sent:
            self.land(which % len(self.sent))

    @rule()
    def restart(self) -> None:
        self.ledger = reloaded(self.ledger, self.saved)

    def land(self, which: int) -> None:
        said = self.sent[which]
        self.time_ms = max(self.time_ms, self.append_ms)
        entry = take(self.ledger, said, At(FLEET_0, which, self.append_ms, self.time_ms))
        if entry is None:
            self.effects[said.command_id] = self.effects.get(said.command_id, 0) + 1
        elif entry.outcome.code == "refused" and said.command_id not in self.effects:
            self.refused.add(said.command_id)

    @invariant()
    def at_most_once(self) -> None:
        assert all(count == 1 for count in self.effects.values())

    @invariant()
    def what_was_refused_has_no_effect(self) -> None:
        assert not self.refused & self.effects.keys()

    @invariant()
    def bounded(self) -> None:
        assert len(self.ledger.entries) <= 12


TestClocks = Clocks.TestCase


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(0, 79))
def test_a_ledger_saved_at_any_point_goes_on_as_if_it_had_not_been(steps: list[int], cut: int) -> None:
    rng = random.Random(4)
    one, other = Ledger(ids_max=20), Ledger(ids_max=20)
    saved: dict[int, list[tuple[str, Entry]]] = {}
    now = T0
    for number, minutes in enumerate(steps):
        now += minutes * 30_000
        said = envelope("s", "a", uuid7(now, rng))
        take(one, said, at(now, offset=number))
        take(other, said, at(now, offset=number))
        if number % 7 == 0 or number == cut:
            other = reloaded(other, saved)
    assert (one.entries, one.floor) == (other.entries, other.floor)

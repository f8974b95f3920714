"""What is owed to the decisions topic: nothing of it is lost, nothing is out twice, and it keeps to its bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drivers.decisions.kept import Kept, kept, kept_of
from drivers.decisions.owed import FORGOTTEN_EVERY, KEPT_RECORDS, SEEN_MAX, Gap, Owed, Room
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun
from eventstore.folding.fold import DONE, RecordMetadata
from eventstore.log import ZONES, Partition, Record
from tests.support.sometimes import Sometimes, sized

ZONES_0 = Partition(ZONES, 0)
SIZE_MAX = 9
ROOM = 30
STEP = 4
"""Decisions that are made again at once."""
TAKEN = 5


def size_of(offset: int) -> int:
    return 1 + offset * 5 % SIZE_MAX


def at(offset: int) -> RecordMetadata:
    return RecordMetadata(ZONES_0, offset, offset, offset)


def decided_record(offset: int) -> DecidedRecord:
    event: Any = None
    return DecidedRecord(event, None, DONE, at(offset), 1, bytes(size_of(offset)))


class Changes:
    """As much of a fold as a run of decisions asks for."""

    def changes_of_run(self, change: int) -> list[None]:
        return [None] * change


def run(start: int, count: int) -> DecidedRun:
    records = [Record(offset, offset, b"", bytes(size_of(offset))) for offset in range(start, start + count)]
    fold: Any = Changes()
    return DecidedRun(records, fold, count, at(start), 1)


def again(start: int, end: int) -> list[Kept]:
    return [kept(decided_record(offset)) for offset in range(start, end)]


def offsets(decisions: list[Kept]) -> list[int]:
    return [decision.at.offset for decision in decisions]


SOMETIMES = Sometimes(
    "there was no room",
    "a gap spanned what came out",
    "some were put back",
    "others had written some",
    "it was restarted",
    "all was written",
)


class OwedMachine(RuleBasedStateMachine):
    """Every offset below `position` was decided; those in `stands` are in the topic, by us or by others."""

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.stands: set[int] = set()
        self.saved = (0, 0)
        self.start()

    def start(self) -> None:
        self.room = Room(ROOM)
        self.owed = Owed(self.room)
        self.out: list[Kept] = []
        self.side: int | None = None
        self.writes = False

    # -- the fold

    @rule(count=st.integers(1, 3))
    def some_are_decided(self, count: int) -> None:
        for _ in range(count):
            self.tell(decided_record(self.position), 1)

    @rule(count=st.integers(1, 8))
    def a_run_is_decided(self, count: int) -> None:
        assert offsets([*kept_of(run(self.position, count))]) == [*range(self.position, self.position + count)]
        self.tell(run(self.position, count), count)

    def tell(self, told: DecidedRecord | DecidedRun, count: int) -> None:
        left_bytes = self.room.left_bytes
        self.owed.on_decision(told)
        self.position += count
        assert self.room.left_bytes in range(left_bytes) or self.room.left_bytes == left_bytes
        SOMETIMES.saw("there was no room", self.owed.gap is not None)

    @rule()
    def it_is_saved(self) -> None:
        self.saved = self.owed.owes_from(self.position), self.position

    @rule()
    def it_is_restarted(self) -> None:
        self.start()
        owed_from, self.position = self.saved
        self.owed.restored(owed_from, self.position)
        SOMETIMES.saw("it was restarted", owed_from < self.position)

    # -- what others wrote

    @rule(back=st.integers(-3, 20))
    def another_has_written(self, back: int) -> None:
        offset = max(0, self.position - back)
        self.stands.add(offset)
        self.owed.seen(offset, self.position)

    @rule(back=st.integers(0, 20))
    @precondition(lambda self: not self.writes)
    def others_have_written_up_to(self, back: int) -> None:
        self.stands.update(range(self.position - back))
        self.owed.known_before(self.position - back)

    # -- whoever writes

    @rule(count=st.integers(1, STEP))
    @precondition(lambda self: self.owed.gap is not None and self.owed.has_room)
    def some_are_made_again(self, count: int) -> None:
        assert self.owed.gap is not None
        side = self.owed.gap.start - 1 if self.side is None else self.side
        self.owed.made_again(again(max(0, side), side + count), side + count)
        self.side = None if self.owed.gap is None else side + count

    @rule(count=st.integers(1, TAKEN), late=st.integers(0, 6))
    @precondition(lambda self: not self.out)
    def some_are_taken(self, count: int, late: int) -> None:
        owes_from = self.owed.owes_from(self.position)
        before_ms = self.position - late if late else None
        self.writes = True
        self.out = self.owed.take(count, before_ms)
        taken = offsets(self.out)
        assert len(taken) == len({*taken}) <= count
        assert all(owes_from <= offset < self.position - late + bool(late) for offset in taken)
        gap = self.owed.gap or Gap(0, 0)
        SOMETIMES.saw("a gap spanned what came out", any(gap.start <= offset < gap.end for offset in taken))
        SOMETIMES.saw("others had written some", not self.stands.isdisjoint(range(self.position)))

    @rule(lost=st.sets(st.integers(0, TAKEN - 1)))
    @precondition(lambda self: self.out)
    def some_are_written(self, lost: set[int]) -> None:
        back = [decision for number, decision in enumerate(self.out) if number in lost]
        self.owed.put_back(back)
        self.owed.done(self.out)
        self.stands.update({*offsets(self.out)} - {*offsets(back)})
        self.out = []
        SOMETIMES.saw("some were put back", bool(back))

    @rule(sure=st.integers(0, 3))
    @precondition(lambda self: not self.out)
    def all_are_written(self, sure: int) -> None:
        if sure:
            return
        for _ in range(20 * (self.position + ROOM)):
            if self.owed.gap is not None and self.owed.has_room:
                self.some_are_made_again(STEP)
            self.some_are_taken(TAKEN, 0)
            self.some_are_written(set())
            if self.owed.gap is None and not self.owed.waits():
                break
        assert self.stands >= {*range(self.position)}
        assert self.owed.owes_from(self.position) == self.position
        assert self.room.left_bytes == ROOM
        SOMETIMES.saw("all was written", self.position > 0)

    # -- what holds always

    @invariant()
    def a_save_now_would_remember_all_that_is_owed(self) -> None:
        owes_from = self.owed.owes_from(self.position)
        assert owes_from <= self.position
        assert self.stands >= {*range(owes_from)}

    @invariant()
    def it_keeps_to_its_room(self) -> None:
        assert -(STEP + TAKEN) * SIZE_MAX <= self.room.left_bytes <= ROOM
        assert 0.0 <= self.owed.fullness <= 1.0


TestOwed = sized(OwedMachine, 100, 60, SOMETIMES)


def told(*offsets: int, room: Room | None = None) -> Owed:
    owed = Owed(room or Room())
    for offset in offsets:
        owed.on_decision(decided_record(offset))
    return owed


def test_what_one_partition_keeps_is_room_that_another_has_not() -> None:
    room = Room(sum(size_of(offset) for offset in range(3)))
    busy, quiet = told(0, 1, 2, room=room), Owed(room)
    assert busy.gap is None
    quiet.on_decision(decided_record(3))
    assert quiet.gap == Gap(3, 4)
    busy.take(3, None)
    busy.on_decision(decided_record(4))
    assert busy.gap is None


def test_of_large_records_few_are_taken_at_once() -> None:
    owed = told(1, 1 + SIZE_MAX, 1 + 2 * SIZE_MAX, 1 + 3 * SIZE_MAX, 1 + 4 * SIZE_MAX)
    assert [len(owed.take(9, None, 10)) for _ in range(4)] == [2, 2, 1, 0]


def test_the_first_unwritten_decision_is_what_a_save_remembers() -> None:
    owed = Owed(Room())
    assert owed.owes_from(7) == 7
    for offset in range(1, 6):
        owed.on_decision(decided_record(offset))
    taken = owed.take(2, None)
    assert offsets(taken) == [1, 2]
    assert owed.owes_from(6) == 1
    owed.put_back(taken[:1])
    owed.done(taken)
    assert owed.owes_from(6) == 1
    owed.seen(1, 6)
    assert offsets(owed.take(9, None)) == [3, 4, 5]
    owed.restored(2, 6)
    assert owed.gap == Gap(2, 6)


@pytest.mark.parametrize("owed_from, gap", [(0, Gap(0, 6)), (5, Gap(5, 6)), (6, None)])
def test_all_that_a_save_remembered_is_owed_after_a_restart(owed_from: int, gap: Gap | None) -> None:
    owed = Owed(Room())
    owed.restored(owed_from, 6)
    assert owed.gap == gap
    assert owed.owes_from(6) == owed_from


def test_what_an_earlier_life_owed_is_made_again_though_others_wrote_later_ones() -> None:
    """The last records of the topic say nothing of it: whoever wrote those may have had a gap there, too."""
    owed = Owed(Room())
    owed.restored(2, 6)
    owed.known_before(5)
    assert owed.gap == Gap(2, 6)
    owed.known_before(6)
    assert owed.gap == Gap(2, 6)


def test_what_was_told_and_not_kept_is_made_again_only_where_nobody_wrote_it() -> None:
    owed = told(0, 1, room=Room(0))
    owed.on_decision(run(2, 4))
    assert owed.gap == Gap(0, 6)
    owed.known_before(5)
    assert owed.gap == Gap(5, 6)
    owed.known_before(6)
    assert owed.gap is None


def test_what_is_kept_and_made_again_comes_out_once_at_a_time() -> None:
    owed = told(*range(5))
    owed.miss(Gap(0, 5))
    owed.made_again(again(0, 2), 2)
    taken = owed.take(16, None)
    assert sorted(offsets(taken)) == [0, 1, 2, 3, 4]
    owed.put_back(taken)
    assert offsets(owed.take(16, None)) == offsets(taken)


def test_what_is_made_again_takes_room_by_its_bytes_and_by_its_number() -> None:
    room = Room(100)
    owed = Owed(room)
    owed.restored(0, 100_000)
    large = kept(decided_record(0))._replace(value=bytes(101))
    owed.made_again([large], 1)
    assert not owed.has_room
    owed.done(owed.take(1, None))
    assert owed.has_room
    room.left_bytes = 1 << 30
    owed.made_again(again(1, KEPT_RECORDS // 10), KEPT_RECORDS // 10)
    assert owed.has_room
    owed.made_again(again(KEPT_RECORDS // 10, KEPT_RECORDS // 10 + 1), KEPT_RECORDS // 10 + 1)
    assert not owed.has_room


def test_how_full_it_is_follows_the_scarcer_of_records_and_bytes() -> None:
    records = told(*range(KEPT_RECORDS // 4))
    assert records.fullness == 0.25, "by their number"
    room = Room(2 * size_of(0) + 2 * size_of(1))
    owed, other = told(0, 1, room=room), Owed(room)
    assert owed.fullness == other.fullness == 0.5, "by what all partitions keep together"
    taken = owed.take(2, None)
    assert owed.fullness == 0.0
    owed.put_back(taken)
    assert owed.fullness == 0.5


def test_while_anything_is_missed_it_is_full() -> None:
    owed = Owed(Room())
    owed.miss(Gap(3, 5))
    assert owed.fullness == 1.0
    owed.made_again(again(3, 5), 5)
    assert 0.0 < owed.fullness < 1.0


class Asked(Owed):
    """Counts how often it looked for what is needed no more."""

    def __init__(self) -> None:
        super().__init__(Room())
        self.looks = 0

    def owes_from(self, position: int) -> int:
        self.looks += 1
        return super().owes_from(position)


def test_what_others_wrote_behind_an_old_gap_is_not_looked_through_for_each_record() -> None:
    owed = Asked()
    owed.restored(0, SEEN_MAX * 2)
    for offset in range(SEEN_MAX + 5 * FORGOTTEN_EVERY):
        owed.seen(offset, SEEN_MAX * 2)
    assert 1 < owed.looks <= 6


def test_what_others_wrote_is_forgotten_once_it_is_needed_no_more() -> None:
    owed, count = Asked(), SEEN_MAX + 10
    for offset in range(count):
        owed.seen(offset, offset)
    assert owed.looks == 1
    for offset in range(count - 5, count + 1):
        owed.on_decision(decided_record(offset))
    assert offsets(owed.take(9, None)) == [count]

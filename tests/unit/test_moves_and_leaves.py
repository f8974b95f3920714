"""Moves and leaves of one node, at every interleaving of forwards and of deliveries from fleet's outbox.

Several zones partitions and fleet run as pure folds on one clock, and each record moves between them by an explicit
step. The clock may run ahead and be corrected. An oracle predicts the final zone of the node from the accepted
statements and their order alone. Once every record is delivered, zones and fleet agree with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.folding.fold import Outcome
from eventstore.log import partition_of
from projections.forwarding.fleet_to_zones import next_record
from projections.forwarding.zones_to_fleet import forward
from tests.support.fleet import PARTITIONS, Fleet
from tests.support.zones import ZonesPartition

NODE = "n"
ROUNDS = 50
"""More rounds of forwards and deliveries than any test needs."""


def zones_of(number: int, count: int) -> list[str]:
    """The names of `count` zones of a partition."""
    found = (zone for zone in map("z{}".format, range(999)) if partition_of(zone.encode(), PARTITIONS) == number)
    return [zone for zone, _ in zip(found, range(count), strict=False)]


ZONES = {"A": zones_of(0, 2)[0], "a": zones_of(0, 2)[1], "B": zones_of(1, 1)[0], "C": zones_of(2, 1)[0]}
"""Zones by a letter; A and a share a partition."""


class LastStatement(NamedTuple):
    """The last statement about the node in one partition; `left` is 0 while the node is present."""

    zone: str
    created: int
    stated: int
    left: int

    def ends(self, other: LastStatement) -> bool:
        """Whether this leave ends `other`, a statement in another partition."""
        if not self.left:
            return False
        if other.created < self.created:
            return other.stated < self.left
        return other.created == self.created and other.stated < self.stated


AHEAD_MS = 20 * 60_000
"""The error of a clock that is ahead."""


class ZonesAndFleet:
    """Steps are `join`, `change` and `leave` of the one node in a zone, given by its letter, and `forward`, `deliver`
    and `prune` of the partition of that zone. `fast` and `right` set the clock of all partitions and ignore the letter.
    """

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.logs = [ZonesPartition() for _ in range(PARTITIONS)]
        self.statements: dict[int, LastStatement] = {}
        self._left_at: dict[int, int] = {}
        self.now = self.fleet.now_ms
        self.ahead_ms = 0

    def step(self, what: str, letter: str, created: int = 5) -> bool:
        """Run one step; whether it changed anything."""
        self.now += 1
        zone = ZONES[letter]
        number = partition_of(zone.encode(), PARTITIONS)
        self.fleet.now_ms = self.now + self.ahead_ms
        self.logs[number].now_ms = self.fleet.now_ms - 1
        done: bool = getattr(self, f"_{what}")(zone, number, created)
        return done

    def deliver_all(self) -> None:
        """Forward and deliver until no record is pending."""
        for _ in range(ROUNDS):
            moved = [self.step(what, letter) for what in ("forward", "deliver") for letter in "ABC"]
            if not any(moved):
                return
        raise AssertionError(f"records still pending after {ROUNDS} rounds")

    def where(self) -> list[tuple[str, int]]:
        """The zones that contain the node, and its incarnations."""
        rows = (log.state.nodes.rows.get(NODE) for log in self.logs)
        return [(row.zone, row.created_ms) for row in rows if row is not None]

    def member(self) -> list[tuple[str, int]]:
        """The zone and incarnation that fleet has for the node."""
        row = self.fleet.state.members.rows.get(NODE)
        return [] if row is None else [(row.zone, row.created_ms)]

    def expected(self) -> list[tuple[str, int]]:
        """The expected zone and incarnation, from the statements accepted by zones."""
        there = [
            statement
            for number, statement in self.statements.items()
            if not statement.left
            and not any(other.ends(statement) for at, other in self.statements.items() if at != number)
        ]
        return [
            (statement.zone, statement.created)
            for statement in sorted(there, key=lambda statement: statement[1:3])[-1:]
        ]

    def may_state(self, zone: str, created: int) -> bool:
        """Whether the order of statements decides about this incarnation. It does not if a newer incarnation left this
        partition, or left another partition and fleet has not forwarded that leave yet: the caller cannot know of it.
        """
        here = partition_of(zone.encode(), PARTITIONS)
        for number, statement in self.statements.items():
            if number not in self._left_at:
                continue
            is_told = number != here and self.fleet.state.marks.get(number, 0) > self._left_at[number]
            if created < statement.created and statement.left and not is_told:
                return False
        return True

    def _join(self, zone: str, number: int, created: int) -> bool:
        if not self.may_state(zone, created):
            return False
        labels = {"said": str(self.now)}
        log = self.logs[number]
        return self._stated(log.join(NODE, zone=zone, created_ms=created, uid="u", labels=labels), zone, number)

    def _change(self, zone: str, number: int, created: int) -> bool:
        row = self.logs[number].state.nodes.rows.get(NODE)
        if row is None or not self.may_state(zone, row.created_ms):
            return False
        return self._stated(self.logs[number].change(NODE, zone=zone, address=self.now), zone, number)

    def _leave(self, zone: str, number: int, created: int) -> bool:
        before = self.logs[number].state.nodes.rows.get(NODE)
        self.logs[number].leave(NODE, zone=zone)
        if before is None or before.zone != zone:
            return False
        self.statements[number] = self.statements[number]._replace(left=self.now)
        self._left_at[number] = self.logs[number].end - 1
        return True

    def _stated(self, outcome: Outcome, zone: str, number: int) -> bool:
        if outcome.code == "done":
            self.statements[number] = LastStatement(
                zone, self.logs[number].state.nodes.rows[NODE].created_ms, self.now, 0
            )
        return outcome.code == "done"

    def _forward(self, zone: str, number: int, created: int) -> bool:
        event = forward(self.logs[number].state, number, self.fleet.state.marks.get(number, 0))
        return event is not None and self.fleet.apply(event).code == "done"

    def _deliver(self, zone: str, number: int, created: int) -> bool:
        log = self.logs[number]
        event = next_record(self.fleet.state, number, log.state.fleet_mark)
        return event is not None and log.append(event).code == "done"

    def _fast(self, zone: str, number: int, created: int) -> bool:
        self.ahead_ms = AHEAD_MS
        return True

    def _right(self, zone: str, number: int, created: int) -> bool:
        self.ahead_ms = 0
        return True

    def _prune(self, zone: str, number: int, created: int) -> bool:
        return self.logs[number].forwarded(self.fleet.state.marks.get(number, 0)).code == "done"


Step = tuple[str, str, int]


def run_steps(steps: Sequence[Step]) -> ZonesAndFleet:
    """The folds after these steps, with every record forwarded and delivered."""
    plane = ZonesAndFleet()
    for step in steps:
        plane.step(*step)
    plane.deliver_all()
    return plane


BETWEEN: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("forward", "A"),),
    (("forward", "B"),),
    (("forward", "A"), ("forward", "B")),
    (("forward", "B"), ("forward", "A")),
    (("forward", "A"), ("forward", "B"), ("deliver", "A"), ("prune", "B")),
    (("forward", "B"), ("forward", "A"), ("deliver", "B"), ("prune", "A")),
    (("deliver", "A"), ("deliver", "B")),
)
"""Steps of the drivers that may happen between two statements."""

STORIES = (
    "jA jB lB",
    "jB jA lB",
    "jA jB lA",
    "jA jB lB lA",
    "jA lA jB",
    "jA jB jA",
    "jA jB cA",
    "jA ja jB lB",
    "ja jA jB lA",
    "jA jB jA lA",
    "jA jB lB jA",
)
"""Each statement is j (join), l (leave) or c (change) and a zone. A and a share a partition; B is in another one."""

STATEMENTS = {"j": "join", "l": "leave", "c": "change", "F": "fast", "R": "right"}
"""F sets the clock ahead and R corrects it. No driver step happens between F and the next statement."""

NOTHING: tuple[tuple[tuple[str, str], ...], ...] = ((),)


def interleavings(story: str) -> Iterator[list[Step]]:
    """All combinations of an incarnation for each join and of driver steps between statements."""
    said = story.split()
    joins = sum(each[0] == "j" for each in said)
    for created in product((5, 6, 7), repeat=joins):
        for between in product(*(NOTHING if each == "F" else BETWEEN for each in said[:-1])):
            incarnations = iter(created)
            steps: list[Step] = []
            for each, then in zip(said, (*between, ()), strict=True):
                steps.append((STATEMENTS[each[0]], each[1:] or "A", next(incarnations) if each[0] == "j" else 0))
                steps += [(what, letter, 0) for what, letter in then]
            yield steps


def check(steps: list[Step]) -> None:
    plane = run_steps(steps)
    assert plane.where() == plane.member() == plane.expected(), steps


@pytest.mark.parametrize("story", STORIES)
def test_every_interleaving_of_a_story_agrees_with_its_statements(story: str) -> None:
    for count, steps in enumerate(interleavings(story)):
        if len(story.split()) < 4 or count % 7 == 0:  # all interleavings of long stories take a minute
            check(steps)


CLOCK_CORRECTIONS = (
    "F jA R lA jB",
    "F jA R cA lA jB",
    "F jA R cA lA F jB",
    "F jA R lA jB cB",
    "F jA cA R lA F jB",
)
"""A node joins under a fast clock. After the correction it leaves its partition and joins another one."""


@pytest.mark.parametrize("story", CLOCK_CORRECTIONS)
def test_a_join_after_a_leave_counts_although_the_former_join_had_a_fast_clock(story: str) -> None:
    """Covers the same incarnation, older and newer ones, at many interleavings."""
    for steps in islice(
        interleavings(story), 0, None, 7 if story.count(" ") < 5 else 311
    ):  # all interleavings take minutes
        check(steps)


steps = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "change", "leave", "forward", "deliver", "prune"]),
        st.sampled_from(["A", "a", "B", "C"]),
        st.sampled_from([5, 6, 7]),
    ),
    max_size=16,
)
ISSUE = [("join", "A", 5), ("forward", "A", 0), ("join", "B", 6), ("leave", "B", 0), ("forward", "B", 0)]
LATE = [("join", "A", 5), ("join", "B", 6), ("leave", "B", 0), ("forward", "B", 0), ("forward", "A", 0)]
CROSSED = [
    ("join", "A", 5),
    ("forward", "A", 0),
    ("join", "B", 5),
    ("forward", "B", 0),
    ("join", "A", 5),
    ("deliver", "A", 0),
]
"""One incarnation moves to another zone and back, while forwards and deliveries cross each other."""


@given(steps)
@example(ISSUE)
@example(LATE)
@example(CROSSED)
def test_any_statements_in_three_partitions_agree_in_the_end(steps: list[Step]) -> None:
    check(steps)


def test_a_move_and_a_leave_in_one_window_leave_no_node_behind() -> None:
    """The forward of the second zone then contains only the tombstone."""
    plane = run_steps(ISSUE)
    assert plane.where() == plane.member() == []


def test_a_late_forward_of_an_older_incarnation_does_not_bring_a_node_back() -> None:
    plane = run_steps(LATE)
    assert plane.where() == plane.member() == []


def test_a_leave_from_the_former_zone_does_not_end_the_node_in_its_new_zone() -> None:
    """One incarnation joins A, then B, and then leaves A. The forward of A comes last."""
    steps = [("join", "A", 5), ("join", "B", 5), ("forward", "B", 0), ("leave", "A", 0), ("forward", "A", 0)]
    plane = ZonesAndFleet()
    for step in steps:
        plane.step(*step)
    plane.deliver_all()
    assert plane.where() == plane.member() == plane.expected() != []

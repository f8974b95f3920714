"""Moves and leaves at every interleaving of forwards and of deliveries from fleet's outbox: at rest, zones and fleet
agree with what zones were told, whichever partition spoke first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.crossing import Crossing, Step, played

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
"""What the drivers may do between two statements."""

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
"""A letter and a zone per statement: join, leave, change. A and a share a partition, B is in another one."""

STATEMENTS = {"j": "join", "l": "leave", "c": "change", "F": "fast", "R": "right"}
"""F and R stand alone: the clock is set, wrongly and right. Nothing happens between F and what follows it."""

NOTHING: tuple[tuple[tuple[str, str], ...], ...] = ((),)


def interleavings(story: str) -> Iterator[list[Step]]:
    """Every incarnation for every join, and everything that may happen between."""
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
    plane = played(steps)
    assert plane.where() == plane.member() == plane.expected(), steps


@pytest.mark.parametrize("story", STORIES)
def test_every_interleaving_of_a_story_ends_where_its_statements_say(story: str) -> None:
    for count, steps in enumerate(interleavings(story)):
        if len(story.split()) < 4 or count % 7 == 0:  # of the long ones every seventh: all take a minute
            check(steps)


SET_RIGHT = (
    "F jA R lA jB",
    "F jA R cA lA jB",
    "F jA R cA lA F jB",
    "F jA R lA jB cB",
    "F jA cA R lA F jB",
)
"""A node leaves one partition and joins another one, and the clock goes back after it was stated, before it leaves."""


@pytest.mark.parametrize("story", SET_RIGHT)
def test_a_join_after_a_leave_stands_though_the_node_was_stated_on_a_fast_clock(story: str) -> None:
    """Of every incarnation, the same one, an older or a newer one, and at every interleaving."""
    for steps in islice(interleavings(story), 0, None, 7 if story.count(" ") < 5 else 311):  # all take minutes
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
"""One incarnation goes to and fro while what is forwarded and what is delivered from fleet's outbox crosses."""


@given(steps)
@example(ISSUE)
@example(LATE)
@example(CROSSED)
def test_any_statements_in_three_partitions_end_where_they_say(steps: list[Step]) -> None:
    check(steps)


def test_a_move_and_a_leave_in_one_window_leave_nothing_behind() -> None:
    """What a first user did: the forward of the second zone has only the tombstone."""
    plane = played(ISSUE)
    assert plane.where() == plane.member() == []


def test_a_late_forward_of_an_older_incarnation_does_not_bring_a_node_back() -> None:
    plane = played(LATE)
    assert plane.where() == plane.member() == []


def test_a_leave_of_where_the_node_was_ends_nothing_where_it_is() -> None:
    """One incarnation moves from A to B, and whoever moved it takes it away from A, all before A is forwarded."""
    steps = [("join", "A", 5), ("join", "B", 5), ("forward", "B", 0), ("leave", "A", 0), ("forward", "A", 0)]
    plane = Crossing()
    for step in steps:
        plane.step(*step)
    plane.rest()
    assert plane.where() == plane.member() == plane.expected() != []

"""Moves and leaves of one node, at every interleaving of forwards and of deliveries from fleet's outbox.

Once every record is delivered, zones and fleet agree with the order of the accepted statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.crossing import Step, ZonesAndFleet, run_steps

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

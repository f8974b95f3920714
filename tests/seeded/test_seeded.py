"""Seeded bugs are caught by the checkers that are there for them: some every time, and some that are drawn."""

from __future__ import annotations

import random
import re
from itertools import islice

from tests.seeded.bugs import Stepped
from tests.seeded.table import BUGS, judge_all
from tests.simulation.checkers import INVARIANTS

ALWAYS = ("dedup-dropped", "stale-range-accepted", "leaves-before-joins", "transition-skipped", "unbounded-window")
DRAWN = 9
PROCESSES = 2


def test_the_table_is_whole() -> None:
    """At least forty bugs, of names of their own, and one at least for every invariant that a plane can break."""
    names = [bug.name for bug in BUGS]
    assert len(names) == len(set(names)) >= 40
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    caught = {bug.caught_by for bug in BUGS}
    assert caught == {invariant.id for invariant in INVARIANTS}, "a checker that never caught anything"


def test_bugs_are_caught_and_the_sound_plane_is_not() -> None:
    drawn = sorted(random.SystemRandom().sample(BUGS, DRAWN), key=lambda bug: isinstance(bug.shown, Stepped))
    chosen = {bug.name: bug for bug in (*(bug for bug in BUGS if bug.name in ALWAYS), *drawn)}
    print(f"python -m tests.seeded --only {' '.join(chosen)}")
    verdicts = list(judge_all(list(chosen.values()), PROCESSES))
    missed = [verdict for verdict in verdicts if not verdict.is_good]
    assert not missed, "\n".join(map(str, islice(missed, 3)))

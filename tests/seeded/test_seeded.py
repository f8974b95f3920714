"""Every seeded bug is caught by its checker."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from tests.seeded.table import BUGS, judge_all
from tests.simulation.checkers import INVARIANTS

PROCESSES = 2


def test_every_invariant_has_a_seeded_bug() -> None:
    """At least forty bugs with distinct names, and at least one for every invariant."""
    names = [bug.name for bug in BUGS]
    assert len(names) == len(set(names)) >= 40
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    caught = {bug.caught_by for bug in BUGS}
    assert caught == {invariant.id for invariant in INVARIANTS}, "the invariants without a seeded bug"


@pytest.mark.timeout(1_200)
def test_every_bug_is_caught_and_no_fault_is_found_without_it() -> None:
    """About two minutes on two cores."""
    missed = [verdict for verdict in judge_all(BUGS, PROCESSES) if not verdict.is_caught]
    print(f"python -m tests.seeded --only {' '.join(verdict.bug for verdict in missed)}")
    assert not missed, "\n".join(map(str, islice(missed, 3)))

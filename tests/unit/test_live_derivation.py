"""A derivation that follows a state by the keys that changed last equals the derivation from the whole state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources.change_journal import ChangeJournal
from projections.resources.kinds import BFB, DPU_DEVICE, DPU_NODE, DPU_SET
from projections.resources.live_derivation import LiveDerivation
from projections.resources.state import Resource, ResourcesState
from tests.support.derivations import Derived, content, device, dpu_set, full, key, row
from tests.unit.test_derivation_properties import changes


def caught_up(live: LiveDerivation, state: ResourcesState) -> int:
    """Take over all changes; returns the number of slices."""
    slices = 1
    while not live.advance(state):
        slices += 1
    return slices


def hosts(count: int) -> dict[str, Resource | None]:
    """Hosts with a device each, and a DPUSet that selects all of them."""
    rows: dict[str, Resource | None] = {key(BFB, "v1"): row(), key(DPU_SET, "all"): dpu_set("v1")}
    for number in range(count):
        rows[key(DPU_NODE, f"h{number}")] = row()
        rows[key(DPU_DEVICE, f"d{number}")] = device(f"h{number}")
    return rows


def test_a_journal_tells_the_keys_since_a_revision_each_once() -> None:
    journal = ChangeJournal()
    journal.record(["a", "b"])
    seen = journal.revision
    journal.record(["c"])
    journal.record(["a"])
    assert journal.since(seen) == ["a", "c"]
    assert journal.since(journal.revision) == []


def test_a_journal_that_has_forgotten_changes_says_so() -> None:
    journal = ChangeJournal(keys_max=2)
    journal.record(["a"])
    seen = journal.revision
    journal.record(["b", "c"])
    assert journal.since(seen) == ["c", "b"]
    journal.record(["d"])
    assert journal.since(seen) is None
    assert journal.since(journal.revision - 1) == ["d"]
    journal.restart()
    assert journal.since(journal.revision - 1) is None
    assert journal.since(journal.revision) == []


def test_a_read_costs_the_changes_since_the_last_one() -> None:
    state, live, count = ResourcesState(), LiveDerivation(slice_keys=10), 20
    state.apply(hosts(count))
    assert caught_up(live, state) == (2 * count + 2) // 10 + 1
    kept = live.derivation
    state.apply({key(DPU_NODE, "h1"): None, key(DPU_DEVICE, "d2"): device("h2", labels={"x": "1"})})
    assert caught_up(live, state) == 1
    assert live.derivation is kept and content(kept) == content(full(state))


def test_a_loaded_state_and_another_state_are_derived_anew() -> None:
    live = LiveDerivation()
    first = Derived({k: v for k, v in hosts(3).items() if v is not None}).state
    caught_up(live, first)
    first.rederive()
    caught_up(live, first)
    assert content(live.derivation) == content(full(first))
    second = ResourcesState()
    second.apply(hosts(1))
    caught_up(live, second)
    assert content(live.derivation) == content(full(second))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(changes(), st.integers(0, 3)), max_size=6), st.integers(1, 4))
def test_slices_between_changes_end_in_the_same_derivation(
    steps: list[tuple[dict[str, Resource | None], int]], size: int
) -> None:
    """The state changes while the derivation is behind: some slices are taken after each change, the rest at last."""
    state, live = ResourcesState(), LiveDerivation(slice_keys=size)
    for rows, slices in steps:
        state.apply(rows)
        for _ in range(slices):
            live.advance(state)
    caught_up(live, state)
    assert content(live.derivation) == content(full(state))

"""A derivation that follows a state by the keys that changed last equals the derivation from the whole state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from projections.resources.change_journal import ChangeJournal, JournalReader
from projections.resources.kinds import BFB, DPU_DEPLOYMENT, DPU_DEVICE, DPU_NODE, DPU_SET
from projections.resources.live_derivation import LiveDerivation, live_derivation
from projections.resources.state import Resource, ResourcesState
from tests.support.deployments import deployed
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


def test_each_reader_of_a_journal_has_a_place_of_its_own_and_one_too_far_behind_reads_everything() -> None:
    journal, quick, slow = ChangeJournal(keys_max=2), JournalReader(), JournalReader()
    assert quick.read(journal) is None and slow.read(journal) is None, "at first, any object may have changed"
    for name in ("a", "b"):
        journal.record([name])
        assert quick.is_behind(journal) and quick.read(journal) == [name]
    assert not quick.is_behind(journal) and quick.read(journal) == []
    assert sorted(slow.read(journal) or ()) == ["a", "b"], "another reader's reads take nothing away"
    journal.record(["c", "d", "e"])
    assert slow.read(journal) is None and not slow.is_behind(journal)


def test_a_reader_that_meets_another_journal_reads_everything() -> None:
    earlier, later, reader = ChangeJournal(), ChangeJournal(), JournalReader()
    for journal in (earlier, later):
        journal.record(["a"])
    reader.read(earlier)
    assert reader.is_behind(later) and reader.read(later) is None


def test_the_readers_of_a_state_share_one_derivation_and_its_work() -> None:
    state, quick, slow = ResourcesState(), JournalReader(), JournalReader()
    state.apply(hosts(100))
    live = live_derivation(state)
    assert not live.is_consistent and not live.advance(state), "it takes several slices"
    caught_up(live, state)
    for reader in (quick, slow):
        reader.read(live.changed)
    for number in range(3):
        state.apply({key(DPU_DEVICE, f"d{number}"): None})
        caught_up(live_derivation(state), state)
        assert len(quick.read(live.changed) or ()) == 1
    assert caught_up(live_derivation(state), state) == 1 and live_derivation(state) is live
    assert len(slow.read(live.changed) or ()) == 3
    assert content(live.derivation) == content(full(state))
    assert live_derivation(ResourcesState()) is not live


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


def test_the_sets_of_a_deployment_that_was_made_anew_have_its_new_age() -> None:
    derived = deployed()
    name = key(DPU_DEPLOYMENT, "dep")
    derived.apply({name: replace(derived.state.objects.rows[name], created_ms=9)})
    (dpu_set_key,) = derived.derivation.sets
    assert derived.derivation.sets[dpu_set_key].age == (9, dpu_set_key)
    assert content(derived.derivation) == content(full(derived.state))


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


def test_a_reader_learns_which_wanted_objects_changed() -> None:
    state, live = ResourcesState(), LiveDerivation()
    state.apply(hosts(2))
    caught_up(live, state)
    seen = live.changed.revision
    state.apply({key(DPU_SET, "all"): dpu_set("v2")})
    caught_up(live, state)
    assert sorted(live.changed.since(seen) or ()) == sorted(live.derivation.dpus.winners)
    state.rederive()
    caught_up(live, state)
    assert live.changed.since(seen) is None, "everything may have changed"

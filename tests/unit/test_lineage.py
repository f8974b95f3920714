"""The lineage of a restored log: the versions of tables that a DPU can have from it or its parents."""

from __future__ import annotations

import pytest

from eventstore.errors import LogMismatch
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0, Partition
from eventstore.position import Position
from eventstore.replicas.lineage import lineage_of, parent_text
from schemas.events import LogCreated


def origin(log_id: str, generation: int, parent: str = "") -> LogCreated:
    return LogCreated(internal_envelope("log", "test", 1), log_id, generation, 2, parent)


def restored(of: LogCreated, log_id: str, fleet_end: int, generation: int = 0) -> LogCreated:
    cut = Position(of.log_id, {FLEET_0: fleet_end, Partition("zones", 1): 7})
    return origin(log_id, generation or of.generation + 1, parent_text(of, cut))


def test_a_log_without_parents_knows_the_tables_of_its_generation_only() -> None:
    lineage = lineage_of(origin("a", 1))
    assert lineage.knows(1, 10**9)
    assert lineage.knows(0, 0)
    assert lineage.knows(2, 0)
    assert not lineage.knows(2, 1)
    assert lineage.fork_of("a") is None


def test_a_restored_log_knows_tables_of_its_parent_up_to_the_cut() -> None:
    lineage = lineage_of(restored(origin("a", 1), "b", 400))
    assert lineage.knows(1, 400)
    assert not lineage.knows(1, 401)
    assert lineage.knows(2, 10**9)
    assert not lineage.knows(3, 1)
    fork = lineage.fork_of("a")
    assert fork is not None
    assert fork.offsets == {FLEET_0: 400, Partition("zones", 1): 7}


def test_positions_before_the_cut_have_the_generation_of_the_parent() -> None:
    lineage = lineage_of(restored(restored(origin("a", 1), "b", 400), "c", 500, generation=5))
    assert [lineage.generation_at(position) for position in (1, 400, 401, 500, 501)] == [1, 1, 2, 2, 5]
    shorter = lineage_of(restored(restored(origin("a", 1), "b", 400), "c", 300, generation=5))
    assert [shorter.generation_at(position) for position in (300, 301)] == [1, 5]


@pytest.mark.parametrize(("last", "known"), [(300, (300, 300)), (900, (400, 900))])
def test_a_twice_restored_log_knows_tables_up_to_both_cuts(last: int, known: tuple[int, int]) -> None:
    lineage = lineage_of(restored(restored(origin("a", 1), "b", 400), "c", last, generation=5))
    for epoch, most in zip((1, 2), known, strict=True):
        assert lineage.knows(epoch, most)
        assert not lineage.knows(epoch, most + 1)
    assert not lineage.knows(4, 1), "generation 4 is another restore of the same parent"
    assert [fork.log_id for _, fork in lineage.forks] == ["b", "a"]


@pytest.mark.parametrize("parent", ["a", "1@a:nothing", "x@a:fleet/0=1"])
def test_an_invalid_parent_field_is_refused(parent: str) -> None:
    with pytest.raises(LogMismatch, match="must list GENERATION@POSITION of each restore"):
        lineage_of(origin("b", 2, parent))

"""The effects of joins, changes and leaves, node by node, and the fast path for new nodes against the slow one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eventstore.folding.fold import Outcome
from projections.zones.rows import NodeTombstone
from schemas.events import INFERRED, LEFT, SUPERSEDED, NodesSuperseded
from tests.support.zones import ZonesPartition, derived_of, internal_envelope, nodes_joined, rows_of

HOUR_MS = 3_600_000


def codes(outcome: Outcome) -> tuple[str, dict[str, str]]:
    return outcome.code, {item.name: item.code for item in outcome.items}


def test_a_repeated_join_changes_nothing() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="u", address=7, labels={"k": "v"})
    before = rows_of(log.state)
    assert codes(log.join("a", created_ms=5, uid="u", address=7, labels={"k": "v"})) == ("unchanged", {})
    assert rows_of(log.state) == before


def test_a_newer_incarnation_replaces_the_node_and_an_older_one_is_refused() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="u", address=7)
    log.join("a", created_ms=6, uid="v", address=8)
    outcome = log.join("a", "b", created_ms=4, uid="w", address=9)
    assert codes(outcome) == ("done", {"a": "refused"})
    assert (log.state.nodes.rows["a"].uid, log.state.nodes.rows["b"].uid) == ("v", "w")
    outcome = log.join("a", created_ms=5, uid="u", address=7)
    assert outcome.code == "refused" and "newer incarnation" in outcome.reason


def test_a_node_that_joined_under_a_fast_clock_may_join_again_after_the_correction() -> None:
    log = ZonesPartition()
    log.now_ms += HOUR_MS
    log.join("a", "b", address=7)
    log.now_ms -= HOUR_MS
    assert codes(log.join("a", address=9)) == ("done", {})
    assert log.state.nodes.rows["a"].address4 == 9
    log.now_ms += HOUR_MS
    assert log.join("b", created_ms=log.now_ms - HOUR_MS, uid="u").code == "refused", (
        "fold time has reached the creation time"
    )


def test_incarnations_of_one_time_are_ordered_by_the_log() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="v")
    log.join("a", created_ms=5, uid="u")
    assert log.state.nodes.rows["a"].uid == "u"


def test_a_node_moves_to_a_zone_of_the_same_partition() -> None:
    log = ZonesPartition()
    log.join("a", "b", created_ms=5, uid="u", zone="z1")
    log.join("a", created_ms=5, uid="u", zone="z2")
    assert log.state.nodes.rows["a"].zone == "z2"
    assert (log.state.zones(), log.state.node_counts) == (["z1", "z2"], {"z1": 1, "z2": 1})
    assert codes(log.leave("a", zone="z1")) == ("unchanged", {"a": "unchanged"})
    assert "a" in log.state.nodes.rows
    log.leave("b", zone="z1")
    assert log.state.node_counts == {"z2": 1}, "an empty zone has no count"


def test_a_change_needs_the_node_and_its_incarnation() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="u", address=7)
    assert log.change("b", address=8).code == "refused"
    assert log.change("a", address=8, created_ms=4, uid="t").code == "refused"
    assert log.change("a", address=8, created_ms=6, uid="v").code == "refused"
    assert log.change("a", address=8, zone="z2").code == "refused"
    assert log.state.nodes.rows["a"].address4 == 7
    assert log.change("a", address=8, created_ms=5, uid="u").code == "done"
    assert log.change("a", address=9).code == "done"
    row = log.state.nodes.rows["a"]
    assert (row.address4, row.created_ms, row.uid, row.changed) == (9, 5, "u", log.end - 1)


def test_a_leave_must_name_the_present_incarnation_or_a_later_one() -> None:
    log = ZonesPartition()
    log.join("a", "b", "c", "d", created_ms=5, uid="u")
    assert codes(log.leave("a", created_ms=4, uid="u")) == ("unchanged", {"a": "unchanged"})
    assert codes(log.leave("a", created_ms=5, uid="other")) == ("unchanged", {"a": "unchanged"})
    assert "a" in log.state.nodes.rows
    log.leave("a")
    log.leave("b", created_ms=5, uid="u")
    log.leave("c", created_ms=6, uid="v")
    assert list(log.state.nodes.rows) == ["d"]
    assert {name: gone.state for name, gone in log.state.tombstones.rows.items()} == {"a": LEFT, "b": LEFT, "c": LEFT}
    assert codes(log.leave("a", "nobody")) == ("unchanged", {"a": "unchanged", "nobody": "unchanged"})
    assert codes(log.leave("a", "d")) == ("done", {"a": "unchanged"})


def test_a_zone_that_never_had_a_node_is_not_known() -> None:
    log = ZonesPartition()
    log.join("a", zone="z1")
    outcome = log.leave("a", zone="z3")
    assert (outcome.code, "zone: 'z3' is not known" in outcome.reason) == ("refused", True)
    log.leave("a", zone="z1")
    assert codes(log.leave("a", zone="z1")) == ("unchanged", {"a": "unchanged"}), "an empty zone is known"


def test_an_inferred_leave_needs_the_last_complete_list_of_its_source() -> None:
    log = ZonesPartition()
    log.join("k/a", "k/b", "other/c", "d")
    assert log.leave("k/a", list_hash=b"one").code == "refused"
    log.complete(b"one", source="k")
    log.complete(b"two", source="k")
    log.complete(b"one", source="other", zone="z2")
    assert codes(log.leave("k/a", "other/c", "d", list_hash=b"one")) == (
        "refused",
        {"k/a": "refused", "other/c": "refused", "d": "refused"},
    )
    assert codes(log.leave("k/a", "other/c", list_hash=b"two")) == ("done", {"other/c": "refused"})
    assert log.state.tombstones.rows["k/a"].state == INFERRED
    log.complete(b"three")
    assert log.leave("d", list_hash=b"three").code == "done"


def test_a_snapshot_proves_nothing_about_later_changes() -> None:
    log = ZonesPartition()
    log.join("k/a", "k/b", address=1)
    log.complete(b"one", source="k")
    log.join("k/new")
    log.change("k/a", address=9)
    assert log.leave("k/a", "k/new", list_hash=b"one").code == "refused"
    assert log.leave("k/b", list_hash=b"one").code == "done"


def test_an_empty_snapshot_is_refused() -> None:
    log = ZonesPartition()
    log.join("k/a")
    assert "empty list" in log.complete(b"none", source="k", count=0, total=0).reason
    assert log.leave("k/a", list_hash=b"none").code == "refused"
    assert log.complete(b"", source="k").code == "refused"
    assert "list_hash" in log.leave("k/a", list_hash=b"x" * 65).reason


def test_an_older_snapshot_does_not_replace_the_last_one() -> None:
    log = ZonesPartition()
    log.join("k/a")
    log.complete(b"new", source="k")
    late = replace(log.events[-1][0], list_hash=b"old")
    late = replace(late, envelope=replace(late.envelope, issued_at_ms=late.envelope.issued_at_ms - 1))
    assert log.append(late).code == "unchanged"
    assert log.leave("k/a", list_hash=b"new").code == "done"


def test_nodes_that_join_one_by_one_share_equal_labels() -> None:
    log = ZonesPartition()
    for name in ("a", "b"):
        log.join(name, labels={"rack": "r1"})
    rows = log.state.nodes.rows
    assert rows["a"].labels is rows["b"].labels


def superseded(
    log: ZonesPartition, mark: int, name: str, created_ms: int, uid: str, *, zone: str = "z1", heard: int | None = None
) -> Outcome:
    heard = log.end if heard is None else heard
    event = NodesSuperseded(
        internal_envelope(zone, log.now_ms), mark, mark + 3, [zone], [name], [created_ms], [uid], heard
    )
    return log.append(event)


def test_a_node_that_changed_after_its_last_forward_is_not_superseded() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="u")
    heard = log.end
    log.change("a", address=9)
    assert superseded(log, 0, "a", 5, "u", heard=heard).code == "done"
    assert "a" in log.state.nodes.rows and log.state.fleet_mark == 3
    assert superseded(log, 3, "a", 5, "u", heard=heard + 1).code == "done"
    assert "a" not in log.state.nodes.rows


def test_records_caused_by_fleet_are_accepted_once_and_in_order() -> None:
    log = ZonesPartition()
    log.join("a", "b", created_ms=5, uid="u")
    assert "where the last forward ended" in superseded(log, 1, "a", 5, "u").reason
    assert superseded(log, 0, "a", 5, "u").code == "done"
    assert log.state.fleet_mark == 3
    assert superseded(log, 0, "b", 5, "u").code == "refused"
    assert (list(log.state.nodes.rows), log.state.tombstones.rows["a"].state) == (["b"], SUPERSEDED)
    log.join("a", created_ms=9, uid="w")
    superseded(log, 3, "a", 5, "u")
    superseded(log, 6, "b", 5, "u", zone="z2")
    assert sorted(log.state.nodes.rows) == ["a", "b"]


def test_a_malformed_record_of_fleet_does_not_block_the_next() -> None:
    log = ZonesPartition()
    log.join("a", created_ms=5, uid="u")
    odd = NodesSuperseded(internal_envelope("z1", log.now_ms), 0, 3, ["z1"], ["a", "b"], [5], ["u"], log.end)
    assert log.append(odd).code == "refused"
    assert superseded(log, 3, "a", 5, "u").code == "done"


def test_a_limit_of_minus_one_is_unchanged_and_zero_is_the_default() -> None:
    log = ZonesPartition()
    for asked, kept in (((7, -1), (7, 0)), ((-1, 9), (7, 9)), ((0, 0), (0, 0))):
        assert log.limit(*asked).code == "done"
        row = log.state.zone_rows.rows["z1"]
        assert (row.parallel_installs, row.unavailable_nodes) == kept


@given(st.integers(1, 40), st.booleans())
def test_one_record_of_many_new_nodes_equals_a_record_of_each(count: int, with_labels: bool) -> None:
    together, apart = ZonesPartition(), ZonesPartition()
    names = [f"n{i}" for i in range(count)]
    labels = {"a": "b"} if with_labels else None
    event = nodes_joined(together.envelope(), names, address=0x0A000000, created_ms=3, uid="u", labels=labels)
    together.append(event)
    for i, name in enumerate(names):
        apart.append(
            nodes_joined(apart.envelope(), [name], address=0x0A000000 + i, created_ms=3, uid="u", labels=labels)
        )
    strip = [
        {n: replace(row, changed=0, changed_ms=0) for n, row in log.state.nodes.rows.items()}
        for log in (together, apart)
    ]
    assert strip[0] == strip[1]
    assert together.state.node_counts == apart.state.node_counts == {"z1": count}


def test_a_node_that_returns_replaces_its_tombstone() -> None:
    log = ZonesPartition()
    log.join("a", "b", created_ms=5, uid="u")
    joined_ms = log.state.nodes.rows["b"].changed_ms
    log.leave("a", "b")
    assert set(log.state.tombstones.rows) == {"a", "b"}
    left_ms = log.state.tombstones.rows["b"].changed_ms
    log.join("a", created_ms=6, uid="v")
    assert log.state.tombstones.rows == {"b": NodeTombstone("z1", 5, "u", LEFT, 1, left_ms, joined_ms)}
    assert log.state.outbox_offsets == [1, 2]
    log.join("b", created_ms=6, uid="v")
    assert log.state.outbox_offsets == [2, 3]
    assert derived_of(log.state)

"""Refusals of the zone fold about nodes: of whole records and of single items."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eventstore.folding.fold import ItemOutcome, Outcome
from schemas.events import NodesLeft, SnapshotCompleted
from tests.support.zones import START_MS, ZonesPartition


@pytest.fixture
def log() -> ZonesPartition:
    made = ZonesPartition()
    made.join("a", "b", created_ms=5, uid="u", address=7)
    return made


def issued_at(log: ZonesPartition, event: SnapshotCompleted | NodesLeft, issued_ms: int) -> Outcome:
    return log.append(replace(event, envelope=replace(event.envelope, issued_at_ms=issued_ms)))


def test_each_refused_item_has_its_reason_and_the_record_has_the_first(log: ZonesPartition) -> None:
    newer = "has a newer incarnation in this zone, of 5"
    outcome = log.join("a", "b", created_ms=4, uid="t", address=9)
    told = {name: (f"node: {name!r} {newer}", "INCARNATION_OUTDATED", {"field": "node", "node": name}) for name in "ab"}
    assert outcome == Outcome("refused", told["a"][0], {}, outcome.items, *told["a"][1:])
    assert outcome.items == tuple(ItemOutcome(name, "refused", *told[name]) for name in "ab")
    assert log.join("a", "c", created_ms=4, uid="t", address=9) == Outcome(
        "done", items=(ItemOutcome("a", "refused", *told["a"]),)
    )
    assert sorted(log.state.nodes.rows) == ["a", "b", "c"]


def test_a_refused_change_names_the_present_incarnation(log: ZonesPartition) -> None:
    assert log.change("x", address=9).reason == "node: 'x' is not in zone 'z1'"
    assert log.change("a", zone="z2", address=9).reason == "node: 'a' is not in zone 'z2'"
    other = "node: 'a' has another incarnation in this zone, of 5"
    assert log.change("a", address=9, created_ms=5, uid="v").reason == other
    assert log.change("a", address=9, created_ms=6, uid="u").reason == other
    assert log.change("a", address=9, created_ms=5, uid="u").code == "done"
    row = log.state.nodes.rows["a"]
    assert (row.address4, row.created_ms, row.uid) == (9, 5, "u")


def test_a_leave_without_effect_is_unchanged_with_a_reason(log: ZonesPartition) -> None:
    nowhere = "node: 'x' is not in zone 'z1'"
    assert log.leave("x") == Outcome("unchanged", nowhere, items=(ItemOutcome("x", "unchanged", nowhere),))
    other = "node: 'a' has another incarnation in this zone, of 5"
    unchanged = Outcome("unchanged", other, items=(ItemOutcome("a", "unchanged", other),))
    assert log.leave("a", created_ms=4, uid="u") == unchanged
    assert log.leave("a", created_ms=5, uid="t") == unchanged
    assert "a" in log.state.nodes.rows
    assert log.leave("a", created_ms=6, uid="t").code == "done"
    assert "a" not in log.state.nodes.rows


def test_a_refused_inferred_leave_names_the_snapshot_or_the_change(log: ZonesPartition) -> None:
    short = "list_hash: 0 bytes must be from 1 to 64 for an inferred leave"
    event = NodesLeft(log.envelope(), "z1", ["a"], [], [], True, b"")
    assert log.append(event).reason == short
    assert log.append(replace(event, list_hash=b"x" * 65)).reason == short.replace("0 bytes", "65 bytes")
    unknown = "list_hash: '6869' is not the last snapshot of source '' in this partition"
    assert log.leave("a", list_hash=b"hi").reason == unknown
    log.complete(b"hi")
    listed = log.end - 1
    log.change("a", address=9)
    changed = log.end - 1
    assert log.leave("a", list_hash=b"hi").reason == (
        f"node: 'a' changed at {changed}, after the snapshot at {listed} that lacks it"
    )
    assert log.leave("b", list_hash=b"hi").code == "done"
    assert log.leave("s/n", list_hash=b"hi").items[0].reason == "node: 's/n' is not in zone 'z1'"


def test_a_snapshot_must_have_a_count_and_a_hash(log: ZonesPartition) -> None:
    empty = log.complete(b"h", count=0, total=0)
    assert empty.reason == "total: 0 must be at least 1: an empty list of a source is never accepted"
    assert log.complete(b"h", count=11, total=10).reason.startswith("count: 11 must be from 0 to 10, ")
    assert log.complete(b"h", version=-1).reason == "version: -1 must be at least 0"
    assert log.complete(b"").reason == "list_hash: 0 bytes must be from 1 to 64"
    assert log.complete(b"x" * 65).reason == "list_hash: 65 bytes must be from 1 to 64"
    assert log.complete(b"x" * 64).code == log.complete(b"x").code == "done"
    assert log.complete(b"x", zone="no zone").reason.startswith("zone: 'no zone' must be 1 to 63 ")
    assert log.complete(b"x", source="no source").reason.startswith("source: 'no source' must be 1 to 63 ")


def test_a_restored_source_gives_no_evidence_until_its_list_lacks_no_node(log: ZonesPartition) -> None:
    log.join("s/a", "s/b")
    log.complete(b"back", source="s", version=5, restored=True)
    assert log.leave("s/a", list_hash=b"back").items[0].reason == (
        "list_hash: source 's' was restored from an older backup, so its list is no evidence of leaves"
    )
    log.complete(b"whole", source="s", version=6)
    assert log.leave("s/a", list_hash=b"whole").code == "done"
    assert log.state.lists.rows["s"].version == 6


def test_a_list_of_other_zones_is_evidence_that_a_zone_is_empty(log: ZonesPartition) -> None:
    log.join("s/a")
    log.complete(b"none", source="s", count=0, total=3)
    assert log.leave("s/a", list_hash=b"none").code == "done"


def test_snapshots_of_one_time_are_ordered_by_the_log(log: ZonesPartition) -> None:
    log.now_ms = START_MS + 100
    event = SnapshotCompleted(log.envelope(), "z1", "", 2, b"one", 0, 2, False)
    assert issued_at(log, event, START_MS + 50).code == "done"
    assert issued_at(log, replace(event, list_hash=b"two"), START_MS + 50).code == "done"
    late = issued_at(log, replace(event, list_hash=b"old"), START_MS + 49)
    assert late == Outcome("unchanged", f"list_hash: a snapshot of {START_MS + 50} is newer")
    assert log.state.snapshots.rows["z1/"].list_hash == b"two"


def test_a_snapshot_from_a_fast_clock_can_be_replaced(log: ZonesPartition) -> None:
    """The time of a snapshot is at most the fold time at its record, however far ahead its reader's clock was."""
    event = SnapshotCompleted(log.envelope(), "z1", "", 2, b"one", 0, 2, False)
    issued_at(log, event, log.now_ms + 3_600_000)
    assert issued_at(log, replace(event, list_hash=b"two"), log.now_ms + 1).code == "done"
    assert log.state.snapshots.rows["z1/"].list_hash == b"two"

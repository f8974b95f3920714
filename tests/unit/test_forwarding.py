"""The record of a forward: compact columns, whole records, within its limits, and none while the fleet state lags."""

from __future__ import annotations

import pytest

from eventstore.avro.codec import encode
from projections.forwarding.zones_to_fleet import forward, is_forwarded
from schemas.events import (
    LEFT,
    MAX_COMMAND_BYTES,
    MAX_FORWARD_BYTES,
    MAX_FORWARD_ITEMS,
    MAX_ITEMS,
    PRESENT,
    NodesJoined,
)
from tests.support.zones import ZonesPartition


def test_a_column_of_equal_values_has_one_entry() -> None:
    log = ZonesPartition()
    log.join("a", "b", created_ms=5, uid="u", labels={"rack": "r1"})
    log.join("c", created_ms=5, uid="u", labels={"rack": "r1"})
    event = forward(log.state, 3, 0)
    assert event is not None
    assert (event.cause_partition, event.from_offset, event.to_offset) == (3, 0, 2)
    assert (event.zones, event.names, event.states) == (["z1"], ["a", "b", "c"], [PRESENT])
    assert (event.created_ms, event.uids) == ([5], ["u"])
    assert (event.addresses4, event.addresses6) == (b"", b"")
    assert (event.label_sets, event.label_index) == ([{"rack": "r1"}], [0])
    assert (event.earliest_ms, event.last_present_ms) == (log.events[0][1].append_ms, [])


def test_nodes_changed_at_one_time_have_no_time_column() -> None:
    log = ZonesPartition()
    log.join("a", "b")
    event = forward(log.state, 0, 0)
    assert event is not None and (event.changed_ms, event.last_present_ms) == ([], [])


def test_a_column_of_different_values_has_an_entry_per_node() -> None:
    log = ZonesPartition()
    log.join("a", "b", address=0x0A000001, created_ms=5, uid="u", labels={"rack": "r1"})
    log.join("c", zone="z2", created_ms=6, uid="v")
    log.join("d", created_ms=5, uid="u")
    log.leave("d")
    event = forward(log.state, 0, 0)
    assert event is not None
    assert (event.zones, event.names) == (["z1", "z1", "z2", "z1"], ["a", "b", "c", "d"])
    assert event.states == [PRESENT, PRESENT, PRESENT, LEFT]
    assert (event.created_ms, event.uids) == ([5, 5, 6, 5], ["u", "u", "v", "u"])
    assert event.addresses4.hex() == "0a0000010a0000020000000000000000"
    assert (event.label_sets, event.label_index) == ([{"rack": "r1"}, {}], [0, 0, 1, 1])
    times_ms = [at.append_ms for _, at in log.events]
    assert event.changed_ms == [times_ms[0], times_ms[0], times_ms[1], times_ms[3]]
    assert event.last_present_ms == [0, 0, 0, times_ms[2]], (
        "a tombstone has the time of the last statement about its node"
    )


def test_a_node_is_forwarded_in_its_present_state_at_its_last_change() -> None:
    log = ZonesPartition()
    log.join("a", "b", created_ms=5, uid="u")
    log.change("a", address=9)
    first, rest = forward(log.state, 0, 0), forward(log.state, 0, 1)
    assert first is not None and rest is not None
    assert (first.names, first.to_offset, first.earliest_ms) == (["b", "a"], 2, log.events[0][1].append_ms)
    assert (rest.names, rest.from_offset, rest.earliest_ms) == (["a"], 1, log.events[1][1].append_ms)
    assert forward(log.state, 0, 2) is None


def test_overtaken_changes_are_not_forwarded() -> None:
    log = ZonesPartition()
    log.join("a")
    log.leave("a")
    log.join("a")
    event = forward(log.state, 0, 0)
    assert event is not None and (event.names, event.states, event.to_offset) == (["a"], [PRESENT], 3)
    assert log.state.outbox_offsets == [2]


def test_a_fleet_state_behind_the_pruned_outbox_does_not_count_as_up_to_date() -> None:
    """Another replica with a newer fleet pruned the outbox. A join must not be answered before this fleet has it."""
    log = ZonesPartition()
    log.join("a")
    log.join("b")
    log.forwarded(2)
    assert log.state.outbox_offsets == []
    assert not is_forwarded(log.state, mark=1, offset=2)
    assert is_forwarded(log.state, mark=2, offset=2)


def test_a_fleet_state_behind_the_pruned_outbox_yields_no_forward() -> None:
    log = ZonesPartition()
    log.join("a")
    log.join("b")
    log.forwarded(1)
    assert forward(log.state, 0, 0) is None
    event = forward(log.state, 0, 1)
    assert event is not None and event.names == ["b"]


def test_a_forward_contains_as_many_whole_records_as_fit() -> None:
    log = ZonesPartition()
    for i in range(5):
        log.join(*(f"n{i}-{j}" for j in range(MAX_FORWARD_ITEMS * 3 // 10)))
    event = forward(log.state, 0, 0)
    assert event is not None and (event.to_offset, len(event.names)) == (3, MAX_FORWARD_ITEMS * 9 // 10)


@pytest.mark.parametrize("distinct", [1, 100])
def test_a_forward_is_limited_in_bytes_and_one_record_always_fits(distinct: int) -> None:
    log = ZonesPartition()
    for i in range(4):
        labels = [{f"key{k}": f"{n}" + "v" * 200 for k in range(2)} for n in range(distinct)]
        count = 200
        names = [f"source/{i}-{j}-".ljust(253, "x") for j in range(count)]
        index = [j % distinct for j in range(count)]
        event = NodesJoined(log.envelope(), "z1", names, [1], ["u" * 128], b"", b"", labels, index)
        assert len(encode(event)) <= MAX_COMMAND_BYTES
        assert log.append(event).code == "done"
    mark, sizes = 0, []
    while (found := forward(log.state, 0, mark)) is not None:
        mark = found.to_offset
        sizes.append(len(encode(found)))
    assert max(sizes) <= MAX_FORWARD_BYTES and mark == 4


def test_the_largest_leave_fits_with_the_uids_of_its_nodes() -> None:
    log = ZonesPartition()
    names = [f"{i:04d}".ljust(250, "x") for i in range(MAX_ITEMS)]
    for start in range(0, MAX_ITEMS, 250):
        part = names[start : start + 250]
        uids = [f"{i:04d}".ljust(128, "u") for i in range(start, start + 250)]
        assert log.append(NodesJoined(log.envelope(), "z1", part, [1], uids, b"", b"", [], [])).code == "done"
    log.forwarded(log.end)
    assert log.leave(*names).code == "done"
    event = forward(log.state, 0, log.state.forwarded)
    assert event is not None and len(event.names) == MAX_ITEMS
    assert len(encode(event)) <= MAX_FORWARD_BYTES

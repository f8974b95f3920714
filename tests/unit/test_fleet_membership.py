"""Membership in fleet: marks, incarnations, conflicts, dense slots, the outbox to zones, and freezes."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from eventstore.log import partition_of
from projections.fleet.state import MAX_OUTBOX_ENTRIES
from projections.fleet.tables.rulesets import INCREMENTAL_MAX
from projections.fleet.tables.zone_table import table
from projections.fleet.withdrawals.budgets import BUDGET_KINDS
from projections.forwarding.fleet_to_zones import next_record
from schemas.events import MembershipChanged, NodesSuperseded, WritesFrozen, WritesThawed, ZoneLimitsSet, ZoneUpdated
from tests.support.fleet import PARTITIONS, Fleet, Item, actual_table, envelope, expected_table, membership, saved_bytes


def zones_on(partition: int) -> list[str]:
    return [z for z in (f"z{i}" for i in range(99)) if partition_of(z.encode(), PARTITIONS) == partition][:2]


def zone_on(partition: int) -> str:
    return zones_on(partition)[0]


def test_a_forward_is_accepted_only_at_the_mark_of_its_partition() -> None:
    fleet = Fleet()
    first = membership(1, 0, 5, [Item("a", address="10.0.0.1")])
    assert fleet.apply(first).code == "done"
    assert fleet.state.marks == {1: 5}
    rows = saved_bytes(fleet.state)
    again = fleet.apply(first)
    assert (again.code, again.reason) == ("refused", "from_offset: 0 must be the mark of partition 1, which is 5")
    assert fleet.apply(membership(1, 6, 9, [Item("b")])).code == "refused"
    assert saved_bytes(fleet.state) == rows
    assert fleet.apply(membership(2, 0, 1, [Item("b")])).code == "done"
    assert fleet.apply(membership(1, 5, 9, [])).code == "done"
    assert fleet.state.marks == {1: 9, 2: 1}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"cause_partition": 4}, "cause_partition: 4 must be one of the 4 partitions"),
        ({"cause_partition": -1}, "cause_partition: -1 must be one of"),
        ({"to_offset": 0}, "to_offset: 0 must be after from_offset"),
        ({"names": ["a", "a"]}, "names: 2 items name 1 nodes"),
        ({"names": [f"n{i}" for i in range(2001)]}, "names: 2001 items are more than the 2000 allowed"),
        ({"zones": [""]}, "zones: '' must be 1 to 63"),
        ({"zones": []}, "zones: 0 entries for 2 names"),
        ({"states": [0, 0, 0]}, "states: 3 entries for 2 names"),
        ({"states": [11]}, "states: 11 to 11 must be from 0 to 10"),
        ({"uids": ["u", "u", "u"]}, "uids: 3 entries for 2 names"),
        ({"addresses4": b"123"}, "addresses4: 3 bytes for 2 names"),
        ({"addresses6": bytes(16)}, "addresses6: 16 bytes for 2 names"),
        ({"label_index": [1]}, "label_index: 1 must be the index of one of the 1 label sets"),
        ({"label_index": [-1]}, "label_index: -1 must be the index of one of the 1 label sets"),
        ({"label_sets": [{}, {}], "label_index": []}, "label_index: 0 entries for 2 label sets"),
    ],
)
def test_a_malformed_forward_is_refused_whole_and_moves_no_mark(changes: dict[str, object], fault: str) -> None:
    fleet = Fleet()
    fields = {
        "envelope": envelope("forwarder/a"),
        "cause_partition": 0,
        "from_offset": 0,
        "to_offset": 1,
        "earliest_ms": 1,
        "zones": ["z0"],
        "names": ["a", "b"],
        "states": [0],
        "created_ms": [],
        "uids": [],
        "addresses4": b"",
        "addresses6": b"",
        "label_sets": [{}],
        "label_index": [],
        "changed_ms": [],
        "last_present_ms": [],
    }
    rows = saved_bytes(fleet.state)
    outcome = fleet.apply(MembershipChanged(**{**fields, **changes}))  # type: ignore[arg-type]
    assert outcome.code == "refused"
    assert fault in outcome.reason
    assert saved_bytes(fleet.state) == rows
    assert fleet.apply(MembershipChanged(**fields)).code == "done"  # type: ignore[arg-type]


def test_slots_are_dense_and_the_lowest_free_one_is_assigned_first() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}") for i in range(5)))
    fleet.leave("n3", "n1")
    fleet.change(Item("a"), Item("b"), Item("c"))
    slots = {name: row.slot for name, row in fleet.state.members.rows.items()}
    assert slots == {"n0": 0, "n2": 2, "n4": 4, "a": 1, "b": 3, "c": 5}


def test_an_address_stays_until_its_last_holder_leaves_and_conflicts_are_reported() -> None:
    fleet = Fleet()
    shared = "10.0.0.7"
    fleet.change(*(Item(name, address=shared) for name in ("c", "a", "b")), Item("lone", address="10.0.0.8"))
    assert fleet.state.conflicts() == [(int(IPv4Address(shared)), ("a", "b", "c"))]
    fleet.leave("a")
    assert fleet.state.conflicts() == [(int(IPv4Address(shared)), ("b", "c"))]
    fleet.leave("b")
    assert fleet.state.conflicts() == []
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
    version = table(fleet.state, "z0").version
    fleet.leave("c")
    assert table(fleet.state, "z0").version > version


def test_the_newest_incarnation_wins_and_the_other_zone_gets_a_record() -> None:
    fleet = Fleet()
    here, there = zone_on(0), zone_on(1)
    fleet.change(Item("n", here, "10.0.0.1", created_ms=5, uid="x"))
    fleet.change(Item("n", there, "10.0.0.2", created_ms=6, uid="w"))
    assert fleet.state.members.rows["n"].zone == there
    superseded = next_record(fleet.state, 0, 0)
    assert isinstance(superseded, NodesSuperseded)
    assert (superseded.from_offset, superseded.to_offset) == (0, fleet.offset)
    assert (superseded.zones, superseded.names, superseded.created_ms, superseded.uids) == ([here], ["n"], [5], ["x"])
    assert next_record(fleet.state, 0, superseded.to_offset) is None
    assert next_record(fleet.state, 1, 0) is None
    fleet.change(Item("n", here, "10.0.0.1", state=3, created_ms=5, uid="x"))
    assert fleet.state.members.rows["n"].zone == there


def test_an_older_incarnation_is_superseded_in_its_zone() -> None:
    fleet = Fleet()
    here, there = zone_on(0), zone_on(1)
    fleet.change(Item("n", here, "10.0.0.1", created_ms=6))
    fleet.change(Item("n", there, "10.0.0.2", created_ms=5), Item("m", there, created_ms=5))
    assert fleet.state.members.rows["n"].zone == here
    assert fleet.state.members.rows["m"].zone == there
    superseded = next_record(fleet.state, 1, 3)
    assert isinstance(superseded, NodesSuperseded)
    assert (superseded.from_offset, superseded.zones, superseded.names, superseded.created_ms) == (
        3,
        [there],
        ["n"],
        [5],
    )


def test_one_incarnation_in_two_zones_belongs_to_the_last_forward() -> None:
    fleet = Fleet()
    here, there = zone_on(0), zone_on(1)
    fleet.change(Item("n", here))
    fleet.change(Item("n", there))
    fleet.change(Item("n", here, state=1))
    assert fleet.state.members.rows["n"].zone == there


def test_a_superseding_record_names_the_mark_of_its_zone() -> None:
    """The mark lets a zone keep a node that returned after the forward. Otherwise both zones could drop the node."""
    fleet = Fleet()
    here, there = zone_on(0), zone_on(1)
    fleet.change(Item("n", here))
    first_mark = fleet.state.marks[0]
    fleet.change(Item("n", there))
    fleet.change(Item("n", here, labels={"a": "1"}))
    superseded, then = next_record(fleet.state, 0, 0), next_record(fleet.state, 1, 0)
    assert isinstance(superseded, NodesSuperseded) and isinstance(then, NodesSuperseded)
    assert (superseded.names, superseded.seen_offset) == (["n"], first_mark) and first_mark < fleet.state.marks[0]
    assert (then.names, then.seen_offset) == (["n"], fleet.state.marks[1])
    fleet.change(Item("n", there, created_ms=0))
    sent_back = next_record(fleet.state, 1, then.to_offset)
    assert isinstance(sent_back, NodesSuperseded) and sent_back.created_ms == [0]
    assert sent_back.seen_offset == fleet.state.marks[1], "the mark includes the record that is superseded"


def test_a_leave_of_another_partition_or_of_an_unknown_node_has_no_effect() -> None:
    fleet = Fleet()
    here, there = zone_on(0), zone_on(1)
    fleet.change(Item("n", here, created_ms=9, address="10.0.0.1"))
    besides = ("marks", "zones", "tombstones")
    rows = {key: row for key, row in saved_bytes(fleet.state).items() if key not in besides}
    fleet.change(Item("n", there, created_ms=8, state=1), Item("stranger", there, state=1))
    fleet.change(Item("n", there, created_ms=9, state=2))
    assert {key: row for key, row in saved_bytes(fleet.state).items() if key not in besides} == rows
    fleet.change(Item("n", here, created_ms=0, uid="", state=1))
    assert "n" not in fleet.state.members.rows


def test_a_partition_decides_about_its_own_nodes() -> None:
    """A forward has the final state of a node, so one item may stand for a move and a leave."""
    fleet = Fleet()
    here, beside = zones_on(0)
    fleet.change(Item("moved", here, created_ms=5), Item("older", here, created_ms=5), Item("back", here, created_ms=5))
    fleet.change(
        Item("moved", beside, created_ms=6, state=1),
        Item("older", here, created_ms=4, state=1),
        Item("back", beside, created_ms=4),
    )
    assert fleet.state.members.rows.keys() == {"back"}
    assert fleet.state.members.rows["back"].zone == beside
    assert next_record(fleet.state, 0, 0) is None


def test_limits_of_attempts_are_handed_down_and_others_stay() -> None:
    fleet, zone = Fleet(), zone_on(2)
    assert fleet.attempt_limits(zone, 20, -1, -1).code == "done"
    assert fleet.attempt_limits(zone, -1, 5, 0).code == "done"
    fleet.limit(zone, 4, -1)
    fleet.state = fleet.reload()
    mark, found = 0, list[list[int]]()
    while (event := next_record(fleet.state, 2, mark)) is not None:
        assert isinstance(event, ZoneLimitsSet)
        mark, found = event.to_offset, [*found, event.attempt_limits]
    assert found == [[20, 0, 0], [20, 5, 0], [20, 5, 0]]


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ((1, 2), "attempt_limits: 2 numbers must be 3, for transient, device, operator"),
        ((-2, 0, 0), "transient_attempts: -2 must be from -1 to 100"),
        ((0, 0, 101), "operator_attempts: 101 must be from -1 to 100"),
    ],
)
def test_invalid_limits_of_attempts_are_refused(stated: tuple[int, ...], reason: str) -> None:
    assert Fleet().attempt_limits("z", *stated).reason == reason


def test_limits_are_handed_down_once_per_change() -> None:
    fleet = Fleet()
    zone = zone_on(2)
    fleet.limit(zone, 4, -1)
    fleet.limit(zone, 4, -1)
    fleet.limit(zone, -1, 9)
    first = next_record(fleet.state, 2, 0)
    assert isinstance(first, ZoneLimitsSet)
    assert (first.zone, first.parallel_installs, first.unavailable_nodes) == (zone, 4, 0)
    second = next_record(fleet.state, 2, first.to_offset)
    assert isinstance(second, ZoneLimitsSet)
    assert (second.from_offset, second.parallel_installs, second.unavailable_nodes) == (first.to_offset, 4, 9)
    assert next_record(fleet.state, 2, second.to_offset) is None
    fleet.state = fleet.reload()
    assert next_record(fleet.state, 2, first.to_offset) == second


def test_the_outbox_to_zones_keeps_the_last_entries() -> None:
    fleet = Fleet()
    zone = zone_on(2)
    for i in range(MAX_OUTBOX_ENTRIES + 3):
        fleet.limit(zone, i + 1, -1)
    oldest = next_record(fleet.state, 2, 0)
    assert isinstance(oldest, ZoneLimitsSet)
    assert oldest.parallel_installs == 4
    assert len(fleet.state.outbox_entries.rows) == MAX_OUTBOX_ENTRIES


def test_nodes_superseded_repeatedly_displace_no_limit_in_the_outbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An edge repeats joins of its list even if all its nodes have newer incarnations in other zones."""
    monkeypatch.setattr("projections.fleet.zone_outbox.MAX_OUTBOX_NODES", 7)
    fleet, here, there = Fleet(), zone_on(1), zone_on(2)
    fleet.change(*(Item(f"n{i}", here, created_ms=5) for i in range(3)))
    fleet.limit(there, 4, 9)
    for _ in range(2):
        for _ in range(4):
            fleet.change(*(Item(f"n{i}", there, created_ms=3) for i in range(3)))
        assert [len(entry.names) for entry in fleet.state.outbox_queues[2]] == [0, 3, 3]
        assert len(fleet.state.outbox_entries.rows) == 3
        fleet.state = fleet.reload()


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (ZoneUpdated(envelope("ann"), "a b", True, {}, -1, -1), "zone: 'a b' must be"),
        (ZoneUpdated(envelope("ann"), "z", True, {"a b": ""}, -1, -1), "labels key: 'a b' must be"),
        (ZoneUpdated(envelope("ann"), "z", False, {}, -2, -1), "parallel_installs: -2 must be from -1"),
        (ZoneUpdated(envelope("ann"), "z", False, {}, -1, 2_000_000), "unavailable_nodes: 2000000 must be from -1"),
        (WritesFrozen(envelope("ann"), "a b"), "zone: 'a b' must be"),
        (WritesThawed(envelope("ann"), "z"), "zone: 'z' must be frozen before it can be thawed"),
        (WritesThawed(envelope("ann"), ""), "zone: all zones must be frozen before it can be thawed"),
    ],
)
def test_invalid_commands_about_zones_are_refused(event: ZoneUpdated | WritesFrozen | WritesThawed, fault: str) -> None:
    fleet = Fleet()
    rows = saved_bytes(fleet.state)
    outcome = fleet.apply(event)
    assert outcome.code == "refused"
    assert fault in outcome.reason
    assert saved_bytes(fleet.state) == rows


def test_a_freeze_applies_to_a_zone_or_to_all() -> None:
    fleet = Fleet()
    fleet.apply(WritesFrozen(envelope("ann"), "z1"))
    assert (fleet.state.is_frozen("z1"), fleet.state.is_frozen("z2")) == (True, False)
    fleet.apply(WritesFrozen(envelope("ann"), ""))
    assert fleet.state.is_frozen("z2")
    assert "thaw all zones" in fleet.apply(WritesThawed(envelope("ann"), "z2")).reason
    assert fleet.apply(WritesThawed(envelope("ann"), "z1")).code == "done"
    assert fleet.state.is_frozen("z1")
    assert fleet.apply(WritesThawed(envelope("ann"), "")).code == "done"
    assert not fleet.state.is_frozen("z1")


def test_a_column_of_one_value_applies_to_every_item() -> None:
    fleet = Fleet()
    names = [f"n{i}" for i in range(3)]
    fours = b"".join(int(IPv4Address(f"10.0.0.{i}")).to_bytes(4, "big") for i in (1, 0, 3))
    packed = fours.replace(b"\x0a\0\0\0", bytes(4))
    event = MembershipChanged(envelope("f"), 0, 0, 1, 1, ["z0"], names, [0], [7], ["u"], packed, b"", [], [], [], [])
    assert fleet.apply(event).code == "done"
    rows = fleet.state.members.rows
    assert {(row.zone, row.created_ms, row.uid) for row in rows.values()} == {("z0", 7, "u")}
    assert [rows[name].address4 for name in names] == [0x0A000001, 0, 0x0A000003]
    assert rows["n0"].labels == {}


def test_label_sets_without_members_are_forgotten() -> None:
    fleet = Fleet()
    for i in range(50):
        fleet.change(Item("a", labels={"serial": str(i)}))
    assert len(fleet.state.labels.sets) <= 2


def test_combinations_of_sets_without_members_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that changes its labels passes through as many combinations as its labels have subsets."""
    monkeypatch.setattr("projections.rules.lists.MAX_VERDICTS", 8)
    monkeypatch.setattr("projections.rules.lists.MAX_LOSSES", 8)
    fleet = Fleet()
    for kind in BUDGET_KINDS:
        fleet.budget(kind, 1_000, 0)
    for bit in range(8):
        fleet.policy(f"p{bit}", priority=bit, protocol="tcp", ports=[bit, bit], sources={f"l{bit}": "1"})
    for i in range(1 << 8):
        fleet.change(Item("a", address="10.0.0.1", labels={f"l{bit}": "1" for bit in range(8) if i >> bit & 1}))
        fleet.change(Item("b", address="10.0.0.2"))
        fleet.leave("b")
    state = fleet.state
    assert sum(state.addresses_by_sets.values()) == len(state.addresses_by_sets) == 1
    assert len(state.labels.group_bits) <= 3
    assert len(state.plan._verdicts._known) <= 8 and len(state.plan._lost) <= 8
    assert actual_table(state, "z0") == expected_table(state, "z0")


def test_labels_are_shared_between_members_and_across_restarts() -> None:
    fleet = Fleet()
    fleet.change(Item("a", labels={"x": "1", "y": "2"}), Item("b", labels={"y": "2", "x": "1"}))
    fleet.change(Item("c", labels={"y": "2", "x": "1"}))
    for _ in range(2):
        rows = fleet.state.members.rows
        assert rows["a"].labels is rows["b"].labels is rows["c"].labels
        assert list(rows["a"].labels) == ["x", "y"]
        fleet.state = fleet.reload()


def test_a_deleted_label_set_leaves_no_group_number_behind() -> None:
    """Free slots read the group of the highest number in the table, which has 64 numbers at first."""
    fleet = Fleet()
    for bit in range(6):
        fleet.policy(f"p{bit}", priority=bit, protocol="tcp", ports=[bit, bit], sources={f"l{bit}": "1"})
    labels = [{f"l{bit}": "1" for bit in range(6) if i >> bit & 1} for i in range(64)]
    fleet.change(*(Item(f"n{i}", address=f"10.0.0.{i + 1}", labels=labels[i]) for i in range(64)))
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
    fleet.leave("n63")
    for bit in range(6):
        fleet.delete_policy(f"p{bit}")
    fleet.change(*(Item(f"more{i}", address=f"10.0.{1 + i // 250}.{i % 250}") for i in range(INCREMENTAL_MAX + 1)))
    fleet.leave("more1")
    assert fleet.policy("default", priority=-1_000_000).code == "done"
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")


def test_a_node_that_changes_often_keeps_its_newest_and_one_former_state() -> None:
    fleet = Fleet()
    fleet.change(Item("n", "z0", "10.0.0.1"))
    fleet.budget("denied-by-change", 0, 0)
    last = ""
    for change in range(40):
        last = f"10.1.0.{change + 1}"
        assert fleet.change(Item("n", "z0", last)).code == "held"
        assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
        assert [str(IPv4Address(part.address4)) for part in fleet.state.retained_states("n")] == ["10.0.0.1"]
    [hold] = fleet.state.holds.rows.values()
    assert hold.nodes == 1
    assert [fleet.approve(hold.id, actor).code for actor in ("bob", "cid")] == ["done", "done"]
    row = fleet.state.members.rows["n"]
    assert (str(IPv4Address(row.address4)), row.delayed_by, fleet.state.retained_states("n")) == (last, -1, ())
    assert fleet.state.holds.rows == {}

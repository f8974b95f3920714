"""Tables, versions and deltas of zones, checked with devices that apply one prefix after the other."""

from __future__ import annotations

from ipaddress import IPv4Address

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.fleet.tables.covers import MIN_HISTORY_BYTES
from projections.fleet.tables.rulesets import INCREMENTAL_MAX
from projections.fleet.tables.zone_table import delta, earliest_since, snapshot, table
from projections.rules.rule import Delta, Rule, SetStep, precedence, size
from tests.support.fleet import (
    Device,
    Fleet,
    Item,
    actual_table,
    applied,
    copy,
    covered,
    digest_from_scratch,
    expected_table,
    is_allowed,
    probes,
    single_steps,
    take,
)


def nodes(first: int, end: int, **changes: object) -> list[Item]:
    items = [Item(f"n{i}", "z0", f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}") for i in range(first, end)]
    return [item._replace(**changes) for item in items]  # type: ignore[arg-type]


def test_an_unknown_zone_has_a_table_and_an_empty_table_has_version_zero() -> None:
    fleet = Fleet()
    empty = table(fleet.state, "nowhere")
    assert (empty.version, empty.digest) == (0, bytes(16))
    assert snapshot(fleet.state, "nowhere") == Delta(0, 0, bytes(16), ())
    fleet.change(*nodes(0, 4, zone="z1"))
    assert actual_table(fleet.state, "nowhere") == actual_table(fleet.state, "z1") != {}
    assert table(fleet.state, "nowhere") == table(fleet.state, "z1")


def test_a_reader_that_skips_versions_gets_the_append_time_of_the_earliest_one() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 4), earliest_ms=10)
    seen = table(fleet.state, "z0").version
    fleet.change(*nodes(4, 5), earliest_ms=20)
    fleet.change(*nodes(5, 6), earliest_ms=30)
    assert earliest_since(fleet.state, "z0", seen) == 20
    assert earliest_since(fleet.state, "z0", seen + 1) == 30
    assert earliest_since(fleet.state, "z0", fleet.offset) == 30, (
        "without a newer version, the time is that of the last change"
    )
    assert earliest_since(fleet.state, "z0", 0) == 30, "without an earlier version, the time is that of the last change"


def test_a_version_is_the_position_after_the_record_and_carries_its_earliest_append() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 4), earliest_ms=77)
    found = table(fleet.state, "z0")
    assert (found.version, found.earliest_ms) == (fleet.offset, 77)
    fleet.offset += 5
    fleet.change(*nodes(4, 5), earliest_ms=99)
    assert table(fleet.state, "z0").version == fleet.offset
    assert table(fleet.state, "z0").earliest_ms == 99


def test_a_record_that_changes_no_table_creates_no_version() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 4))
    version = table(fleet.state, "z0").version
    fleet.change(Item("bare", "z0"))
    fleet.change(*nodes(0, 4))
    fleet.change(*nodes(0, 4, uid="v", labels={"a": "1"}))
    fleet.change(*(item._replace(name=f"twin-{item.name}") for item in nodes(0, 4)))
    fleet.leave("n0", "n1")
    fleet.policy("elsewhere", zones={"t": "1"})
    fleet.limit("z0", 3, 3)
    assert table(fleet.state, "z0").version == version
    fleet.leave("twin-n0")
    assert table(fleet.state, "z0").version == fleet.offset


def test_zones_with_one_list_share_key_versions_and_deltas() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 4), Item("other", "z1", "10.9.9.9"))
    fleet.describe("z1", {"t": "1"})
    fleet.describe("z2", {"t": "1"})
    fleet.policy("p", sources={"a": "1"}, zones={"t": "1"})
    one, two, three = (table(fleet.state, zone) for zone in ("z0", "z1", "z2"))
    assert two.key == three.key != one.key
    assert two[:2] == three[:2]
    assert [found.policy for found in two.sets] == ["p", "default"]


def test_history_has_every_position_while_changes_are_few() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 1000))
    devices = {table(fleet.state, "z0").version: actual_table(fleet.state, "z0")}
    for i in range(30):
        fleet.leave(f"n{i * 7}")
        fleet.change(*nodes(2000 + i * 3, 2002 + i * 3))
        devices[fleet.offset] = expected_table(fleet.state, "z0")
    now = expected_table(fleet.state, "z0")
    digest = digest_from_scratch(now)
    for since, device in devices.items():
        found = delta(fleet.state, "z0", since)
        assert found is not None
        assert applied(device, found) == now
        assert found.digest == digest
    assert delta(fleet.state, "z0", fleet.offset) == Delta(fleet.offset, fleet.offset, digest, ())
    assert delta(fleet.state, "z0", fleet.offset + 1) is None
    assert delta(fleet.state, "z0", 0) is None


def test_many_changes_become_one_step_from_before_the_first_one() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 1000))
    before, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.change(*nodes(1001, 1002))
    between = fleet.offset
    fleet.change(*nodes(1100, 1100 + INCREMENTAL_MAX + 1))
    fleet.leave("n3", "n4")
    found = delta(fleet.state, "z0", before)
    assert found is not None
    assert applied(device, found) == expected_table(fleet.state, "z0") == actual_table(fleet.state, "z0")
    assert delta(fleet.state, "z0", between) is None
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.leave("n5")
    after = delta(fleet.state, "z0", version)
    assert after is not None
    assert applied(device, after) == expected_table(fleet.state, "z0")


def test_many_ipv6_changes_become_one_step_too() -> None:
    fleet = Fleet()
    sixes = [Item(f"n{i}", "z0", address6=f"2001:db8::{i:x}") for i in range(INCREMENTAL_MAX * 2)]
    fleet.change(*sixes)
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.change(*(item._replace(name=f"m{i}", address6=f"2001:db8::1:{i:x}") for i, item in enumerate(sixes)))
    fleet.leave("n9")
    found = delta(fleet.state, "z0", version)
    assert found is not None
    assert applied(device, found) == expected_table(fleet.state, "z0") == actual_table(fleet.state, "z0")


def test_history_is_never_larger_than_a_snapshot() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 200))
    first = table(fleet.state, "z0").version
    versions = [first]
    for _ in range(150):
        fleet.leave("n77")
        fleet.change(*nodes(77, 78))
        versions.append(table(fleet.state, "z0").version)
    assert delta(fleet.state, "z0", first) is None
    found = [delta(fleet.state, "z0", version) for version in versions]
    assert [one is None for one in found] == sorted((one is None for one in found), reverse=True)
    most = max(MIN_HISTORY_BYTES, size(snapshot(fleet.state, "z0")))
    assert all(size(one) <= most for one in found if one is not None)
    assert found[-2] is not None


def test_a_zone_that_moves_to_another_list_gets_a_version_and_deltas_both_ways() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 8), *nodes(8, 12, labels={"a": "1"}))
    fleet.policy("p", priority=5, action="drop", protocol="tcp", sources={"a": "1"}, zones={"t": "1"})
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.describe("z0", {"t": "1"})
    moved = delta(fleet.state, "z0", version)
    assert moved is not None
    assert moved.to_version == fleet.offset
    assert applied(device, moved) == expected_table(fleet.state, "z0") != device
    between, there = fleet.offset, expected_table(fleet.state, "z0")
    fleet.change(*nodes(20, 22, labels={"a": "1"}))
    fleet.describe("z0", {})
    for since, had in ((version, device), (between, there)):
        back = delta(fleet.state, "z0", since)
        assert back is not None
        assert applied(had, back) == expected_table(fleet.state, "z0")


def test_devices_of_a_zone_unknown_to_fleet_get_deltas() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 8, zone="z1"))
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.policy("p", protocol="tcp")
    fleet.change(*nodes(8, 9))
    found = delta(fleet.state, "z0", version)
    assert found is not None
    assert applied(device, found) == expected_table(fleet.state, "z0")


def test_an_edited_policy_changes_only_the_prefixes_that_differ() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 64, labels={"a": "1"}), *nodes(64, 65, labels={"b": "1"}))
    fleet.policy("p", priority=5, protocol="tcp", sources={"a": "1"})
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.policy("q", priority=5, protocol="tcp", sources={"b": "1"})
    found = delta(fleet.state, "z0", version)
    assert found is not None
    assert [len(step.add4) + len(step.remove4) for step in found.steps] == [5]
    assert applied(device, found) == expected_table(fleet.state, "z0")


def test_a_restart_drops_only_the_history() -> None:
    fleet = Fleet()
    fleet.change(*nodes(0, 300))
    table(fleet.state, "z0")
    fleet.leave("n7")
    fleet.policy("p", priority=5, protocol="tcp", sources={"a": "1"})
    before = table(fleet.state, "z0")
    fleet.state = fleet.reload()
    after = table(fleet.state, "z0")
    assert (after.version, after.digest, after.earliest_ms) == (before.version, before.digest, before.earliest_ms)
    assert delta(fleet.state, "z0", before.version) == Delta(before.version, before.version, before.digest, ())
    assert delta(fleet.state, "z0", before.version - 1) is None


# --- make before break -----------------------------------------------------------------------------------------------

UNIVERSE = [IPv4Address(f"10.0.0.{i}") for i in range(9)]
rules = st.builds(
    Rule,
    st.integers(0, 2),
    st.sampled_from(("allow", "drop")),
    st.sampled_from(("any", "tcp")),
    st.just(()),
)
devices = st.dictionaries(rules, st.sets(st.sampled_from(UNIVERSE), min_size=1), max_size=5).map(
    lambda found: {rule: covered(addresses) for rule, addresses in found.items()}
)


@settings(max_examples=150)
@given(old=devices, new=devices)
def test_adds_from_the_top_then_removes_from_the_bottom_never_show_a_third_verdict(old: Device, new: Device) -> None:
    asked = [(address, probe) for address in UNIVERSE for probe in probes([*old, *new])]
    verdicts = [{is_allowed(device, *key) for device in (old, new)} for key in asked]
    ordered = sorted({*old, *new}, key=precedence)
    adds = [(True, rule, net) for rule in ordered for net in new.get(rule, set()) - old.get(rule, set())]
    removes = [(False, rule, net) for rule in ordered[::-1] for net in old.get(rule, set()) - new.get(rule, set())]
    now = copy(old)
    for step in (*adds, *removes):
        take(now, *step)
        assert all(is_allowed(now, *key) in may for key, may in zip(asked, verdicts, strict=True))
    assert now == new


def test_the_order_of_a_delta_is_that_order() -> None:
    fleet = Fleet()
    fleet.budget("denied-by-change", 1000, 1000)
    fleet.change(*nodes(0, 8, labels={"a": "1"}), *nodes(8, 16, labels={"b": "1"}))
    fleet.policy("top", priority=9, action="drop", sources={"a": "1"})
    fleet.policy("mid", priority=5, protocol="tcp", sources={"b": "1"})
    version, device = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    fleet.change(*nodes(0, 8, labels={"b": "1"}), *nodes(8, 16, labels={"a": "1"}))
    fleet.delete_policy("top")
    fleet.policy("new", priority=9, action="allow", sources={"b": "1"})
    found = delta(fleet.state, "z0", version)
    assert found is not None
    kinds = [(bool(s.add4 or s.add6), bool(s.remove4 or s.remove6)) for s in found.steps]
    assert kinds == sorted(kinds, reverse=True)
    added = [precedence(s.rule) for s in found.steps if s.add4]
    removed = [precedence(s.rule) for s in found.steps if s.remove4]
    assert added == sorted(added)
    assert removed == sorted(removed, reverse=True)
    asked = [(address, probe) for address in map(IPv4Address, range(10 << 24, (10 << 24) + 16)) for probe in probes([])]
    now = copy(device)
    end = expected_table(fleet.state, "z0")
    for step in single_steps(found):
        take(now, *step)
        assert all(is_allowed(now, *key) in (is_allowed(device, *key), is_allowed(end, *key)) for key in asked)
    assert now == end


def test_a_wrong_order_of_rules_is_noticed() -> None:
    """Why precedence matters: raising a drop's allow above it, done from the bottom, denies for a while."""
    high, low = Rule(2, "allow", "any", ()), Rule(1, "drop", "any", ())
    net = covered([UNIVERSE[0]])
    old: Device = {Rule(0, "allow", "any", ()): net}
    new: Device = {high: net, low: net, Rule(0, "allow", "any", ()): net}
    upward = [SetStep(low, b"\x0a\0\0\0\x20", b"", b"", b""), SetStep(high, b"\x0a\0\0\0\x20", b"", b"", b"")]
    now = copy(old)
    seen = []
    for step in single_steps(Delta(1, 2, b"", tuple(upward))):
        take(now, *step)
        seen.append(is_allowed(now, UNIVERSE[0], ("tcp", 1)))
    assert now == new
    assert seen == [False, True]

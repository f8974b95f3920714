"""A dry run predicts the effect on every table exactly, whether the change is held or not, and changes no row."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.log import partition_of
from projections.rules.lists import VerdictCounts
from projections.rules.prefixes import networks
from projections.views.dry_runs import ZoneEffect, of_change
from schemas.events import Event, PolicyDeleted, PolicySet
from tests.support.fleet import (
    HERE,
    PARTITIONS,
    Address,
    Device,
    Fleet,
    Item,
    copy,
    envelope,
    expected_table,
    is_allowed,
    membership,
    probes,
    saved_bytes,
)

ZONES = ("z0", "z1", "z2", "z3")
ADDRESSES: list[Address] = [
    *(IPv4Address(f"10.0.0.{number}") for number in range(24)),
    *(IPv6Address(f"fd00::{number:x}") for number in range(16)),
]
LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("01"), max_size=2)

nodes = st.lists(
    st.builds(
        lambda number, labels, six: Item(
            f"n{number}",
            f"z{number % 4}",
            str(IPv4Address(f"10.0.0.{number % 24}")) if number % 5 else "",
            f"fd00::{number % 16:x}" if six else "",
            labels,
        ),
        st.integers(0, 40),
        LABELS,
        st.booleans(),
    ),
    max_size=40,
    unique_by=lambda item: item.name,
)
policies = st.builds(
    PolicySet,
    st.just(envelope("ann")),
    st.sampled_from(["default", "web", "deny", "one"]),
    st.integers(-1, 1),
    st.sampled_from(["allow", "drop"]),
    st.sampled_from(["any", "any", "tcp", "icmp"]),
    st.just([]),
    LABELS,
    LABELS,
)
edits = st.one_of(
    policies, st.builds(PolicyDeleted, st.just(envelope("ann")), st.sampled_from(["default", "web", "deny"]))
)


def made(
    found: Sequence[Item], rules: Sequence[PolicySet], zones: Sequence[dict[str, str]], min_addresses: int
) -> Fleet:
    fleet = Fleet()
    fleet.budget("denied-by-change", 0, 1_000_000)
    fleet.budget("denied-by-leave", 0, 1_000_000)
    for zone, labels in zip(ZONES, zones, strict=True):
        fleet.describe(zone, labels)
    for item in found:
        fleet.change(item)
    for rule in rules:
        fleet.apply(rule)
    fleet.now_ms += 3_600_000
    fleet.budget("denied-by-change", 0, min_addresses)
    fleet.budget("denied-by-leave", 0, min_addresses)
    return fleet


def tables(fleet: Fleet) -> dict[str, Device]:
    return {zone: expected_table(fleet.state, zone) for zone in fleet.state.zones.rows}


def table_effects(fleet: Fleet, event: Event) -> tuple[Outcome, str, list[ZoneEffect]]:
    """The result of a dry run, after a check that it changed no row."""
    before = saved_bytes(fleet.state)
    change, outcome = fleet.fold.decide(
        fleet.state, event, RecordMetadata(HERE, fleet.offset, fleet.now_ms, fleet.now_ms)
    )
    verdict = of_change(fleet.state, change, fleet.offset + 1)
    effects = [effect for effect in verdict.table_effects.effects() if effect is not None]
    assert saved_bytes(fleet.state) == before
    return outcome, verdict.budget, effects


def after(had: dict[str, Device], effects: Sequence[ZoneEffect]) -> dict[str, Device]:
    """The tables after the predicted effects."""
    becomes = {zone: copy(device) for zone, device in had.items()}
    for effect in effects:
        for zone in effect.zones:
            for rule, _, change in effect.rules:
                found = becomes[zone].setdefault(rule, set())
                gone, come = {*networks(change.remove4, change.remove6)}, {*networks(change.add4, change.add6)}
                assert gone <= found and not come & found
                found -= gone
                found |= come
                if not found:
                    del becomes[zone][rule]
    return becomes


def check(fleet: Fleet, event: Event) -> None:
    had = tables(fleet)
    outcome, budget, effects = table_effects(fleet, event)
    expected = after(had, effects)
    assert fleet.apply(event) == outcome
    assert (outcome.code == "held") == bool(budget)
    if outcome.code == "held":
        assert budget in outcome.reason
        assert fleet.approve(outcome.result["hold"], "bob").code == "done"
        assert fleet.approve(outcome.result["hold"], "cat").code == "done"
    now = {zone: expected_table(fleet.state, zone) for zone in had}
    assert {zone: device for zone, device in now.items() if device} == {z: d for z, d in expected.items() if d}
    foretold = {zone: effect.verdict_counts for effect in effects for zone in effect.zones}
    assert {zone: turned(had[zone], now[zone]) for zone in had} == {
        z: foretold.get(z, VerdictCounts(0, 0)) for z in had
    }


def turned(had: Device, becomes: Device) -> VerdictCounts:
    """The numbers of addresses that lose and that gain some traffic."""
    if had == becomes:
        return VerdictCounts(0, 0)
    asked = probes([*had, *becomes])
    allowed = denied = 0
    for address in ADDRESSES:
        before = {probe for probe in asked if is_allowed(had, address, probe)}
        after = {probe for probe in asked if is_allowed(becomes, address, probe)}
        allowed += bool(after - before)
        denied += bool(before - after)
    return VerdictCounts(denied, allowed)


@settings(max_examples=150)
@given(
    nodes,
    st.lists(policies, max_size=4),
    st.lists(LABELS, min_size=4, max_size=4),
    st.sampled_from([0, 3, 1_000]),
    edits,
)
def test_an_edit_has_the_effect_that_its_dry_run_predicted(
    found: list[Item], rules: list[PolicySet], zones: list[dict[str, str]], min_addresses: int, edit: Event
) -> None:
    check(made(found, rules, zones, min_addresses), edit)


@settings(max_examples=100)
@given(
    nodes,
    st.lists(policies, max_size=4),
    st.lists(LABELS, min_size=4, max_size=4),
    st.sampled_from([0, 3, 1_000]),
    st.sets(st.integers(0, 40), min_size=1, max_size=20),
)
def test_a_leave_has_the_effect_that_its_dry_run_predicted(
    found: list[Item], rules: list[PolicySet], zones: list[dict[str, str]], min_addresses: int, gone: set[int]
) -> None:
    fleet = made(found, rules, zones, min_addresses)
    rows = fleet.state.members.rows
    names = [f"n{number}" for number in sorted(gone) if f"n{number}" in rows]
    leaving = [Item(name, rows[name].zone, state=1) for name in names]
    for zone in ZONES:  # a record is about the zones of one partition
        here = [item for item in leaving if item.zone == zone]
        if here:
            cause = partition_of(zone.encode(), PARTITIONS)
            mark = fleet.state.marks[cause]
            check(fleet, membership(cause, mark, mark + 1, here))


def test_a_drop_of_six_addresses_denies_six() -> None:
    fleet = Fleet()
    fleet.budget("denied-by-change", 1_000, 0)
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.0.{i}", labels={"a": "1"} if i < 6 else {}) for i in range(8)))
    drop = PolicySet(envelope("ann"), "deny", 1, "drop", "any", [], {"a": "1"}, {})
    _, _, (effect,) = table_effects(fleet, drop)
    assert effect.verdict_counts == VerdictCounts(allowed=0, denied=6)
    assert fleet.apply(drop).code == "done"
    _, _, (back,) = table_effects(fleet, PolicyDeleted(envelope("ann"), "deny"))
    assert back.verdict_counts == VerdictCounts(allowed=6, denied=0)
    cause = partition_of(b"z0", PARTITIONS)
    leave = membership(cause, fleet.state.marks[cause], fleet.state.marks[cause] + 1, [Item("n7", "z0", state=1)])
    _, _, (left,) = table_effects(fleet, leave)
    assert left.verdict_counts == VerdictCounts(allowed=0, denied=1), (
        "a split prefix of a neighbour does not change its verdict"
    )
    assert [*networks(left.rules[0].change.add4, b"")] == [IPv4Network(f"10.0.0.{n}") for n in ("0/30", "4/31", "6/32")]

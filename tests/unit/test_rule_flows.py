"""The flows of rule tables: what their digest detects, the order of their priorities, and the masks of ports."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from drivers.openflow import messages as of
from drivers.openflow.messages import Flow
from drivers.openflow.rule_flows import (
    COOKIE,
    PRIORITY_MAX,
    FlowComparison,
    FlowLayout,
    Priorities,
    port_masks,
    priorities_found,
    rule_cookie,
    table_flows,
)
from projections.rules.device_table import DeviceTable
from projections.rules.rule import Rule, precedence
from tests.contract.device import some_rules, table

LAYOUT = FlowLayout(20, of.goto_table(30), 1_000, 30, of.apply_actions(of.output(of.NORMAL)))
seeds = st.integers(0, 1 << 32)


def some_table(seed: int) -> DeviceTable:
    return table(1, some_rules(random.Random(seed)))


def flows_of(content: DeviceTable) -> tuple[list[Flow], Priorities]:
    priorities = Priorities.spread(content.rules)
    return list(table_flows(content, priorities.of_rules, LAYOUT)), priorities


def compared(flows: Iterable[Flow], content: DeviceTable, priorities: Priorities) -> FlowComparison:
    found = FlowComparison(content, priorities.of_rules, LAYOUT)
    for flow in flows:
        found.add(flow)
    return found


@given(seeds)
def test_the_flows_of_a_table_amount_to_it(seed: int) -> None:
    content = some_table(seed)
    flows, priorities = flows_of(content)
    assert len({(flow.table, flow.priority, flow.match) for flow in flows}) == len(flows), "no flow replaces another"
    found = compared(flows, content, priorities)
    assert (found.digest(), found.differences) == (content.digest, 0)


@given(seeds, st.randoms(use_true_random=False))
def test_every_lost_changed_or_added_flow_changes_the_digest_and_is_found(seed: int, rng: random.Random) -> None:
    content = some_table(seed)
    flows, priorities = flows_of(content)
    lost = rng.choice(flows)
    left = [flow for flow in flows if flow != lost]
    stray = Flow(20, 77, COOKIE | 1, of.field(5, b"\x08\x00"), b"")
    other = lost._replace(instructions=of.goto_table(7))
    for found, missing, strays in (
        (left, [lost], []),
        ([*flows, stray], [], [stray]),
        ([*left, other], [lost], []),  # the missing flow replaces the changed one
        ([*left, lost._replace(priority=lost.priority + 1)], [lost], [lost._replace(priority=lost.priority + 1)]),
    ):
        comparison = compared(found, content, priorities)
        assert comparison.digest() != content.digest
        assert ([*comparison.missing()], comparison.strays()) == (missing, strays)
        assert comparison.differences == len(missing) + len(strays)


@given(seeds, seeds)
def test_a_comparison_leads_from_any_table_to_any_other(old_seed: int, new_seed: int) -> None:
    old, new = some_table(old_seed), some_table(new_seed)
    flows, _ = flows_of(old)
    priorities = priorities_found({flow.cookie: flow.priority for flow in flows}, new.rules)
    found = compared(flows, new, priorities)
    held = {(flow.table, flow.priority, flow.match): flow for flow in flows}
    held |= {(flow.table, flow.priority, flow.match): flow for flow in found.missing()}
    for flow in found.strays():
        del held[flow.table, flow.priority, flow.match]
    assert compared(held.values(), new, priorities).digest() == new.digest
    kept = {rule_cookie(rule): number for rule, number in priorities.of_rules.items() if rule in old.rules}
    assert all(flow.priority == kept[flow.cookie] for flow in flows if flow.cookie in kept), "no flow moves"


rules = st.builds(
    Rule, st.integers(-100, 100), st.sampled_from(("allow", "drop")), st.sampled_from(("any", "tcp")), st.just(())
)


@given(st.lists(rules, unique=True, max_size=40))
def test_priorities_are_in_the_order_of_precedence_and_stay(given_rules: list[Rule]) -> None:
    priorities = Priorities()
    for count, rule in enumerate(given_rules):
        before = dict(priorities.of_rules)
        if not priorities.place(rule):
            priorities = Priorities.spread(given_rules[: count + 1])
            before = {}
        assert before.items() <= priorities.of_rules.items() and priorities.is_ordered()
    ordered = sorted(given_rules, key=precedence)
    assert sorted(given_rules, key=lambda rule: -priorities.of_rules[rule]) == ordered
    assert all(0 < number < PRIORITY_MAX for number in priorities.of_rules.values())


def test_rules_without_room_between_their_neighbors_get_new_priorities() -> None:
    priorities = Priorities.spread([Rule(0, "allow", "any", ()), Rule(1 << 40, "allow", "any", ())])
    placed = [priorities.place(Rule(number, "allow", "any", ())) for number in range(1, 60)]
    assert not all(placed) and placed[0] and priorities.is_ordered()
    assert Priorities.spread(Rule(number, "allow", "any", ()) for number in range(60)).is_ordered()


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_port_masks_match_exactly_the_ports_of_a_range(first: int, last: int) -> None:
    masks = list(port_masks(first, last))
    covered = [value | low for value, mask in masks for low in range(0x1_0000 - mask)]
    assert covered == list(range(first, last + 1)) and len(masks) <= 30

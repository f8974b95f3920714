"""Policies: their content, the order of ties, and the classes of traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.rules import lists
from projections.rules.lists import Plan, VerdictCounts, count_verdict_changes, id_of, list_of
from projections.rules.policies import BUILT_IN, Policy, Selector, fault_of_policy, matches, policy_of, selector
from projections.rules.rule import Rule
from projections.rules.traffic import TrafficClasses, allowed_classes
from schemas.events import PolicySet
from tests.support.fleet import Fleet, envelope, is_allowed, probes


def policy_event(**changes: object) -> PolicySet:
    fields = {"priority": 0, "action": "allow", "protocol": "any", "ports": [], "sources": {}, "zones": {}}
    return PolicySet(envelope("ann"), **{"name": "p", **fields, **changes})  # type: ignore[arg-type]


def policy(name: str, priority: int = 0, action: str = "allow", **selectors: dict[str, str]) -> Policy:
    sources, zones = selectors.get("sources", {}), selectors.get("zones", {})
    return Policy(name, priority, action, "any", (), sources, zones, 0)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": "a b"}, "name: 'a b' must be 1 to 63"),
        ({"action": "deny"}, "action: 'deny' must be allow or drop"),
        ({"protocol": "sctp"}, "protocol: 'sctp' must be any, tcp, udp or icmp"),
        ({"priority": 1_000_001}, "priority: 1000001 must be from"),
        ({"ports": [80, 80]}, "ports: must be empty with protocol 'any': only tcp and udp have ports"),
        ({"protocol": "icmp", "ports": [0, 1]}, "protocol 'icmp': only"),
        ({"protocol": "tcp", "ports": [80]}, "ports: 1 port numbers must be at most 64 pairs"),
        ({"protocol": "tcp", "ports": [90, 80]}, "ports: 90-80 must be FIRST-LAST"),
        ({"protocol": "udp", "ports": [0, 65_536]}, "ports: 0-65536 must be FIRST-LAST"),
        ({"protocol": "tcp", "ports": [1, 1] * 65}, "ports: 130 port numbers must be at most 64 pairs"),
        ({"sources": {"a b": "1"}}, "sources key: 'a b' must be"),
        ({"zones": {"k": "x\ny"}}, "zones[k]: 'x\\ny' must be at most"),
    ],
)
def test_an_invalid_policy_is_refused_in_one_sentence_and_changes_nothing(
    changes: dict[str, object], fault: str
) -> None:
    found = fault_of_policy(policy_event(**changes))
    assert found is not None
    assert fault in found
    fleet = Fleet()
    outcome = fleet.apply(policy_event(**changes))
    assert (outcome.code, outcome.reason) == ("refused", found)
    assert list(fleet.state.policies.rows) == ["default"]


def test_ports_are_sorted_and_joined() -> None:
    ports = policy_of(policy_event(protocol="tcp", ports=[443, 443, 80, 90, 91, 95, 85, 92]), 1).ports
    assert ports == (80, 95, 443, 443)


def test_an_empty_selector_matches_everything_and_a_conjunction_needs_every_label() -> None:
    assert matches({}, {})
    assert matches({}, {"a": "1"})
    assert matches({"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"})
    assert not matches({"a": "1", "b": "2"}, {"a": "1"})
    assert not matches({"a": "1"}, {"a": "2"})


def test_a_list_is_ordered_by_priority_and_then_drop_before_allow() -> None:
    found = list_of([BUILT_IN, policy("x", 1), policy("y", 1, "drop"), policy("z", 2)], {})
    assert [(key.rule.priority, key.rule.action) for key in found] == [
        (2, "allow"),
        (1, "drop"),
        (1, "allow"),
        (BUILT_IN.priority, "allow"),
    ]


def test_policies_with_one_rule_share_one_set_of_sources() -> None:
    both = [policy("x", sources={"a": "1"}), policy("y", sources={"b": "1"})]
    (one,) = list_of(both, {})
    assert one.sources == ((("a", "1"),), (("b", "1"),))
    (everyone,) = list_of([*both, policy("z")], {})
    assert everyone.sources == ((),)


def test_the_id_of_a_list_depends_on_its_content_only() -> None:
    assert id_of(list_of([policy("x")], {})) == id_of(list_of([policy("another name", zones={"t": "1"})], {"t": "1"}))
    assert id_of(list_of([policy("x")], {})) != id_of(list_of([policy("x", 1)], {}))


def test_the_built_in_default_can_be_replaced_and_restored() -> None:
    fleet = Fleet()
    assert fleet.policy("default", priority=3, action="drop").code == "done"
    assert fleet.state.policies.rows["default"].action == "drop"
    assert fleet.delete_policy("default").code == "done"
    back = fleet.state.policies.rows["default"]
    assert (back.content(), back.version) == (BUILT_IN.content(), fleet.offset)
    assert fleet.delete_policy("default").code == "unchanged"
    assert fleet.delete_policy("p").reason == "name: 'p' must be the name of an existing policy"


ranges = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=3)
rules = st.builds(
    lambda priority, action, protocol, found: Rule(
        priority,
        action,
        protocol,
        tuple(port for first, more in found for port in (first, first + more)) if protocol in ("tcp", "udp") else (),
    ),
    st.integers(0, 2),
    st.sampled_from(("allow", "drop")),
    st.sampled_from(("any", "tcp", "udp", "icmp")),
    ranges,
)


@given(st.lists(rules, max_size=5, unique=True), st.lists(rules, max_size=5, unique=True))
def test_classes_of_traffic_decide_exactly_whether_traffic_is_lost(old: list[Rule], new: list[Rule]) -> None:
    """The masks are compared with a probe of every port, for a source that is in every rule."""
    traffic = TrafficClasses([*old, *new])

    def mask(found: list[Rule]) -> int:
        ordered = sorted(found, key=lambda rule: (-rule.priority, rule.action == "allow"))
        return allowed_classes((rule.action == "allow", traffic.masks[rule]) for rule in ordered)

    address, everything = IPv4Address("10.0.0.1"), IPv4Network("0.0.0.0/0")
    lost = any(
        is_allowed({rule: {everything} for rule in old}, address, probe)
        and not is_allowed({rule: {everything} for rule in new}, address, probe)
        for probe in probes([*old, *new])
    )
    assert bool(mask(old) & ~mask(new)) == lost


def test_verdict_changes_are_counted_per_pair_of_lists() -> None:
    old = Plan([BUILT_IN], [])
    new = Plan([BUILT_IN, policy("drop-a", action="drop", sources={"a": "1"})], [])
    labels = ({"a": "1"}, {"a": "2"})
    held = {(old.bits_of(found), new.bits_of(found)): count for found, count in zip(labels, (30, 4), strict=True)}
    assert count_verdict_changes(old, new, [(0, 0)], held) == {(0, 0): VerdictCounts(denied=30, allowed=0)}
    assert count_verdict_changes(old, old, [(0, 0)], held) == {}
    back = {(after, before): count for (before, after), count in held.items()}
    assert count_verdict_changes(new, old, [(0, 0)], back) == {(0, 0): VerdictCounts(denied=0, allowed=30)}


some_labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"))


@given(st.lists(some_labels, min_size=1, max_size=6), some_labels)
def test_the_sets_of_a_node_are_those_whose_selectors_match(
    sources: list[dict[str, str]], labels: dict[str, str]
) -> None:
    plan = Plan([policy(f"p{i}", i % 4, sources=found) for i, found in enumerate(sources)], [])
    expected = [any(matches(wanted, labels) for wanted in key.sources) for key in plan.keys]
    assert [bool(plan.bits_of(labels) >> bit & 1) for bit in range(len(plan.keys))] == expected


def test_matching_a_node_costs_the_same_for_any_number_of_policies() -> None:
    class Counted(dict[str, str]):
        asked = 0

        def get(self, key: str, default: object = None) -> str:
            self.asked += 1
            return self[key]

    plan = Plan([policy(f"p{i}", sources={"a": "1", "b": str(i)}) for i in range(500)], [])
    labels = Counted(a="1", b="77")
    assert plan.bits_of(labels)
    assert labels.asked <= 2


def test_a_list_costs_the_same_for_any_number_of_policies_of_other_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[object] = []

    def counted(wanted: Mapping[str, str] | Selector, labels: Mapping[str, str]) -> bool:
        looked_at.append(wanted)
        return matches(wanted, labels)

    monkeypatch.setattr(lists, "matches", counted)
    policies = [policy(f"p{i}", i, zones={"a": "1", "rack": str(i)}) for i in range(100)]
    labels = [{"a": "1", "rack": str(i)} for i in range(100)]
    plan = Plan([BUILT_IN, *policies], map(selector, labels))
    assert [plan.names_of(found) for found in labels] == [(f"p{i}", "default") for i in range(100)]
    assert len(looked_at) <= 5 * len(labels)


several_policies = st.dictionaries(
    st.sampled_from("pqrs"), st.tuples(st.integers(0, 1), some_labels, some_labels), max_size=4
).map(lambda found: [policy(name, *rest[:1], sources=rest[1], zones=rest[2]) for name, rest in found.items()])
labels_of_zones = st.lists(some_labels.map(selector), max_size=5)


@given(several_policies, several_policies, labels_of_zones, labels_of_zones)
def test_an_incremental_plan_equals_a_new_one(
    before: list[Policy], after: list[Policy], known: list[Selector], wanted: list[Selector]
) -> None:
    former = Plan([BUILT_IN, *before], known)
    made, anew = Plan([BUILT_IN, *after], wanted, former), Plan([BUILT_IN, *after], wanted)
    assert (made.lists, made.keys) == (anew.lists, anew.keys)
    assert all(made.number_of(dict(labels)) == anew.number_of(dict(labels)) for labels in wanted)


def test_an_edit_recomputes_only_the_lists_that_it_affects(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    for number in range(20):
        fleet.describe(f"z{number}", {"rack": str(number)})
    made: list[object] = []

    def counted(policies: Iterable[Policy], labels: Mapping[str, str]) -> object:
        made.append(labels)
        return list_of(policies, labels)

    monkeypatch.setattr(lists, "list_of", counted)
    fleet.describe("new", {"rack": "new"})
    assert made == [{"rack": "new"}]
    made.clear()
    fleet.policy("p", zones={"rack": "7"})
    assert made == [{"rack": "7"}]

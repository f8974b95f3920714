"""Withdrawals, counted by address: which changes are withdrawals, their kind, and how many exceed a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from eventstore.log import FLEET_0
from projections.fleet.membership.rows import Member, ReachableState, RetainedStates
from projections.fleet.policies.fleet_zones import FleetZone
from projections.fleet.withdrawals.budgets import Budget
from projections.rules.policies import Policy
from schemas import events as e
from tests.simulation.checkers import budgets
from tests.support.written_run import WrittenRun
from tests.support.written_steps import WrittenSteps

LOG = WrittenRun()
"""A source of envelopes; their authors and times do not matter."""

NOTHING = {kind: Budget(kind, 0, 0) for kind in ("denied-by-leave", "denied-by-change")}
"""Budgets of zero, so that every withdrawal is reported."""

HOUR_S = 3_660
"""Addresses count in the base of budgets after an hour."""

LOSS = re.compile(r"fleet/0@\d+: (.+) loses (\d+) addresses \(([\w-]+)\)")
Rows = Mapping[str, Mapping[str, Any]]


def node(four: str = "", six: str = "", *, slot: int = 0, **labels: str) -> Member:
    address4 = int(IPv4Address(four)) if four else 0
    return Member("z", 1, "u", address4, IPv6Address(six).packed if six else b"", labels, slot, False, -1, 1)


def retained(*parts: Member) -> RetainedStates:
    return RetainedStates(tuple(ReachableState(3, 0, part.address4, part.address6, part.labels) for part in parts))


def zone(**labels: str) -> FleetZone:
    return FleetZone(labels, 0, 0, 0, 0)


def policy(action: str, priority: int = 0, protocol: str = "any", *ports: int, of: Any = (), at: Any = ()) -> Policy:
    return Policy("", priority, action, protocol, ports, dict(of), dict(at), 0)


def membership(**states: int) -> e.Event:
    """A MembershipChanged with these nodes and states. Its effect is given by rows elsewhere."""
    names = list(states)
    return e.MembershipChanged(
        LOG.stated(), 0, 0, 1, 1, ["z"], names, list(states.values()), [1], ["u"], b"", b"", [{}], [0], [], []
    )


EVENT = e.PolicySet(LOG.said(), "p", 0, "allow", "any", [], {}, {})


def losses(*changes: tuple[e.Event, Rows]) -> list[str]:
    """The reported withdrawals, by number and kind, with budgets of zero."""
    steps = WrittenSteps().add(None, FLEET_0, budgets=NOTHING)
    for event, rows in changes:
        steps.add(event, FLEET_0, **rows)
    found = map(LOSS.match, budgets.check_budgets(steps.evidence()))
    return [" ".join(match.groups()) for match in found if match]


WEB = {"role": "web"}
FLEET: Rows = {
    "members": {
        "a": node("10.0.0.1", "fd00::1", role="web"),
        "b": node("10.0.0.2", role="db"),
        "twin": node("10.0.0.2", role="db", tier="old"),
        "none": node(),
        "out": node("10.0.0.9", slot=-1),
    },
    "retained": {"k": retained(node("10.0.0.3", role="web"), node("10.0.0.4"))},
}
"""Five admitted addresses, one of them of two nodes. The built-in policy admits all traffic."""


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        pytest.param({"members": {"a": None}}, 2, id="a node with two addresses is removed"),
        pytest.param({"members": {"a": node("10.0.0.1", role="web")}}, 1, id="the node keeps one address"),
        pytest.param(
            {"members": {"a": node("10.0.0.7", "fd00::1", role="web")}}, 1, id="the node has another address instead"
        ),
        pytest.param({"members": {"a": node("10.0.0.1", "fd00::1", slot=-1)}}, 2, id="the node is no longer effective"),
        pytest.param({"members": {"a": node("10.0.0.1", "fd00::1", role="db")}}, 0, id="the node has other labels"),
        pytest.param({"members": {"b": None}}, 0, id="another node has the address too"),
        pytest.param({"members": {"b": None, "twin": None}}, 1, id="both nodes of an address are removed"),
        pytest.param({"members": {"none": None, "out": None}}, 0, id="a node without admitted traffic is removed"),
        pytest.param(
            {"members": {"a": None}, "retained": {"a": retained(FLEET["members"]["a"])}},
            0,
            id="the state of a removed node is retained",
        ),
        pytest.param({"retained": {"k": retained(node("10.0.0.3"))}}, 1, id="fewer states are retained"),
        pytest.param({"retained": {"k": None}}, 2, id="no state is retained any more"),
        pytest.param({"members": {"new": node("10.0.0.8")}}, 0, id="a node joins"),
        pytest.param({"policies": {"p": policy("drop")}}, 5, id="all traffic is dropped"),
        pytest.param({"policies": {"p": policy("drop", of=WEB)}}, 3, id="the traffic of some nodes is dropped"),
        pytest.param({"policies": {"p": policy("drop", of={"tier": "old"})}}, 1, id="one of two nodes is dropped"),
        pytest.param({"policies": {"p": policy("drop", of={**WEB, "tier": "old"})}}, 0, id="no node has both labels"),
        pytest.param({"policies": {"p": policy("drop", 0, "udp", 53, 53, of=WEB)}}, 3, id="one port is dropped"),
        pytest.param({"policies": {"p": policy("drop", 0, "icmp", of=WEB)}}, 3, id="one protocol is dropped"),
        pytest.param({"policies": {"p": policy("drop", at={"site": "x"})}}, 0, id="no zone has this label"),
        pytest.param({"policies": {"p": policy("allow")}}, 0, id="more traffic is allowed"),
        pytest.param({"policies": {"p": policy("drop", 1), "q": policy("allow", 2)}}, 0, id="the allow has precedence"),
        pytest.param({"policies": {"p": policy("drop", 2), "q": policy("allow", 1)}}, 5, id="the drop has precedence"),
        pytest.param(
            {"policies": {"q": policy("allow", 1), "p": policy("drop", 1)}},
            5,
            id="a drop comes before an allow of equal priority",
        ),
        pytest.param({"policies": {"default": None}}, 5, id="the last policy is deleted"),
        pytest.param({"policies": {"never": None}}, 0, id="an unknown policy is deleted"),
        pytest.param({"policies": {"default": policy("allow", 0, "tcp")}}, 5, id="only one protocol stays allowed"),
        pytest.param(
            {"policies": {"default": policy("allow", 0, "any", of=WEB)}}, 2, id="only some nodes stay allowed"
        ),
        pytest.param({"zones": {"z": zone(site="x")}}, 0, id="a zone is new"),
        pytest.param({"freezes": {"": 1}}, 0, id="a change without effect on traffic"),
    ],
)
def test_an_address_is_withdrawn_if_it_loses_admitted_traffic(rows: Rows, lost: int) -> None:
    assert losses((EVENT, FLEET), (EVENT, rows)) == [f"any zone {lost} denied-by-change"] * bool(lost)


PORTS = {"default": policy("allow", 0, "tcp", 80, 90, 443, 443)}


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        pytest.param(policy("allow", 0, "tcp", 80, 90, 443, 443), False, id="the same"),
        pytest.param(policy("allow", 0, "tcp", 79, 91, 443, 444), False, id="wider"),
        pytest.param(policy("allow", 0, "tcp"), False, id="all ports"),
        pytest.param(policy("allow"), False, id="all protocols"),
        pytest.param(policy("allow", 0, "tcp", 81, 90, 443, 443), True, id="the first port"),
        pytest.param(policy("allow", 0, "tcp", 80, 89, 443, 443), True, id="the last port"),
        pytest.param(policy("allow", 0, "tcp", 80, 84, 86, 90, 443, 443), True, id="a port in the middle"),
        pytest.param(policy("allow", 0, "tcp", 80, 90), True, id="a whole range"),
        pytest.param(policy("allow", 0, "udp", 80, 90, 443, 443), True, id="another protocol"),
        pytest.param(policy("allow", 0, "icmp"), True, id="a protocol without ports"),
    ],
)
def test_the_loss_of_any_port_is_a_withdrawal(after: Policy, lost: bool) -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    changed = losses((EVENT, {"policies": PORTS}), (EVENT, one), (EVENT, {"policies": {"default": after}}))
    assert changed == ["any zone 1 denied-by-change"] * lost


@pytest.mark.parametrize(
    ("ports", "lost"), [((0, 65_535), False), ((1, 65_535), True), ((0, 65_534), True), ((0, 90, 92, 65_535), True)]
)
def test_the_first_and_the_last_port_count(ports: tuple[int, ...], lost: bool) -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    setup = (EVENT, {"policies": {"default": policy("allow", 0, "tcp")}}), (EVENT, one)
    changed = {"policies": {"default": policy("allow", 0, "tcp", *ports)}}
    assert losses(*setup, (EVENT, changed)) == ["any zone 1 denied-by-change"] * lost


def test_every_range_of_several_counts() -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    two, three = policy("allow", 0, "tcp", 0, 20, 30, 65_535), policy("allow", 0, "tcp", 0, 20, 30, 40, 50, 65_535)
    gap = (EVENT, {"policies": {"default": two}}), (EVENT, one), (EVENT, {"policies": {"default": three}})
    assert losses(*gap) == ["any zone 1 denied-by-change"], "the ports between the second and the third range"
    some, third = policy("allow", 0, "tcp", 400, 500), policy("drop", 1, "tcp", 10, 20, 30, 40, 420, 430)
    hole = (EVENT, {"policies": {"default": some}}), (EVENT, one), (EVENT, {"policies": {"p": third}})
    assert losses(*hole) == ["any zone 1 denied-by-change"], "the third"


def test_the_loss_of_one_protocol_is_a_withdrawal() -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    for lost in ("tcp", "udp", "icmp"):
        left = {name: policy("allow", 0, name) for name in {"tcp", "udp", "icmp"} - {lost}}
        before = {"default": None, **left, lost: policy("allow", 0, lost)}
        changes = (EVENT, {"policies": before}), (EVENT, one), (EVENT, {"policies": {lost: None}})
        assert losses(*changes) == ["any zone 1 denied-by-change"], lost


def test_withdrawals_are_counted_by_zone() -> None:
    x_only = {"policies": {"default": None, "x": policy("allow", at={"site": "x"})}}
    zones = {"zones": {"x": zone(site="x", rack="1"), "y": zone(site="y")}}
    setup = (EVENT, x_only), (EVENT, zones), (EVENT, {"members": {"a": node("10.0.0.1")}})
    assert losses(*setup, (EVENT, {"members": {"a": None}})) == ["x 1 denied-by-change"]
    assert losses(*setup, (EVENT, {"zones": {"x": zone(site="y")}})) == ["x 1 denied-by-change"]
    assert not losses(*setup, (EVENT, {"zones": {"x": zone(site="x", rack="2"), "y": zone(site="x")}}))


@pytest.mark.parametrize(
    ("states", "rows", "kind"),
    [
        pytest.param({"a": e.LEFT}, {"a": None}, "denied-by-leave", id="a stated leave"),
        pytest.param({"a": e.INFERRED}, {"a": None}, "denied-by-change", id="an inferred leave"),
        pytest.param({"a": e.SUPERSEDED}, {"a": None}, "denied-by-change", id="superseded by another zone"),
        pytest.param({"a": e.PRESENT}, {"a": node("10.0.0.7")}, "denied-by-change", id="another address"),
        pytest.param(
            {"a": e.LEFT, "b": e.LEFT},
            {"a": None, "b": None},
            "denied-by-leave",
            id="stated leaves of both nodes of an address",
        ),
        pytest.param(
            {"a": e.INFERRED, "b": e.LEFT},
            {"a": None, "b": None},
            "denied-by-change",
            id="the leave of the first node is inferred",
        ),
        pytest.param(
            {"b": e.INFERRED, "a": e.LEFT},
            {"a": None, "b": None},
            "denied-by-change",
            id="the leave of the second node is inferred",
        ),
    ],
)
def test_a_loss_is_by_leave_only_if_all_leaves_are_stated(
    states: Mapping[str, int], rows: Mapping[str, Member | None], kind: str
) -> None:
    before = {name: node("10.0.0.1") for name in rows}
    assert losses((EVENT, {"members": before}), (membership(**states), {"members": rows})) == [f"any zone 1 {kind}"]


def test_a_single_state_applies_to_all_nodes_of_a_record() -> None:
    event = e.MembershipChanged(
        LOG.stated(), 0, 0, 1, 1, ["z"], ["a", "b"], [e.LEFT], [1], ["u"], b"", b"", [{}], [0], [], []
    )
    rows = {name: node(f"10.0.0.{number}") for number, name in enumerate("ab", 1)}
    assert losses((EVENT, {"members": rows}), (event, {"members": dict.fromkeys("ab")})) == [
        "any zone 2 denied-by-leave"
    ]


def test_stated_and_other_leaves_of_a_record_have_separate_budgets() -> None:
    rows = {name: node(f"10.0.0.{number}") for number, name in enumerate("abc", 1)}
    gone = membership(a=e.LEFT, b=e.INFERRED, c=e.LEFT), {"members": dict.fromkeys("abc")}
    assert sorted(losses((EVENT, {"members": rows}), gone)) == [
        "any zone 1 denied-by-change",
        "any zone 2 denied-by-leave",
    ]


def test_a_loss_is_by_change_if_the_record_also_has_another_change_of_the_address() -> None:
    """The record also has a change that is no stated leave, so the loss is not by stated leaves alone."""
    old = {"policies": {"p": policy("drop", of={"tier": "old"})}}
    before = {"members": {"a": node("10.0.0.1"), "b": node("10.0.0.1")}}
    joins = {"members": {"a": None, "x": node("10.0.0.1", tier="old")}}
    assert losses((EVENT, old), (EVENT, before), (membership(a=e.LEFT, x=e.PRESENT), joins)) == [
        "any zone 1 denied-by-change"
    ]
    joined = {"members": {"x": node("10.0.0.1", tier="old")}}
    assert losses((EVENT, old), (EVENT, before), (membership(x=e.PRESENT), joined)) == ["any zone 1 denied-by-change"]
    relabelled = {"members": {"a": node("10.0.0.1", tier="old")}}
    assert losses((EVENT, old), (EVENT, before), (membership(a=e.LEFT), relabelled)) == ["any zone 1 denied-by-change"]


def test_an_unchanged_node_of_the_record_does_not_change_the_kind_of_loss() -> None:
    web = {"policies": {"default": policy("allow", of=WEB)}}
    before = {"members": {"a": node("10.0.0.1", role="web"), "b": node("10.0.0.1", role="db")}}
    gone = {"members": {"a": None, "b": before["members"]["b"]}}
    assert losses((EVENT, web), (EVENT, before), (membership(a=e.LEFT, b=e.PRESENT), gone)) == [
        "any zone 1 denied-by-leave"
    ]


def test_the_loss_of_retained_states_has_the_kind_of_its_node() -> None:
    """Two retained states of one node have the same address."""
    before = {"retained": {"a": retained(node("10.0.0.1"), node("10.0.0.1", tier="old"))}}
    assert losses((EVENT, before), (membership(a=e.LEFT), {"retained": {"a": None}})) == ["any zone 1 denied-by-leave"]
    assert losses((EVENT, before), (membership(a=e.INFERRED), {"retained": {"a": None}})) == [
        "any zone 1 denied-by-change"
    ]


def test_a_loss_by_a_policy_is_no_leave() -> None:
    before = {"members": {"a": node("10.0.0.1")}}
    gone: Rows = {"members": {"a": None}, "policies": {"p": policy("drop")}}
    assert losses((EVENT, before), (EVENT, gone)) == ["any zone 1 denied-by-change"]


def withdrawn(
    *counts: tuple[float, int], permille: int = 0, min_addresses: int = 0, of: int = 100, late: int = 0
) -> list[str]:
    """The report about withdrawals by (seconds after an hour, count), of `of` addresses in all, with this budget.

    `late` more addresses join a minute before the hour ends.
    """
    steps = WrittenSteps().add(
        EVENT, FLEET_0, budgets={"denied-by-change": Budget("denied-by-change", permille, min_addresses), "x": None}
    )
    names = [f"n{number}" for number in range(of)]
    steps.add(EVENT, FLEET_0, members={name: node(f"10.0.0.{number}") for number, name in enumerate(names, 1)})
    steps.now_s += HOUR_S - 60
    steps.add(EVENT, FLEET_0, members={f"late{number}": node(f"10.1.0.{number}") for number in range(late)})
    for at_s, count in counts:
        steps.now_s = HOUR_S + at_s - 1.0
        gone, names = names[:count], names[count:]
        steps.add(EVENT, FLEET_0, members=dict.fromkeys(gone))
    return list(budgets.check_budgets(steps.evidence()))


def test_a_budget_is_a_share_of_the_addresses_before_the_window() -> None:
    assert not withdrawn((10, 4), (20, 6), permille=100)
    assert withdrawn((10, 4), (20, 7), permille=100) == [
        "fleet/0@4: any zone loses 7 addresses (denied-by-change) after 4, of 10 at most"
    ]
    assert not withdrawn((10, 10), permille=100, of=109)
    assert withdrawn((10, 11), permille=100, of=109)


def test_new_addresses_do_not_enlarge_a_budget() -> None:
    assert withdrawn((10, 11), permille=100, late=200)
    assert not withdrawn((10, 10), permille=100, late=200)
    assert withdrawn((10, 51), min_addresses=90, late=200)
    assert not withdrawn((HOUR_S + 70, 30), permille=100, late=200)


def test_a_budget_has_a_minimum_count_and_at_most_half_of_all_addresses() -> None:
    assert withdrawn((10, 51), min_addresses=60) == [
        "fleet/0@3: any zone loses 51 addresses (denied-by-change) after 0, of 50 at most"
    ]
    assert not withdrawn((10, 20), permille=100, min_addresses=20)
    assert withdrawn((10, 21), permille=100, min_addresses=20)


def test_withdrawals_expire_after_ten_minutes() -> None:
    assert not withdrawn((10, 10), (610, 10), (1210, 10), min_addresses=10)
    assert withdrawn((10, 10), (609.9, 1), min_addresses=10)
    assert withdrawn((10, 10), (400, 1), (611, 10), min_addresses=10) == [
        "fleet/0@4: any zone loses 1 addresses (denied-by-change) after 10, of 10 at most",
        "fleet/0@5: any zone loses 10 addresses (denied-by-change) after 1, of 10 at most",
    ]


def test_withdrawals_expire_on_time_after_clock_jumps() -> None:
    assert withdrawn((610, 10), (10, 1), min_addresses=10)
    assert not withdrawn((610, 10), (10, 0), (1210, 10), min_addresses=10)


def changed_at(*changes: tuple[float, Rows]) -> list[str]:
    """The report for changes of rows at these seconds, with the default budgets."""
    steps = WrittenSteps()
    for at_s, rows in changes:
        steps.now_s = at_s - 1.0
        steps.add(EVENT, FLEET_0, **rows)
    return list(budgets.check_budgets(steps.evidence()))


def nodes(first: int, count: int) -> Rows:
    return {"members": {f"n{number}": node(f"10.0.0.{number}") for number in range(first, first + count)}}


def gone(first: int, count: int) -> Rows:
    return {"members": {f"n{number}": None for number in range(first, first + count)}}


def test_a_level_within_its_first_minute_does_not_lower_the_base() -> None:
    """The only address of the first minute was withdrawn within that minute, so it is not the smallest level."""
    setup = (1, {"zones": {"z": zone()}}), (90, nodes(1, 1)), (91, gone(1, 1)), (92, nodes(2, 20))
    assert not changed_at(*setup, (200, gone(2, 9)))
    assert changed_at(*setup, (200, gone(2, 10))) == [
        f"fleet/0@4: {where} loses 10 addresses (denied-by-change) after 1, of 10 at most"
        for where in ("any zone", "z")
    ]


def test_withdrawals_after_a_level_are_not_added_to_it() -> None:
    setup = (1, nodes(1, 20)), (200, nodes(21, 40))
    assert not changed_at(*setup, (300, gone(21, 6)), (301, gone(27, 4)))
    assert changed_at(*setup, (300, gone(21, 6)), (301, gone(27, 5))) == [
        "fleet/0@3: any zone loses 5 addresses (denied-by-change) after 6, of 10 at most"
    ]


def test_a_level_that_a_fast_clock_dropped_stays_dropped() -> None:
    """The plane stores levels of the last hour only, and cannot restore them when the clock is corrected."""
    setup = (1, nodes(1, 6)), (120, nodes(7, 94))
    ahead = (2 * HOUR_S, nodes(200, 1))
    assert not changed_at(*setup, ahead, (300, gone(1, 50)))
    assert len(changed_at(*setup, ahead, (300, gone(1, 51)))) == 1
    assert len(changed_at(*setup, (300, gone(1, 4)))) == 1


def test_the_default_budgets() -> None:
    """Default budgets: 1 % and 100 addresses for unstated withdrawals, 10 % and 1,000 for stated ones."""

    def faults(state: int, count: int) -> list[str]:
        names = [f"n{number}" for number in range(2_200)]
        steps = WrittenSteps().add(
            EVENT, FLEET_0, members={n: node(f"10.1.{i >> 8}.{i & 255}") for i, n in enumerate(names)}
        )
        steps.add(membership(**dict.fromkeys(names[:count], state)), FLEET_0, members=dict.fromkeys(names[:count]))
        return [fault.partition("loses ")[2] for fault in budgets.check_budgets(steps.evidence())]

    assert not faults(e.INFERRED, 100)
    assert faults(e.INFERRED, 101) == ["101 addresses (denied-by-change) after 0, of 100 at most"]
    assert not faults(e.LEFT, 1_000)
    assert faults(e.LEFT, 1_001) == ["1001 addresses (denied-by-leave) after 0, of 1000 at most"]


def approved(held_change: e.Event, *persons: str, hold: int = 1, rows: Rows = FLEET) -> list[str]:
    """The report for a held change that these persons approve, the last of whom releases it."""
    steps = WrittenSteps().add(None, FLEET_0, budgets=NOTHING, **rows).add(held_change, FLEET_0, holds={"1": 1})
    for person in persons[:-1]:
        steps.add(e.HoldApproved(LOG.said(actor=person), hold, b""), FLEET_0, holds={"1": 1})
    steps.add(e.HoldApproved(LOG.said(actor="deaf"), 1, b"not what is held now"), FLEET_0)
    last = e.HoldApproved(LOG.said(actor=persons[-1]), 1, b"")
    steps.add(last, FLEET_0, holds={"1": None}, members={"a": None})
    steps.add(e.HoldApproved(LOG.said(actor="late"), 1, b""), FLEET_0, holds={"1": 1})
    return list(budgets.check_budgets(steps.evidence()))


HELD_CHANGES: dict[str, e.Event] = {
    "policy": e.PolicySet(LOG.said(actor="eve"), "p", 0, "drop", "any", [], {}, {}),
    "deletion": e.PolicyDeleted(LOG.said(actor="eve"), "p"),
    "zone": e.ZoneUpdated(LOG.said(actor="eve"), "z", True, {}, -1, -1),
}


@pytest.mark.parametrize("held_change", HELD_CHANGES.values(), ids=HELD_CHANGES)
def test_a_hold_needs_the_approval_of_two_persons_other_than_its_author(held_change: e.Event) -> None:
    assert not approved(held_change, "ann", "bob")
    message = "fleet/0@{}: hold 1 is released by {} alone"
    assert approved(held_change, "bob") == [message.format(3, ["bob"])]
    assert approved(held_change, "ann", "ann") == [message.format(4, ["ann"])]
    assert approved(held_change, "eve", "bob") == [message.format(4, ["bob"])]
    assert approved(held_change, "ann", "bob", hold=2) == [message.format(4, ["bob"])], (
        "one approval is for another hold"
    )


def test_a_hold_of_an_inferred_leave_has_no_author() -> None:
    assert not approved(membership(a=e.INFERRED), "forwarder/p0", "ann")


def test_withdrawals_after_an_approval_count_again() -> None:
    release = e.HoldApproved(LOG.said(), 1, b""), {"members": {"a": None}}
    assert losses((EVENT, FLEET), release, (EVENT, {"retained": {"k": None}})) == ["any zone 2 denied-by-change"]


def test_a_release_without_a_withdrawal_needs_no_approvals() -> None:
    assert not approved(HELD_CHANGES["policy"], "ann", rows={})

"""Withdrawals counted by address: which changes are withdrawals, of which kind, and how many exceed a budget."""

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
"""Whose envelopes are used: of no matter whom or when."""

NOTHING = {kind: Budget(kind, 0, 0) for kind in ("denied-by-leave", "denied-by-change")}
"""Budgets that let nothing go, so that everything that goes is told."""

HOUR_S = 3_660
"""After so many seconds, addresses count in the base of budgets."""

LOSS = re.compile(r"fleet/0@\d+: (.+) loses (\d+) addresses \(([\w-]+)\)")
Rows = Mapping[str, Mapping[str, Any]]


def node(four: str = "", six: str = "", *, slot: int = 0, **labels: str) -> Member:
    address4 = int(IPv4Address(four)) if four else 0
    return Member("z", 1, "u", address4, IPv6Address(six).packed if six else b"", labels, slot, False, -1, 1)


def kept(*parts: Member) -> RetainedStates:
    return RetainedStates(tuple(ReachableState(3, 0, part.address4, part.address6, part.labels) for part in parts))


def zone(**labels: str) -> FleetZone:
    return FleetZone(labels, 0, 0, 0, 0)


def policy(action: str, priority: int = 0, protocol: str = "any", *ports: int, of: Any = (), at: Any = ()) -> Policy:
    return Policy("", priority, action, protocol, ports, dict(of), dict(at), 0)


def membership(**states: int) -> e.Event:
    """A record with these nodes; the rows give the effect."""
    names = list(states)
    return e.MembershipChanged(
        LOG.stated(), 0, 0, 1, 1, ["z"], names, list(states.values()), [1], ["u"], b"", b"", [{}], [0], [], []
    )


SAID = e.PolicySet(LOG.said(), "p", 0, "allow", "any", [], {}, {})


def losses(*changes: tuple[e.Event, Rows]) -> list[str]:
    """The withdrawals that are reported, by number and kind, if no budget allows any."""
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
    "retained": {"k": kept(node("10.0.0.3", role="web"), node("10.0.0.4"))},
}
"""Five addresses that are let through, one of them of two nodes; the built-in policy lets everything through."""


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        pytest.param({"members": {"a": None}}, 2, id="a node of two addresses vanishes"),
        pytest.param({"members": {"a": node("10.0.0.1", role="web")}}, 1, id="it keeps one"),
        pytest.param({"members": {"a": node("10.0.0.7", "fd00::1", role="web")}}, 1, id="it has another instead"),
        pytest.param({"members": {"a": node("10.0.0.1", "fd00::1", slot=-1)}}, 2, id="it is not effective any more"),
        pytest.param({"members": {"a": node("10.0.0.1", "fd00::1", role="db")}}, 0, id="it has other labels"),
        pytest.param({"members": {"b": None}}, 0, id="another has its address"),
        pytest.param({"members": {"b": None, "twin": None}}, 1, id="both who had an address vanish"),
        pytest.param({"members": {"none": None, "out": None}}, 0, id="who reached nothing vanishes"),
        pytest.param({"members": {"a": None}, "retained": {"a": kept(FLEET["members"]["a"])}}, 0, id="it is kept"),
        pytest.param({"retained": {"k": kept(node("10.0.0.3"))}}, 1, id="less is kept"),
        pytest.param({"retained": {"k": None}}, 2, id="nothing is kept"),
        pytest.param({"members": {"new": node("10.0.0.8")}}, 0, id="a node joins"),
        pytest.param({"policies": {"p": policy("drop")}}, 5, id="everything is dropped"),
        pytest.param({"policies": {"p": policy("drop", of=WEB)}}, 3, id="some are dropped"),
        pytest.param({"policies": {"p": policy("drop", of={"tier": "old"})}}, 1, id="one of two nodes is dropped"),
        pytest.param({"policies": {"p": policy("drop", of={**WEB, "tier": "old"})}}, 0, id="no node has both labels"),
        pytest.param({"policies": {"p": policy("drop", 0, "udp", 53, 53, of=WEB)}}, 3, id="one port is dropped"),
        pytest.param({"policies": {"p": policy("drop", 0, "icmp", of=WEB)}}, 3, id="one protocol is dropped"),
        pytest.param({"policies": {"p": policy("drop", at={"site": "x"})}}, 0, id="no zone is such"),
        pytest.param({"policies": {"p": policy("allow")}}, 0, id="more is allowed"),
        pytest.param({"policies": {"p": policy("drop", 1), "q": policy("allow", 2)}}, 0, id="first what goes first"),
        pytest.param({"policies": {"p": policy("drop", 2), "q": policy("allow", 1)}}, 5, id="and not what is behind"),
        pytest.param({"policies": {"q": policy("allow", 1), "p": policy("drop", 1)}}, 5, id="drop before allow"),
        pytest.param({"policies": {"default": None}}, 5, id="the last policy goes"),
        pytest.param({"policies": {"never": None}}, 0, id="a policy that never was is gone"),
        pytest.param({"policies": {"default": policy("allow", 0, "tcp")}}, 5, id="only a protocol is left"),
        pytest.param({"policies": {"default": policy("allow", 0, "any", of=WEB)}}, 2, id="only some are left"),
        pytest.param({"zones": {"z": zone(site="x")}}, 0, id="a zone is new"),
        pytest.param({"freezes": {"": 1}}, 0, id="nothing that lets through changes"),
    ],
)
def test_what_is_withdrawn_is_what_a_packet_would_miss(rows: Rows, lost: int) -> None:
    assert losses((SAID, FLEET), (SAID, rows)) == [f"any zone {lost} denied-by-change"] * bool(lost)


PORTS = {"default": policy("allow", 0, "tcp", 80, 90, 443, 443)}


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        pytest.param(policy("allow", 0, "tcp", 80, 90, 443, 443), False, id="the same"),
        pytest.param(policy("allow", 0, "tcp", 79, 91, 443, 444), False, id="wider"),
        pytest.param(policy("allow", 0, "tcp"), False, id="all ports"),
        pytest.param(policy("allow"), False, id="all protocols"),
        pytest.param(policy("allow", 0, "tcp", 81, 90, 443, 443), True, id="the first one goes"),
        pytest.param(policy("allow", 0, "tcp", 80, 89, 443, 443), True, id="the last one goes"),
        pytest.param(policy("allow", 0, "tcp", 80, 84, 86, 90, 443, 443), True, id="one in the middle goes"),
        pytest.param(policy("allow", 0, "tcp", 80, 90), True, id="a range goes"),
        pytest.param(policy("allow", 0, "udp", 80, 90, 443, 443), True, id="another protocol"),
        pytest.param(policy("allow", 0, "icmp"), True, id="one without ports"),
    ],
)
def test_every_port_of_a_policy_counts(after: Policy, lost: bool) -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    changed = losses((SAID, {"policies": PORTS}), (SAID, one), (SAID, {"policies": {"default": after}}))
    assert changed == ["any zone 1 denied-by-change"] * lost


@pytest.mark.parametrize(
    ("ports", "lost"), [((0, 65_535), False), ((1, 65_535), True), ((0, 65_534), True), ((0, 90, 92, 65_535), True)]
)
def test_ports_begin_with_0_and_end_with_65535(ports: tuple[int, ...], lost: bool) -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    begun = (SAID, {"policies": {"default": policy("allow", 0, "tcp")}}), (SAID, one)
    changed = {"policies": {"default": policy("allow", 0, "tcp", *ports)}}
    assert losses(*begun, (SAID, changed)) == ["any zone 1 denied-by-change"] * lost


def test_of_several_ranges_each_begins_and_ends_something() -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    two, three = policy("allow", 0, "tcp", 0, 20, 30, 65_535), policy("allow", 0, "tcp", 0, 20, 30, 40, 50, 65_535)
    gap = (SAID, {"policies": {"default": two}}), (SAID, one), (SAID, {"policies": {"default": three}})
    assert losses(*gap) == ["any zone 1 denied-by-change"], "what lies between the second and the third"
    some, third = policy("allow", 0, "tcp", 400, 500), policy("drop", 1, "tcp", 10, 20, 30, 40, 420, 430)
    hole = (SAID, {"policies": {"default": some}}), (SAID, one), (SAID, {"policies": {"p": third}})
    assert losses(*hole) == ["any zone 1 denied-by-change"], "the third"


def test_a_protocol_of_its_own_counts_where_all_others_stay() -> None:
    one = {"members": {"a": node("10.0.0.1")}}
    for lost in ("tcp", "udp", "icmp"):
        left = {name: policy("allow", 0, name) for name in {"tcp", "udp", "icmp"} - {lost}}
        before = {"default": None, **left, lost: policy("allow", 0, lost)}
        changes = (SAID, {"policies": before}), (SAID, one), (SAID, {"policies": {lost: None}})
        assert losses(*changes) == ["any zone 1 denied-by-change"], lost


def test_every_zone_loses_by_itself() -> None:
    x_only = {"policies": {"default": None, "x": policy("allow", at={"site": "x"})}}
    zones = {"zones": {"x": zone(site="x", rack="1"), "y": zone(site="y")}}
    begun = (SAID, x_only), (SAID, zones), (SAID, {"members": {"a": node("10.0.0.1")}})
    assert losses(*begun, (SAID, {"members": {"a": None}})) == ["x 1 denied-by-change"]
    assert losses(*begun, (SAID, {"zones": {"x": zone(site="y")}})) == ["x 1 denied-by-change"]
    assert not losses(*begun, (SAID, {"zones": {"x": zone(site="x", rack="2"), "y": zone(site="x")}}))


@pytest.mark.parametrize(
    ("states", "rows", "kind"),
    [
        pytest.param({"a": e.LEFT}, {"a": None}, "denied-by-leave", id="somebody said that it left"),
        pytest.param({"a": e.INFERRED}, {"a": None}, "denied-by-change", id="a list lacked it"),
        pytest.param({"a": e.SUPERSEDED}, {"a": None}, "denied-by-change", id="it is elsewhere"),
        pytest.param({"a": e.PRESENT}, {"a": node("10.0.0.7")}, "denied-by-change", id="it has another address"),
        pytest.param(
            {"a": e.LEFT, "b": e.LEFT}, {"a": None, "b": None}, "denied-by-leave", id="both of an address left"
        ),
        pytest.param(
            {"a": e.INFERRED, "b": e.LEFT}, {"a": None, "b": None}, "denied-by-change", id="one did not say so"
        ),
        pytest.param({"b": e.INFERRED, "a": e.LEFT}, {"a": None, "b": None}, "denied-by-change", id="nor the other"),
    ],
)
def test_only_what_was_stated_alone_counts_as_stated(
    states: Mapping[str, int], rows: Mapping[str, Member | None], kind: str
) -> None:
    had = {name: node("10.0.0.1") for name in rows}
    assert losses((SAID, {"members": had}), (membership(**states), {"members": rows})) == [f"any zone 1 {kind}"]


def test_one_state_stands_for_all_nodes_of_a_record() -> None:
    said = e.MembershipChanged(
        LOG.stated(), 0, 0, 1, 1, ["z"], ["a", "b"], [e.LEFT], [1], ["u"], b"", b"", [{}], [0], [], []
    )
    rows = {name: node(f"10.0.0.{number}") for number, name in enumerate("ab", 1)}
    assert losses((SAID, {"members": rows}), (said, {"members": dict.fromkeys("ab")})) == ["any zone 2 denied-by-leave"]


def test_stated_leaves_and_others_of_one_record_have_a_budget_each() -> None:
    rows = {name: node(f"10.0.0.{number}") for number, name in enumerate("abc", 1)}
    gone = membership(a=e.LEFT, b=e.INFERRED, c=e.LEFT), {"members": dict.fromkeys("abc")}
    assert sorted(losses((SAID, {"members": rows}), gone)) == [
        "any zone 1 denied-by-change",
        "any zone 2 denied-by-leave",
    ]


def test_who_joins_an_address_and_has_it_dropped_takes_it_from_who_states_a_leave() -> None:
    """The change beside a leave was not stated by an operator."""
    old = {"policies": {"p": policy("drop", of={"tier": "old"})}}
    had = {"members": {"a": node("10.0.0.1"), "b": node("10.0.0.1")}}
    joins = {"members": {"a": None, "x": node("10.0.0.1", tier="old")}}
    assert losses((SAID, old), (SAID, had), (membership(a=e.LEFT, x=e.PRESENT), joins)) == [
        "any zone 1 denied-by-change"
    ]
    came = {"members": {"x": node("10.0.0.1", tier="old")}}
    assert losses((SAID, old), (SAID, had), (membership(x=e.PRESENT), came)) == ["any zone 1 denied-by-change"]
    relabelled = {"members": {"a": node("10.0.0.1", tier="old")}}
    assert losses((SAID, old), (SAID, had), (membership(a=e.LEFT), relabelled)) == ["any zone 1 denied-by-change"]


def test_who_is_stated_anew_as_it_was_takes_nothing() -> None:
    web = {"policies": {"default": policy("allow", of=WEB)}}
    had = {"members": {"a": node("10.0.0.1", role="web"), "b": node("10.0.0.1", role="db")}}
    gone = {"members": {"a": None, "b": had["members"]["b"]}}
    assert losses((SAID, web), (SAID, had), (membership(a=e.LEFT, b=e.PRESENT), gone)) == ["any zone 1 denied-by-leave"]


def test_what_is_kept_of_a_node_is_its_own_too() -> None:
    """The same holds for two former states with one address."""
    had = {"retained": {"a": kept(node("10.0.0.1"), node("10.0.0.1", tier="old"))}}
    assert losses((SAID, had), (membership(a=e.LEFT), {"retained": {"a": None}})) == ["any zone 1 denied-by-leave"]
    assert losses((SAID, had), (membership(a=e.INFERRED), {"retained": {"a": None}})) == ["any zone 1 denied-by-change"]


def test_what_a_policy_takes_is_nobodys_leave() -> None:
    had = {"members": {"a": node("10.0.0.1")}}
    gone: Rows = {"members": {"a": None}, "policies": {"p": policy("drop")}}
    assert losses((SAID, had), (SAID, gone)) == ["any zone 1 denied-by-change"]


def withdrawn(
    *counts: tuple[float, int], permille: int = 0, min_addresses: int = 0, of: int = 100, late: int = 0
) -> list[str]:
    """The report if so many of a hundred addresses are withdrawn at these seconds after an hour, with such a budget.

    `late` more addresses join a minute before the first withdrawal.
    """
    steps = WrittenSteps().add(
        SAID, FLEET_0, budgets={"denied-by-change": Budget("denied-by-change", permille, min_addresses), "x": None}
    )
    names = [f"n{number}" for number in range(of)]
    steps.add(SAID, FLEET_0, members={name: node(f"10.0.0.{number}") for number, name in enumerate(names, 1)})
    steps.now_s += HOUR_S - 60
    steps.add(SAID, FLEET_0, members={f"late{number}": node(f"10.1.0.{number}") for number in range(late)})
    for at_s, count in counts:
        steps.now_s = HOUR_S + at_s - 1.0
        gone, names = names[:count], names[count:]
        steps.add(SAID, FLEET_0, members=dict.fromkeys(gone))
    return list(budgets.check_budgets(steps.evidence()))


def test_a_budget_is_a_share_of_what_was_let_through_before_the_window() -> None:
    assert not withdrawn((10, 4), (20, 6), permille=100)
    assert withdrawn((10, 4), (20, 7), permille=100) == [
        "fleet/0@4: any zone loses 7 addresses (denied-by-change) after 4, of 10 at most"
    ]
    assert not withdrawn((10, 10), permille=100, of=109)
    assert withdrawn((10, 11), permille=100, of=109)


def test_addresses_that_have_just_come_do_not_make_a_budget_larger() -> None:
    assert withdrawn((10, 11), permille=100, late=200)
    assert not withdrawn((10, 10), permille=100, late=200)
    assert withdrawn((10, 51), min_addresses=90, late=200)
    assert not withdrawn((HOUR_S + 70, 30), permille=100, late=200)


def test_a_budget_is_a_count_at_least_and_half_of_all_at_most() -> None:
    assert withdrawn((10, 51), min_addresses=60) == [
        "fleet/0@3: any zone loses 51 addresses (denied-by-change) after 0, of 50 at most"
    ]
    assert not withdrawn((10, 20), permille=100, min_addresses=20)
    assert withdrawn((10, 21), permille=100, min_addresses=20)


def test_what_went_ten_minutes_ago_is_forgotten() -> None:
    assert not withdrawn((10, 10), (610, 10), (1210, 10), min_addresses=10)
    assert withdrawn((10, 10), (609.9, 1), min_addresses=10)
    assert withdrawn((10, 10), (400, 1), (611, 10), min_addresses=10) == [
        "fleet/0@4: any zone loses 1 addresses (denied-by-change) after 10, of 10 at most",
        "fleet/0@5: any zone loses 10 addresses (denied-by-change) after 1, of 10 at most",
    ]


def test_a_clock_that_jumps_back_forgets_nothing_and_one_that_jumped_ahead_nothing_late() -> None:
    assert withdrawn((610, 10), (10, 1), min_addresses=10)
    assert not withdrawn((610, 10), (10, 0), (1210, 10), min_addresses=10)


def stated_at(*changes: tuple[float, Rows]) -> list[str]:
    """The report if rows change at these seconds, with the default budgets."""
    steps = WrittenSteps()
    for at_s, rows in changes:
        steps.now_s = at_s - 1.0
        steps.add(SAID, FLEET_0, **rows)
    return list(budgets.check_budgets(steps.evidence()))


def nodes(first: int, count: int) -> Rows:
    return {"members": {f"n{number}": node(f"10.0.0.{number}") for number in range(first, first + count)}}


def gone(first: int, count: int) -> Rows:
    return {"members": {f"n{number}": None for number in range(first, first + count)}}


def test_a_list_begins_with_its_first_addresses_whatever_went_before_they_had_lasted() -> None:
    """The address withdrawn in the first minute was not the whole list of 20."""
    begun = (1, {"zones": {"z": zone()}}), (90, nodes(1, 1)), (91, gone(1, 1)), (92, nodes(2, 20))
    assert not stated_at(*begun, (200, gone(2, 9)))
    assert stated_at(*begun, (200, gone(2, 10))) == [
        f"fleet/0@4: {where} loses 10 addresses (denied-by-change) after 1, of 10 at most"
        for where in ("any zone", "z")
    ]


def test_what_goes_after_a_level_lasted_is_not_counted_into_that_level_once_more() -> None:
    begun = (1, nodes(1, 20)), (200, nodes(21, 40))
    assert not stated_at(*begun, (300, gone(21, 6)), (301, gone(27, 4)))
    assert stated_at(*begun, (300, gone(21, 6)), (301, gone(27, 5))) == [
        "fleet/0@3: any zone loses 5 addresses (denied-by-change) after 6, of 10 at most"
    ]


def test_a_level_that_a_fast_clock_made_an_hour_old_stays_forgotten() -> None:
    """The plane stores levels of the last hour only, and cannot restore them when the clock is corrected."""
    begun = (1, nodes(1, 6)), (120, nodes(7, 94))
    ahead = (2 * HOUR_S, nodes(200, 1))
    assert not stated_at(*begun, ahead, (300, gone(1, 50)))
    assert len(stated_at(*begun, ahead, (300, gone(1, 51)))) == 1
    assert len(stated_at(*begun, (300, gone(1, 4)))) == 1


def test_the_budgets_that_there_are_before_any_is_set() -> None:
    """Default budgets: 1 % and 100 addresses for unstated withdrawals, 10 % and 1,000 for stated ones."""

    def faults(state: int, count: int) -> list[str]:
        names = [f"n{number}" for number in range(2_200)]
        steps = WrittenSteps().add(
            SAID, FLEET_0, members={n: node(f"10.1.{i >> 8}.{i & 255}") for i, n in enumerate(names)}
        )
        steps.add(membership(**dict.fromkeys(names[:count], state)), FLEET_0, members=dict.fromkeys(names[:count]))
        return [fault.partition("loses ")[2] for fault in budgets.check_budgets(steps.evidence())]

    assert not faults(e.INFERRED, 100)
    assert faults(e.INFERRED, 101) == ["101 addresses (denied-by-change) after 0, of 100 at most"]
    assert not faults(e.LEFT, 1_000)
    assert faults(e.LEFT, 1_001) == ["1001 addresses (denied-by-leave) after 0, of 1000 at most"]


def approved(asks: e.Event, *persons: str, hold: int = 1, rows: Rows = FLEET) -> list[str]:
    """The report if a held change is released by these persons, the last of whom gives the final approval."""
    steps = WrittenSteps().add(None, FLEET_0, budgets=NOTHING, **rows).add(asks, FLEET_0, holds={"1": 1})
    for person in persons[:-1]:
        steps.add(e.HoldApproved(LOG.said(actor=person), hold, b""), FLEET_0, holds={"1": 1})
    steps.add(e.HoldApproved(LOG.said(actor="deaf"), 1, b"not what is held now"), FLEET_0)
    last = e.HoldApproved(LOG.said(actor=persons[-1]), 1, b"")
    steps.add(last, FLEET_0, holds={"1": None}, members={"a": None})
    steps.add(e.HoldApproved(LOG.said(actor="late"), 1, b""), FLEET_0, holds={"1": 1})
    return list(budgets.check_budgets(steps.evidence()))


ASKS: dict[str, e.Event] = {
    "policy": e.PolicySet(LOG.said(actor="eve"), "p", 0, "drop", "any", [], {}, {}),
    "deletion": e.PolicyDeleted(LOG.said(actor="eve"), "p"),
    "zone": e.ZoneUpdated(LOG.said(actor="eve"), "z", True, {}, -1, -1),
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_two_persons_let_go_what_a_third_asked_for(asks: e.Event) -> None:
    assert not approved(asks, "ann", "bob")
    told = "fleet/0@{}: hold 1 is released by {} alone"
    assert approved(asks, "bob") == [told.format(3, ["bob"])]
    assert approved(asks, "ann", "ann") == [told.format(4, ["ann"])]
    assert approved(asks, "eve", "bob") == [told.format(4, ["bob"])]
    assert approved(asks, "ann", "bob", hold=2) == [told.format(4, ["bob"])], "she meant another hold"


def test_who_says_that_nodes_are_silent_is_nobody_and_so_two_others_are_found() -> None:
    assert not approved(membership(a=e.INFERRED), "forwarder/p0", "ann")


def test_what_follows_an_approval_is_counted_again() -> None:
    let_go = e.HoldApproved(LOG.said(), 1, b""), {"members": {"a": None}}
    assert losses((SAID, FLEET), let_go, (SAID, {"retained": {"k": None}})) == ["any zone 2 denied-by-change"]


def test_an_approval_that_takes_nothing_away_needs_nobody() -> None:
    assert not approved(ASKS["policy"], "ann", rows={})

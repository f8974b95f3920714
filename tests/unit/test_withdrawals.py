"""Withdrawal budgets: every change that turns allow into deny counts, whatever caused it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from eventstore.folding.fold import Outcome
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import table
from projections.fleet.views import hold_of
from projections.fleet.withdrawals import impact
from projections.fleet.withdrawals.budgets import (
    BUCKET_MS,
    BUDGET_KINDS,
    BUDGET_WINDOW_MS,
    Budget,
    BudgetKind,
    BudgetWindow,
    merged_windows,
)
from projections.fleet.withdrawals.settled_levels import BudgetBase
from schemas.events import HoldApproved
from tests.support.fleet import Fleet, Item, actual_table, envelope, expected_table, holds

MANY = 150
"""More than the inferred budget's 100, less than the stated one's 1,000."""


def node(i: int, **changes: object) -> Item:
    labels = {"side": "left" if i % 2 else "right"}
    found = Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}", labels=labels)
    return found._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.change(*(node(i) for i in range(2 * MANY)))
    return made


def content(fleet: Fleet) -> object:
    """What zone z0 has: the table, which must be what the rows say, with its version."""
    found = table(fleet.state, "z0")
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
    return found.version, found.digest


def reachable(fleet: Fleet) -> list[str]:
    """The addresses that a rule of zone z0 speaks of."""
    return [str(address) for nets in actual_table(fleet.state, "z0").values() for net in nets for address in net]


def names(first: int, end: int) -> list[str]:
    return [f"n{i}" for i in range(first, end)]


def vanish(fleet: Fleet) -> Outcome:
    return fleet.leave(*names(0, MANY), state=2)


def drop_policy(fleet: Fleet) -> Outcome:
    return fleet.policy("no", action="drop", sources={"side": "left"})


def drop_everything(fleet: Fleet) -> Outcome:
    return fleet.policy("no", action="drop", sources={})


def drop_one_port(fleet: Fleet) -> Outcome:
    return fleet.policy("no", action="drop", protocol="tcp", ports=(22, 22))


def narrow_the_default(fleet: Fleet) -> Outcome:
    return fleet.policy("default", priority=-1_000_000, sources={"side": "left"})


def default_for_other_zones(fleet: Fleet) -> Outcome:
    return fleet.policy("default", priority=-1_000_000, zones={"tier": "gold"})


def relabel_nodes(fleet: Fleet) -> Outcome:
    fleet.policy("no", action="drop", sources={"side": "down"})
    return fleet.change(*(node(i, labels={"side": "down"}) for i in range(MANY)))


def change_addresses(fleet: Fleet) -> Outcome:
    return fleet.change(*(node(i, address=f"10.1.0.{i + 1}") for i in range(MANY)))


def relabel_the_zone(fleet: Fleet) -> Outcome:
    fleet.policy("no", action="drop", zones={"tier": "none"})
    return fleet.describe("z0", {"tier": "none"})


def take_the_addresses_of_others(fleet: Fleet) -> Outcome:
    """Newcomers with addresses that are in use and labels that a drop policy matches."""
    fleet.policy("no", action="drop", sources={"side": "evil"})
    return fleet.change(*(node(i, name=f"evil{i}", labels={"side": "evil"}) for i in range(MANY)))


WITHDRAWALS = [
    vanish,
    drop_policy,
    drop_everything,
    drop_one_port,
    narrow_the_default,
    default_for_other_zones,
    relabel_nodes,
    relabel_the_zone,
    take_the_addresses_of_others,
]


@pytest.mark.parametrize("withdraw", WITHDRAWALS)
def test_a_withdrawal_over_budget_changes_no_verdict_until_two_principals_approve(
    fleet: Fleet, withdraw: Callable[[Fleet], Outcome]
) -> None:
    before = actual_table(fleet.state, "z0")
    outcome = withdraw(fleet)
    assert outcome.code == "held"
    assert actual_table(fleet.state, "z0") == before
    assert expected_table(fleet.state, "z0") == before
    hold = fleet.state.holds.rows[str(outcome.result["hold"])]
    assert hold.addresses >= MANY
    assert hold.zones == ("z0",)

    first = fleet.approve(hold.id, "bob")
    assert (first.code, first.reason) == ("done", f"hold {hold.id} has 1 of 2 approvals")
    again = fleet.approve(hold.id, "bob")
    assert (again.code, again.reason) == ("unchanged", f"hold {hold.id} has 1 of 2 approvals, including yours")
    assert actual_table(fleet.state, "z0") == before
    assert fleet.approve(hold.id, "cid").code == "done"
    assert fleet.state.holds.rows == {}
    assert fleet.state.retained.rows == {}
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0") != before


@pytest.mark.parametrize("state", [2, 3])
def test_a_record_is_held_whole_and_one_within_budget_passes_whole(fleet: Fleet, state: int) -> None:
    assert fleet.leave(*names(0, 60), state=state).code == "done"
    outcome = fleet.leave(*names(60, 101), state=state)
    assert outcome.code == "held"
    assert fleet.state.holds.rows[str(outcome.result["hold"])].nodes == 41
    assert fleet.leave(*names(101, 141), state=state).code == "done"
    assert len(fleet.state.members.rows) == 2 * MANY - 100


def test_every_list_has_its_own_count(fleet: Fleet) -> None:
    """What only the gold zones allow is lost there and nowhere else."""
    fleet.budget("denied-by-change", 1000, 0)
    fleet.describe("z1", {"tier": "gold"})
    fleet.policy("default", priority=-9, zones={"tier": "gold"})
    fleet.budget("denied-by-change", 10, 100)
    fleet.now_ms += 2 * BUDGET_WINDOW_MS
    outcome = vanish(fleet)
    assert outcome.code == "held"
    assert fleet.state.holds.rows[str(outcome.result["hold"])].zones == ("z1",)
    assert expected_table(fleet.state, "z0") == {}


def test_stated_leaves_have_a_budget_of_their_own(fleet: Fleet) -> None:
    assert fleet.leave(*names(0, 60), state=2).code == "done"
    assert fleet.leave(*names(60, 180)).code == "done"
    fleet.budget("denied-by-leave", 0, 10)
    outcome = fleet.leave(*names(250, 252))
    assert outcome.code == "held"
    assert fleet.state.holds.rows[str(outcome.result["hold"])].kind == "denied-by-leave"
    assert fleet.state.members.rows["n250"].held


def test_one_record_with_both_kinds_holds_only_what_is_over(fleet: Fleet) -> None:
    rows = fleet.state.members.rows
    stated = [Item(n, rows[n].zone, state=1) for n in names(0, 5)]
    inferred = [Item(n, rows[n].zone, state=2) for n in names(5, 5 + MANY)]
    outcome = fleet.change(*stated, *inferred)
    assert outcome.code == "held"
    assert fleet.state.holds.rows[str(outcome.result["hold"])].nodes == MANY
    assert "n0" not in rows
    assert rows["n5"].held


def test_a_share_of_a_large_table_may_go() -> None:
    fleet = Fleet()
    for i in range(0, 12_000, 1000):
        fleet.change(*(Item(f"n{k}", "z0", f"10.0.{k // 250}.{k % 250 + 1}") for k in range(i, i + 1000)))
    fleet.settle()
    assert fleet.leave(*names(0, 121), state=2).code == "held"
    assert fleet.leave(*names(121, 181), state=2).code == "done"
    assert fleet.leave(*names(181, 241), state=2).code == "done"
    assert fleet.leave(*names(241, 242), state=2).code == "held"


def test_the_budget_comes_back_after_the_window(fleet: Fleet) -> None:
    assert fleet.leave(*names(0, 100), state=2).code == "done"
    fleet.now_ms += BUDGET_WINDOW_MS - 1
    assert fleet.leave("n100", state=2).code == "held"
    fleet.now_ms += BUCKET_MS + 1
    assert fleet.leave(*names(101, 200), state=2).code == "done"


def test_moving_to_another_list_does_not_refill_a_budget(fleet: Fleet) -> None:
    assert fleet.leave(*names(0, 90), state=2).code == "done"
    assert fleet.policy("harmless", action="allow", priority=7).code == "done"
    assert fleet.leave(*names(90, 110), state=2).code == "held"
    assert fleet.describe("z0", {"t": "1"}).code == "done"
    assert fleet.policy("only-t", zones={"t": "1"}).code == "done"
    assert fleet.leave(*names(110, 130), state=2).code == "held"


def test_an_address_that_another_node_holds_or_another_policy_allows_is_not_lost(fleet: Fleet) -> None:
    fleet.change(*(node(i, name=f"twin{i}") for i in range(MANY)))
    assert fleet.leave(*names(0, MANY), state=2).code == "done"
    fleet.policy("twice", priority=1)
    assert fleet.delete_policy("twice").code == "done"
    assert fleet.policy("twice", priority=1, sources={"side": "nobody"}).code == "done"


def test_an_address_of_several_nodes_counts_once() -> None:
    fleet = Fleet()
    for copy in "abc":
        fleet.change(*(node(i, name=f"{copy}{i}", labels={"copy": copy, "is": "shared"}) for i in range(100)))
    fleet.change(*(node(i, name=f"other{i}", address=f"10.9.0.{i + 1}") for i in range(100)))
    outcome = fleet.policy("no", action="drop", sources={"is": "shared"})
    assert outcome.code == "done"
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
    fleet.now_ms += 2 * BUDGET_WINDOW_MS
    fleet.delete_policy("no")
    fleet.settle()
    assert fleet.leave(*(f"{copy}{i}" for copy in "abc" for i in range(100)), state=2).code == "done"
    assert len(reachable(fleet)) == 100


def test_a_new_allow_or_a_wider_one_never_waits(fleet: Fleet) -> None:
    assert fleet.policy("more", priority=9, protocol="tcp", ports=(1, 9)).code == "done"
    assert fleet.policy("more", priority=9, protocol="tcp").code == "done"


def test_a_drop_that_nothing_reaches_takes_nothing_away(fleet: Fleet) -> None:
    fleet.policy("first", priority=9)
    assert fleet.policy("no", action="drop").code == "done"


def test_a_node_that_comes_back_ends_its_hold(fleet: Fleet) -> None:
    outcome = vanish(fleet)
    before = content(fleet)
    hash_of_all = fleet.state.holds.rows[str(outcome.result["hold"])].hash
    fleet.approve(outcome.result["hold"], "bob")
    fleet.change(*(node(i, created_ms=2) for i in range(MANY - 1)))
    hold = fleet.state.holds.rows[str(outcome.result["hold"])]
    assert (hold.nodes, hold.approvals) == (1, ("bob",))
    assert hold.hash != hash_of_all
    fleet.change(node(MANY - 1, created_ms=2))
    assert fleet.state.holds.rows == {}
    assert content(fleet) == before


def test_an_approval_quotes_what_was_seen(fleet: Fleet) -> None:
    outcome = vanish(fleet)
    fleet.change(node(0, created_ms=2))
    row = fleet.state.holds.rows[str(outcome.result["hold"])]
    fleet.change(node(1, created_ms=2))
    refusal = fleet.apply(HoldApproved(envelope("bob"), outcome.result["hold"], row.hash))
    assert refusal.code == "refused"
    assert refusal.reason.startswith(f"hash: {row.hash.hex()} must be the current hash of the hold")
    assert fleet.approve(999, "bob").reason == "hold: 999 is not an open hold"


def test_a_record_that_is_held_node_by_node_costs_as_much_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours share an address, and what one is denied the next is allowed: each round withholds one more."""
    fleet, count = Fleet(), 100
    for label, allowed, denied in (("E", 1, 2), ("O", 2, 1)):
        fleet.policy(f"allow-{label}", priority=30, protocol="tcp", ports=[allowed, allowed], sources={"t": label})
        fleet.policy(
            f"drop-{label}", priority=20, action="drop", protocol="tcp", ports=[denied, denied], sources={"t": label}
        )
    fleet.change(*(Item(f"even{k}", address=f"10.0.0.{k + 1}") for k in range(0, count + 1, 2)))
    fleet.change(*(Item(f"odd{k}", address6=f"fd00::{k + 1:x}") for k in range(1, count + 1, 2)))
    both = [(k + k % 2, k + 1 - k % 2) for k in range(count)]
    newcomers = [
        Item(f"n{k}", address=f"10.0.0.{even + 1}", address6=f"fd00::{odd + 1:x}", labels={"t": "EO"[k % 2]})
        for k, (even, odd) in enumerate(both)
    ]
    fleet.budget("denied-by-change", 0, 0)
    asked: list[object] = []
    after = impact._AddressImpact.after

    def counted(touch: impact._AddressImpact, waits: Collection[int]) -> int:
        asked.append(touch)
        return after(touch, waits)

    added_up: list[int] = []
    budget_remaining = FleetState.budget_remaining

    def counted_room(state: FleetState, kind: BudgetKind, number: int, now_ms: int) -> int | None:
        added_up.append(number)
        return budget_remaining(state, kind, number, now_ms)

    monkeypatch.setattr(impact._AddressImpact, "after", counted)
    monkeypatch.setattr(FleetState, "budget_remaining", counted_room)
    assert fleet.change(*newcomers).code == "held"
    assert sum(row.withheld >= 0 for row in fleet.state.members.rows.values()) == count
    assert len(asked) < 8 * count
    assert len(added_up) <= len(BUDGET_KINDS) * len(fleet.state.plan.lists), (
        "what a list allows is added up once, not in each round"
    )


def test_every_replica_shows_the_same_nodes_of_a_hold(fleet: Fleet) -> None:
    assert fleet.leave(*reversed(names(0, MANY)), state=2).code == "held"
    [shown], [shown_elsewhere] = holds(fleet.state), holds(fleet.reload())
    assert len(shown.nodes) < shown.node_count
    assert shown == shown_elsewhere


def test_the_hold_of_a_leave_is_that_of_the_leave_and_not_of_what_the_node_was_before(fleet: Fleet) -> None:
    moved = change_addresses(fleet)
    fleet.budget("denied-by-leave", 0, 10)
    left = fleet.leave(*names(0, 20))
    assert (moved.code, left.code) == ("held", "held")
    assert hold_of(fleet.state, "n0") == hold_of(fleet.reload(), "n0") == left.result["hold"] != moved.result["hold"]
    assert (hold_of(fleet.state, "n30"), hold_of(fleet.state, "n299")) == (moved.result["hold"], -1)


def test_who_asked_for_an_edit_does_not_approve_it(fleet: Fleet) -> None:
    outcome = drop_everything(fleet)
    refusal = fleet.approve(outcome.result["hold"], "ann")
    assert (refusal.code, refusal.reason) == (
        "refused",
        "principal: 'ann' requested this change, so other principals must approve it",
    )


def test_who_has_two_roles_is_still_one_person(fleet: Fleet) -> None:
    held = fleet.state.holds.rows[str(vanish(fleet).result["hold"])]
    said = [fleet.approve(held.id, actor) for actor in ("approver/bob", "operator/bob", "?bob", "approver/bob")]
    assert [outcome.code for outcome in said] == ["done", "unchanged", "unchanged", "unchanged"]
    assert all(outcome.reason.startswith(f"hold {held.id} has 1 of 2 approvals") for outcome in said)
    assert fleet.approve(held.id, "approver/cid").code == "done"


def test_who_asked_for_an_edit_does_not_approve_it_in_another_role(fleet: Fleet) -> None:
    outcome = fleet.policy("no", action="drop", actor="operator/ann")
    assert outcome.code == "held"
    assert fleet.approve(outcome.result["hold"], "approver/ann").code == "refused"


def test_an_edit_that_the_fleet_grew_into_is_asked_for_anew(fleet: Fleet) -> None:
    asked = drop_policy(fleet)
    seen = fleet.state.holds.rows[str(asked.result["hold"])]
    fleet.approve(asked.result["hold"], "bob")
    fleet.change(*(node(i, labels={"side": "left"}) for i in range(2 * MANY)))
    before = content(fleet)
    outcome = fleet.approve(asked.result["hold"], "cid")
    assert (outcome.code, outcome.result["hold"], content(fleet)) == ("held", asked.result["hold"], before)
    assert outcome.reason == (
        "policy: 'no': 300 addresses would be denied at once now, but approvers were shown fewer,"
        " or other zones; check its zones and approve it again"
    )
    row = fleet.state.holds.rows[str(asked.result["hold"])]
    assert (row.addresses, row.approvals, row.requested_by) == (300, (), "ann")
    assert fleet.apply(HoldApproved(envelope("cid"), asked.result["hold"], seen.hash)).code == "refused"
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("cid", "bob")] == ["done", "done"]
    assert "no" in fleet.state.policies.rows


def test_an_edit_that_other_zones_grew_into_is_asked_for_anew(fleet: Fleet) -> None:
    """They lose no more than was seen, and nobody saw that they would lose it."""
    fleet.describe("z1", {"site": "a"})
    asked = fleet.policy("no", action="drop", sources={"side": "left"}, zones={"site": "a"})
    assert fleet.state.holds.rows[str(asked.result["hold"])].zones == ("z1",)
    for zone in ("z2", "z3"):
        assert fleet.describe(zone, {"site": "a"}).code == "done"
    before = {zone: table(fleet.state, zone).version for zone in ("z1", "z2", "z3")}
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "held"]
    assert before == {zone: table(fleet.state, zone).version for zone in before}
    row = fleet.state.holds.rows[str(asked.result["hold"])]
    assert (row.zones, row.addresses, row.approvals) == (("z1", "z2", "z3"), MANY, ())
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "done"]
    assert not before.items() & {zone: table(fleet.state, zone).version for zone in before}.items()


def test_of_an_approved_edit_each_list_may_lose_what_was_seen_of_it_alone(fleet: Fleet) -> None:
    """Zone z1 lets the left side in, so it loses less: that z0 loses everything says nothing of it."""
    fleet.describe("z1", {"site": "a"})
    fleet.policy("yes", priority=2, sources={"side": "left"}, zones={"site": "a"})
    asked = fleet.policy("no", priority=1, action="drop", sources={})
    assert sorted(fleet.state.holds.rows[str(asked.result["hold"])].shown_counts.values()) == [MANY, 2 * MANY]
    more = [node(i, labels={"side": "right"}) for i in range(2 * MANY) if i % 2]
    assert fleet.change(*more).code == "done"
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "held"]


def test_an_edit_that_takes_nothing_away_is_made_where_the_budget_is_spent(fleet: Fleet) -> None:
    fleet.budget("denied-by-change", 0, 100)
    assert fleet.leave(*names(0, 100), state=2).code == "done"
    fleet.budget("denied-by-change", 0, 10)
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert fleet.state.holds.rows == {}


def test_policies_that_wait_count_as_those_that_stand(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projections.fleet.fold.MAX_POLICIES", 3)
    waiting = [fleet.policy(name, action="drop", sources={"side": "left"}).result["hold"] for name in ("no", "never")]
    assert fleet.policy("more").reason == "name: 'more' would be more than the 3 policies allowed"
    assert fleet.policy("no", action="drop", sources={"side": "right"}).code == "held"
    fleet.reject(waiting[1])
    assert fleet.policy("more").code == "done"


def test_what_an_edit_takes_beyond_what_was_approved_is_charged(fleet: Fleet) -> None:
    asked = drop_policy(fleet)
    fleet.change(*(node(i, labels={"side": "left"}) for i in range(120)))
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "done"]
    assert fleet.state.window("denied-by-change", fleet.state.list_number("z0")).spent(fleet.now_ms) == 60


def test_a_rejected_edit_is_gone(fleet: Fleet) -> None:
    edit = drop_everything(fleet)
    assert fleet.reject(edit.result["hold"]).code == "done"
    assert "no" not in fleet.state.policies.rows
    assert fleet.approve(edit.result["hold"], "bob").reason == f"hold: {edit.result['hold']} is not an open hold"
    assert fleet.reject(77).reason == "hold: 77 is not an open hold"


def test_a_newer_edit_takes_the_place_of_one_that_waits(fleet: Fleet) -> None:
    first = drop_everything(fleet)
    second = drop_policy(fleet)
    assert list(fleet.state.holds.rows) == [str(second.result["hold"])] != [str(first.result["hold"])]
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert fleet.state.holds.rows == {}
    third = drop_everything(fleet)
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert str(third.result["hold"]) not in fleet.state.holds.rows


def test_deleting_a_policy_that_only_waits_takes_it_back(fleet: Fleet) -> None:
    drop_everything(fleet)
    assert fleet.delete_policy("no").code == "done"
    assert fleet.state.holds.rows == {}


def test_deleting_an_allow_meets_the_budget_too(fleet: Fleet) -> None:
    fleet.policy("all", priority=1)
    fleet.budget("denied-by-change", 1000, 0)
    assert fleet.policy("default", priority=-5, sources={"side": "nobody"}).code == "done"
    fleet.budget("denied-by-change", 10, 100)
    outcome = fleet.delete_policy("all")
    assert outcome.code == "held"
    fleet.approve(outcome.result["hold"], "bob")
    fleet.approve(outcome.result["hold"], "cid")
    assert actual_table(fleet.state, "z0") == {}


def test_limits_of_a_zone_take_effect_while_its_labels_wait(fleet: Fleet) -> None:
    outcome = relabel_the_zone(fleet)
    assert outcome.code == "held"
    fleet.limit("z0", 7, -1)
    info = fleet.state.zones.rows["z0"]
    assert (info.parallel_installs, info.labels) == (7, {})
    fleet.approve(outcome.result["hold"], "bob")
    fleet.approve(outcome.result["hold"], "cid")
    assert fleet.state.zones.rows["z0"].labels == {"tier": "none"}


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (
            ("other", 1, 1),
            "kind: 'other' must be one of denied-by-leave, denied-by-change, allowed-by-change, allowed-by-join",
        ),
        (("denied-by-leave", 1001, 1), "permille: 1001 must be from 0 to 1000"),
        (("denied-by-leave", 1, -1), "min_addresses: -1 must be 0 or more"),
    ],
)
def test_a_wrong_budget_is_refused(event: tuple[str, int, int], fault: str) -> None:
    assert Fleet().budget(*event).reason == fault


def test_windows_merge_by_the_larger_count_and_forget() -> None:
    old = BudgetWindow(()).charged(5, 3).charged(BUCKET_MS - 1, 4).charged(BUCKET_MS, 1)
    assert old.buckets == ((0, 7), (BUCKET_MS, 1))
    both = merged_windows([old, BudgetWindow(((0, 2), (BUCKET_MS, 5)))], BUCKET_MS)
    assert both.buckets == ((0, 7), (BUCKET_MS, 5))
    assert both.spent(BUDGET_WINDOW_MS + BUCKET_MS) == 5
    assert both.charged(BUDGET_WINDOW_MS + BUCKET_MS, 1).buckets[0] == (BUCKET_MS, 5)
    assert Budget("denied-by-leave", 100, 5).limit(BudgetBase(30, 30)) == 5
    assert Budget("denied-by-leave", 100, 5).limit(BudgetBase(70, 70)) == 7

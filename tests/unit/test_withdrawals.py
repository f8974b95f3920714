"""Withdrawal budgets: every change that turns allow into deny counts, whatever its cause."""

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
"""More addresses than the 100 that changes may deny, and fewer than the 1,000 that stated leaves may deny."""


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
    """Version and digest of the table of zone z0, after a check of the table against the oracle."""
    found = table(fleet.state, "z0")
    assert actual_table(fleet.state, "z0") == expected_table(fleet.state, "z0")
    return found.version, found.digest


def reachable(fleet: Fleet) -> list[str]:
    """The addresses in the rules of zone z0."""
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
    """Join nodes with addresses of other nodes and with labels that a drop policy matches."""
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


def test_every_list_of_rules_has_its_own_window(fleet: Fleet) -> None:
    """Addresses that only the gold zones allow count in the window of those zones only."""
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


def test_a_record_of_both_kinds_holds_only_the_kind_over_budget(fleet: Fleet) -> None:
    rows = fleet.state.members.rows
    stated = [Item(n, rows[n].zone, state=1) for n in names(0, 5)]
    inferred = [Item(n, rows[n].zone, state=2) for n in names(5, 5 + MANY)]
    outcome = fleet.change(*stated, *inferred)
    assert outcome.code == "held"
    assert fleet.state.holds.rows[str(outcome.result["hold"])].nodes == MANY
    assert "n0" not in rows
    assert rows["n5"].held


def test_a_share_of_a_large_table_may_be_withdrawn() -> None:
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


def test_an_address_of_another_node_or_policy_is_not_withdrawn(fleet: Fleet) -> None:
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


def test_a_new_or_wider_allow_policy_is_never_held(fleet: Fleet) -> None:
    assert fleet.policy("more", priority=9, protocol="tcp", ports=(1, 9)).code == "done"
    assert fleet.policy("more", priority=9, protocol="tcp").code == "done"


def test_a_drop_policy_without_effect_is_not_held(fleet: Fleet) -> None:
    fleet.policy("first", priority=9)
    assert fleet.policy("no", action="drop").code == "done"


def test_a_node_that_returns_leaves_its_hold(fleet: Fleet) -> None:
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


def test_an_approval_must_have_the_current_hash(fleet: Fleet) -> None:
    outcome = vanish(fleet)
    fleet.change(node(0, created_ms=2))
    row = fleet.state.holds.rows[str(outcome.result["hold"])]
    fleet.change(node(1, created_ms=2))
    refusal = fleet.apply(HoldApproved(envelope("bob"), outcome.result["hold"], row.hash))
    assert refusal.code == "refused"
    assert refusal.reason.startswith(f"hash: {row.hash.hex()} must be the current hash of the hold")
    assert fleet.approve(999, "bob").reason == "hold: 999 is not an open hold"


def test_a_record_held_node_by_node_has_linear_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours share addresses. Each held change puts the next one over the budget, one node per round."""
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
    assert sum(row.delayed_by >= 0 for row in fleet.state.members.rows.values()) == count
    assert len(asked) < 8 * count
    assert len(added_up) <= len(BUDGET_KINDS) * len(fleet.state.plan.lists), (
        "the remaining budget of a list is computed once, not in each round"
    )


def test_every_replica_shows_the_same_nodes_of_a_hold(fleet: Fleet) -> None:
    assert fleet.leave(*reversed(names(0, MANY)), state=2).code == "held"
    [shown], [shown_elsewhere] = holds(fleet.state), holds(fleet.reload())
    assert len(shown.nodes) < shown.node_count
    assert shown == shown_elsewhere


def test_a_held_leave_of_a_waiting_node_belongs_to_the_hold_of_the_leave(fleet: Fleet) -> None:
    moved = change_addresses(fleet)
    fleet.budget("denied-by-leave", 0, 10)
    left = fleet.leave(*names(0, 20))
    assert (moved.code, left.code) == ("held", "held")
    assert hold_of(fleet.state, "n0") == hold_of(fleet.reload(), "n0") == left.result["hold"] != moved.result["hold"]
    assert (hold_of(fleet.state, "n30"), hold_of(fleet.state, "n299")) == (moved.result["hold"], -1)


def test_the_author_of_an_edit_cannot_approve_it(fleet: Fleet) -> None:
    outcome = drop_everything(fleet)
    refusal = fleet.approve(outcome.result["hold"], "ann")
    assert (refusal.code, refusal.reason) == (
        "refused",
        "principal: 'ann' requested this change, so other principals must approve it",
    )


def test_approvals_in_two_roles_count_as_one_person(fleet: Fleet) -> None:
    held = fleet.state.holds.rows[str(vanish(fleet).result["hold"])]
    said = [fleet.approve(held.id, actor) for actor in ("approver/bob", "operator/bob", "?bob", "approver/bob")]
    assert [outcome.code for outcome in said] == ["done", "unchanged", "unchanged", "unchanged"]
    assert all(outcome.reason.startswith(f"hold {held.id} has 1 of 2 approvals") for outcome in said)
    assert fleet.approve(held.id, "approver/cid").code == "done"


def test_the_author_of_an_edit_cannot_approve_it_in_another_role(fleet: Fleet) -> None:
    outcome = fleet.policy("no", action="drop", actor="operator/ann")
    assert outcome.code == "held"
    assert fleet.approve(outcome.result["hold"], "approver/ann").code == "refused"


def test_an_edit_whose_effect_grew_needs_new_approvals(fleet: Fleet) -> None:
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


def test_an_edit_that_affects_more_zones_needs_new_approvals(fleet: Fleet) -> None:
    """The new zones lose no more addresses than were shown, but the approvers were not shown these zones."""
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


def test_an_approved_edit_may_withdraw_only_the_count_shown_for_each_list(fleet: Fleet) -> None:
    """Zone z1 allows the left side, so it was shown with a smaller loss than z0, which loses all addresses."""
    fleet.describe("z1", {"site": "a"})
    fleet.policy("yes", priority=2, sources={"side": "left"}, zones={"site": "a"})
    asked = fleet.policy("no", priority=1, action="drop", sources={})
    assert sorted(fleet.state.holds.rows[str(asked.result["hold"])].shown_counts.values()) == [MANY, 2 * MANY]
    more = [node(i, labels={"side": "right"}) for i in range(2 * MANY) if i % 2]
    assert fleet.change(*more).code == "done"
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "held"]


def test_an_edit_without_withdrawals_passes_a_spent_budget(fleet: Fleet) -> None:
    fleet.budget("denied-by-change", 0, 100)
    assert fleet.leave(*names(0, 100), state=2).code == "done"
    fleet.budget("denied-by-change", 0, 10)
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert fleet.state.holds.rows == {}


def test_held_policies_count_towards_the_limit_of_policies(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projections.fleet.fold.MAX_POLICIES", 3)
    waiting = [fleet.policy(name, action="drop", sources={"side": "left"}).result["hold"] for name in ("no", "never")]
    assert fleet.policy("more").reason == "name: 'more' would be more than the 3 policies allowed"
    assert fleet.policy("no", action="drop", sources={"side": "right"}).code == "held"
    fleet.reject(waiting[1])
    assert fleet.policy("more").code == "done"


def test_withdrawals_beyond_the_approved_count_are_charged(fleet: Fleet) -> None:
    asked = drop_policy(fleet)
    fleet.change(*(node(i, labels={"side": "left"}) for i in range(120)))
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "done"]
    assert fleet.state.window("denied-by-change", fleet.state.list_number("z0")).spent(fleet.now_ms) == 60


def test_a_rejected_edit_is_dropped(fleet: Fleet) -> None:
    edit = drop_everything(fleet)
    assert fleet.reject(edit.result["hold"]).code == "done"
    assert "no" not in fleet.state.policies.rows
    assert fleet.approve(edit.result["hold"], "bob").reason == f"hold: {edit.result['hold']} is not an open hold"
    assert fleet.reject(77).reason == "hold: 77 is not an open hold"


def test_a_newer_edit_replaces_a_held_one(fleet: Fleet) -> None:
    first = drop_everything(fleet)
    second = drop_policy(fleet)
    assert list(fleet.state.holds.rows) == [str(second.result["hold"])] != [str(first.result["hold"])]
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert fleet.state.holds.rows == {}
    third = drop_everything(fleet)
    assert fleet.policy("no", action="drop", sources={"side": "nobody"}).code == "done"
    assert str(third.result["hold"]) not in fleet.state.holds.rows


def test_deleting_a_held_policy_ends_its_hold(fleet: Fleet) -> None:
    drop_everything(fleet)
    assert fleet.delete_policy("no").code == "done"
    assert fleet.state.holds.rows == {}


def test_deleting_an_allow_policy_counts_as_a_withdrawal(fleet: Fleet) -> None:
    fleet.policy("all", priority=1)
    fleet.budget("denied-by-change", 1000, 0)
    assert fleet.policy("default", priority=-5, sources={"side": "nobody"}).code == "done"
    fleet.budget("denied-by-change", 10, 100)
    outcome = fleet.delete_policy("all")
    assert outcome.code == "held"
    fleet.approve(outcome.result["hold"], "bob")
    fleet.approve(outcome.result["hold"], "cid")
    assert actual_table(fleet.state, "z0") == {}


def test_limits_of_a_zone_take_effect_while_its_labels_are_held(fleet: Fleet) -> None:
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
def test_an_invalid_budget_is_refused(event: tuple[str, int, int], fault: str) -> None:
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

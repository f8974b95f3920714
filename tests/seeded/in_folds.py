"""Bugs in the folds of zones and fleet: members, withdrawals and tables; and bugs in saved state."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import eventstore.state_store.saver
import projections.fleet.fold
import projections.fleet.membership.contested
import projections.fleet.membership.effects
import projections.fleet.membership.joins
import projections.fleet.policies.edits
import projections.fleet.tables.zone_table
import projections.fleet.withdrawals.holds
import projections.fleet.withdrawals.impact
import projections.forwarding.zones_to_fleet
import projections.zones.nodes.decide
from eventstore.folding.fold import DONE, Decision
from eventstore.folding.ledger import Ledger
from eventstore.folding.state_table import StateTable
from projections.fleet.state import FleetState
from projections.fleet.tables.rulesets import RuleSet
from projections.fleet.withdrawals.holds import BudgetChanged, EditHeld
from projections.fleet.withdrawals.settled_levels import BudgetBase
from projections.rules.prefixes import Cover
from projections.rules.rule import precedence
from tests.seeded.bugs import Bug, SteppedScenario, patched, replaced_by, returns

# --- holds ------------------------------------------------------------------------------------------------------------


def _refused_but_counted(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Decision:
        decision: Decision = decide(state, event, at)
        hold = state.holds.rows.get(str(event.hold))
        if decision.change is None and hold is not None:
            change = projections.fleet.withdrawals.holds.HoldUpdated(
                replace(hold, approvals=(*hold.approvals, event.envelope.actor))
            )
            return Decision(change, decision.outcome)
        return decision

    return decided


# --- members ----------------------------------------------------------------------------------------------------------


def _forward_claims_too_much(sealed: Any) -> Any:
    def seal(items: Any, partition: int, start: int, end: int) -> Any:
        return sealed(items, partition, start, end + 3)

    return seal


def _accepts_any_range(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Decision:
        mark = state.marks.get(event.cause_partition, 0)
        fitting = replace(event, from_offset=mark, to_offset=max(event.to_offset, mark + 1))
        decision: Decision = decide(state, fitting, at)
        return decision

    return decided


def _mark_one_too_low(advance: Any) -> Any:
    def advanced(state: Any, source: Any) -> None:
        advance(state, source._replace(to_offset=source.to_offset - 1))

    return advanced


def _address_leaves_with_first_node(touches: Any) -> Any:
    def touched(state: Any, moves: Any) -> Any:
        found = touches(state, moves)
        for address_impact in found.values():
            if address_impact.removed and not address_impact.added:
                address_impact.rest = 0
        return found

    return touched


# --- withdrawals ------------------------------------------------------------------------------------------------------


def _budget_one_more(room: Any) -> Any:
    def found(self: FleetState, kind: Any, number: int, now_ms: int) -> int | None:
        left: int | None = room(self, kind, number, now_ms)
        return None if left is None else left + 1

    return found


def _base_of_now(base: Any) -> Any:
    def found(self: FleetState, kind: Any, number: int, now_ms: int) -> BudgetBase:
        least = base(self, kind, number, now_ms).least
        return BudgetBase(self.allowed_by(number), least)

    return found


def _loosened_without_approval(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Decision:
        decision: Decision = decide(state, event, at)
        if isinstance(decision.change, EditHeld) and decision.change.hold.budget_after is not None:
            return Decision(BudgetChanged(decision.change.hold.budget_after, ()), DONE)
        return decision

    return decided


def _new_state_counts_at_once(arrive: Any) -> Any:
    def arrived(state: Any, move: Any, parts: Any, delayed_by: int) -> Any:
        return arrive(state, move, parts, -1)

    return arrived


def _frozen_by_name_only(is_frozen: Any) -> Any:
    return lambda self, zone: zone in self.freezes.rows


def _without_holds(rederive: Any) -> Any:
    def rederived(self: FleetState) -> None:
        rederive(self)
        self.held_names = {hold.id: {} for hold in self.holds.rows.values()}

    return rederived


def _without_marks(rederive: Any) -> Any:
    def rederived(self: FleetState) -> None:
        rederive(self)
        self.marks = {}

    return rederived


# --- tables -----------------------------------------------------------------------------------------------------------


def _cover_too_wide(add: Any) -> Any:
    def added(self: Cover, address: int, net: Any) -> None:
        add(self, address, net)
        key = address << 8 | self.width
        if key in self.keys and not address & 1:
            wider = address << 8 | self.width - 1
            self.keys.remove(key)
            net.remove(key)
            self.keys.add(wider)
            net.add(wider)

    return added


def _version_stays_on_loss(note: Any) -> Any:
    def noted(self: RuleSet, version: int, earliest_ms: int, added: Any, removed: Any, *, most: int) -> None:
        note(self, version if added else self.version, earliest_ms, added, removed, most=most)

    return noted


def _removes_first(ordered: Any) -> Any:
    def steps(changes: Any) -> Any:
        found = ordered(changes)
        return (*(s for s in found if s.remove4 or s.remove6), *(s for s in found if s.add4 or s.add6))

    return steps


def _lowest_precedence_first(_: Any) -> Any:
    def key(rule: Any) -> Any:
        return tuple(-part if isinstance(part, int) else part for part in precedence(rule)[:2])

    return key


# --- saved states -----------------------------------------------------------------------------------------------------


def _position_one_too_low(head_of: Any) -> Any:
    def head(folded: Any, digest: int) -> Any:
        found = head_of(folded, digest)
        return replace(found, position=max(0, found.position - 1))

    return head


def _position_one_too_high(take_over: Any) -> Any:
    def taken(folded: Any, head: Any) -> None:
        take_over(folded, replace(head, position=head.position + 1))

    return taken


def _only_new_rows(put: Any) -> Any:
    def kept(self: StateTable[Any], key: str, row: Any) -> None:
        is_new = key not in self.rows
        self.rows[key] = row
        if is_new:
            self._changed.add(key)

    return kept


def _does_not_save_ids(add_ids: Any) -> Any:
    async def added(folded: Any, batch: Any, yield_loop: Any) -> None:
        """Save the rows without the ids."""

    return added


def _raises_for_unknown_policies(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Any:
        state.policies.rows[event.name]
        return decide(state, event, at)

    return decided


BUGS = (
    Bug(
        "refused-but-counted",
        "the approval of a hold by its author is refused, but counts",
        "I2",
        lambda: patched((projections.fleet.fold, "decide_approval", _refused_but_counted)),
        SteppedScenario(5),
    ),
    Bug(
        "fold-raises-on-an-unknown-policy",
        "the fold looks up a policy that may not be there",
        "I20",
        lambda: patched((projections.fleet.fold, "_decide_policy_deleted", _raises_for_unknown_policies)),
        SteppedScenario(1),
    ),
    Bug(
        "forward-skips-records",
        "a forward claims to reach three records further than it does",
        "I1",
        lambda: patched((projections.forwarding.zones_to_fleet, "_record_of", _forward_claims_too_much)),
        SteppedScenario(1),
    ),
    Bug(
        "stale-range-accepted",
        "fleet accepts a forward of any range",
        "I7",
        lambda: patched((projections.fleet.fold, "decide_membership", _accepts_any_range)),
        SteppedScenario(1),
    ),
    Bug(
        "mark-off-by-one",
        "fleet's mark is the last record taken, not the next one to take",
        "I7",
        lambda: patched((projections.fleet.fold, "_advance", _mark_one_too_low)),
        SteppedScenario(1),
    ),
    Bug(
        "leave-removes-a-newer-incarnation",
        "a leave of a former incarnation removes the current one",
        "I1",
        lambda: patched((projections.zones.nodes.decide, "_is_about", returns(True))),
        SteppedScenario(56),
    ),
    Bug(
        "superseded-not-delivered",
        "a zone is not told that its node has joined another zone",
        "I16",
        lambda: patched((projections.fleet.fold, "enqueue_superseded", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "limits-not-sent-to-zones",
        "the limits of a zone are not delivered to the zone",
        "I16",
        lambda: patched((projections.fleet.fold, "enqueue_limits", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "older-incarnation-wins",
        "the last zone that forwards a node wins, even if another zone has a newer incarnation",
        "I1",
        lambda: patched((projections.fleet.membership.joins, "_is_own", returns(True))),
        SteppedScenario(1),
    ),
    Bug(
        "address-goes-with-its-first-holder",
        "an address of two nodes is removed with the first of them",
        "I8",
        lambda: patched((projections.fleet.withdrawals.impact, "_address_impacts", _address_leaves_with_first_node)),
        SteppedScenario(17),
    ),
    Bug(
        "budget-of-each-batch",
        "withdrawals are not counted, so every record has the whole budget",
        "I13",
        lambda: patched(
            (projections.fleet.fold, "charge", returns()),
            (projections.fleet.policies.edits, "charge", returns()),
        ),
        SteppedScenario(2),
    ),
    Bug(
        "budget-one-more",
        "a change that exceeds its budget by one address is not held",
        "I13",
        lambda: patched((FleetState, "budget_remaining", _budget_one_more)),
        SteppedScenario(1),
    ),
    Bug(
        "budget-base-of-now",
        "the base of a budget is the current number of allowed addresses, including nodes that have just joined",
        "I13",
        lambda: patched((FleetState, "base", _base_of_now)),
        SteppedScenario(1),
    ),
    Bug(
        "budget-loosened-alone",
        "an operator loosens a budget without approvals",
        "I13",
        lambda: patched((projections.fleet.fold, "decide_budget", _loosened_without_approval)),
        SteppedScenario(16),
    ),
    Bug(
        "old-and-new-state-count",
        "during a hold, the former and the new address of a node both count",
        "I13",
        lambda: patched((projections.fleet.membership.effects, "_new_row", _new_state_counts_at_once)),
        SteppedScenario(1),
    ),
    Bug(
        "one-approval-is-enough",
        "a hold ends with the first approval",
        "I13",
        lambda: patched((projections.fleet.withdrawals.holds, "APPROVALS", replaced_by(1))),
        SteppedScenario(1),
    ),
    Bug(
        "freeze-of-all-ignored",
        "a freeze of all zones does not freeze a zone",
        "I13",
        lambda: patched((FleetState, "is_frozen", _frozen_by_name_only)),
        SteppedScenario(1),
    ),
    Bug(
        "hold-forgotten-at-restart",
        "the nodes of a hold are not derived from saved rows",
        "I10",
        lambda: patched((FleetState, "rederive", _without_holds)),
        SteppedScenario(1),
    ),
    Bug(
        "marks-forgotten-at-restart",
        "fleet's marks are not derived from saved rows",
        "I10",
        lambda: patched((FleetState, "rederive", _without_marks)),
        SteppedScenario(1),
    ),
    Bug(
        "cover-too-wide",
        "the cover of a single added address includes its neighbour",
        "I8",
        lambda: patched((Cover, "add", _cover_too_wide)),
        SteppedScenario(1),
    ),
    Bug(
        "version-stays-on-loss",
        "a table keeps its version after a change that only removes",
        "I8",
        lambda: patched((RuleSet, "record_change", _version_stays_on_loss)),
        SteppedScenario(1),
    ),
    Bug(
        "leaves-before-joins",
        "a delta removes before it adds",
        "I21",
        lambda: patched((projections.fleet.tables.zone_table, "_ordered", _removes_first)),
        SteppedScenario(1),
    ),
    Bug(
        "lowest-precedence-first",
        "a delta adds the rules of the lowest precedence first",
        "I21",
        lambda: patched((projections.fleet.tables.zone_table, "precedence", _lowest_precedence_first)),
        SteppedScenario(1),
    ),
    Bug(
        "snapshot-before-its-offset",
        "a saved state has a position one below that of its rows",
        "I10",
        lambda: patched((eventstore.state_store.saver, "head_of", _position_one_too_low)),
        SteppedScenario(1),
    ),
    Bug(
        "restart-skips-a-record",
        "after a restart, the first record after the saved state is skipped",
        "I11",
        lambda: patched((eventstore.state_store.saver, "_take_over", _position_one_too_high)),
        SteppedScenario(4),
    ),
    Bug(
        "changed-rows-not-saved",
        "new rows are saved, changed rows are not",
        "I11",
        lambda: patched((StateTable, "put", _only_new_rows)),
        SteppedScenario(1, steps=120),
    ),
    Bug(
        "ids-saved-apart",
        "command ids are not saved with the rows and the position",
        "I11",
        lambda: patched((eventstore.state_store.saver, "_add_ids", _does_not_save_ids)),
        SteppedScenario(1),
    ),
    Bug(
        "runs-forget-ids",
        "the ids of commands that are folded as a run are not stored",
        "I10",
        lambda: patched((Ledger, "remember_all", returns())),
        SteppedScenario(3),
    ),
    Bug(
        "agent-limits-unchecked",
        "a node agent may state any label and any address",
        "I24",
        lambda: patched((projections.zones.nodes.decide, "is_node_agent", returns(False))),
        SteppedScenario(1, agents=True),
    ),
    Bug(
        "address-taken-from-another-node",
        "fleet gives a node the address that its agent states, although another node has it",
        "I24",
        lambda: patched((projections.fleet.membership.contested.RecordAddresses, "_is_of_another", returns(False))),
        SteppedScenario(1, agents=True),
    ),
    Bug(
        "contested-for-ever",
        "a node does not get the address that it waits for when the other node has left",
        "I24",
        lambda: patched((projections.fleet.membership.effects, "grant", returns({}))),
        SteppedScenario(1, agents=True),
    ),
)

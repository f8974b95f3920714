"""Bugs in decisions: members, withdrawals, tables; and in their saved state."""

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
from tests.seeded.bugs import Bug, Stepped, does, instead, patched

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


def _skips_records(sealed: Any) -> Any:
    def seal(items: Any, partition: int, start: int, end: int) -> Any:
        return sealed(items, partition, start, end + 3)

    return seal


def _any_range(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Decision:
        mark = state.marks.get(event.cause_partition, 0)
        fitting = replace(event, from_offset=mark, to_offset=max(event.to_offset, mark + 1))
        decision: Decision = decide(state, fitting, at)
        return decision

    return decided


def _one_less(advance: Any) -> Any:
    def advanced(state: Any, source: Any) -> None:
        advance(state, source._replace(to_offset=source.to_offset - 1))

    return advanced


def _first_holder_takes_it_along(touches: Any) -> Any:
    def touched(state: Any, moves: Any) -> Any:
        found = touches(state, moves)
        for address_impact in found.values():
            if address_impact.removed and not address_impact.added:
                address_impact.rest = 0
        return found

    return touched


# --- withdrawals ------------------------------------------------------------------------------------------------------


def _one_more(room: Any) -> Any:
    def found(self: FleetState, kind: Any, number: int, now_ms: int) -> int | None:
        left: int | None = room(self, kind, number, now_ms)
        return None if left is None else left + 1

    return found


def _of_what_there_is_now(base: Any) -> Any:
    def found(self: FleetState, kind: Any, number: int, now_ms: int) -> BudgetBase:
        least = base(self, kind, number, now_ms).least
        return BudgetBase(self.allowed_by(number), least)

    return found


def _at_once(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Decision:
        decision: Decision = decide(state, event, at)
        if isinstance(decision.change, EditHeld) and decision.change.hold.budget_after is not None:
            return Decision(BudgetChanged(decision.change.hold.budget_after, ()), DONE)
        return decision

    return decided


def _beside_what_is_kept(arrive: Any) -> Any:
    def arrived(state: Any, move: Any, parts: Any, withheld: int) -> Any:
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


def _too_wide(add: Any) -> Any:
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


def _lowest_first(_: Any) -> Any:
    def key(rule: Any) -> Any:
        return tuple(-part if isinstance(part, int) else part for part in precedence(rule)[:2])

    return key


# --- saved states -----------------------------------------------------------------------------------------------------


def _before_its_offset(head_of: Any) -> Any:
    def head(folded: Any, digest: int) -> Any:
        found = head_of(folded, digest)
        return replace(found, position=max(0, found.position - 1))

    return head


def _behind_its_offset(take_over: Any) -> Any:
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


def _skips_some(add_ids: Any) -> Any:
    async def added(folded: Any, batch: Any, yield_loop: Any) -> None:
        """Save the rows without the ids."""

    return added


def _raises_for_strangers(decide: Any) -> Any:
    def decided(state: Any, event: Any, at: Any) -> Any:
        state.policies.rows[event.name]
        return decide(state, event, at)

    return decided


BUGS = (
    Bug(
        "refused-but-counted",
        "an approval by who asked for the change is refused, and counts all the same",
        "I2",
        lambda: patched((projections.fleet.fold, "decide_approval", _refused_but_counted)),
        Stepped(5),
    ),
    Bug(
        "fold-raises-on-a-stranger",
        "the fold looks up a policy that may not be there",
        "I20",
        lambda: patched((projections.fleet.fold, "_decide_policy_deleted", _raises_for_strangers)),
        Stepped(1),
    ),
    Bug(
        "forward-skips-records",
        "a forward says that it reaches three records further than it does",
        "I1",
        lambda: patched((projections.forwarding.zones_to_fleet, "_sealed", _skips_records)),
        Stepped(1),
    ),
    Bug(
        "stale-range-accepted",
        "fleet takes whatever range a forward has",
        "I7",
        lambda: patched((projections.fleet.fold, "decide_membership", _any_range)),
        Stepped(1),
    ),
    Bug(
        "mark-off-by-one",
        "fleet's mark is the last record that it has taken, not the next one",
        "I7",
        lambda: patched((projections.fleet.fold, "_advance", _one_less)),
        Stepped(1),
    ),
    Bug(
        "ghost-of-an-old-uid",
        "a leave of an incarnation that is gone takes away the one that has come since",
        "I1",
        lambda: patched((projections.zones.nodes.decide, "_is_about", does(True))),
        Stepped(56),
    ),
    Bug(
        "superseded-not-told",
        "the zone that lost a node to another one is never told",
        "I16",
        lambda: patched((projections.fleet.fold, "enqueue_superseded", does())),
        Stepped(1),
    ),
    Bug(
        "limits-not-sent-to-zones",
        "the limits of a zone stay in fleet",
        "I16",
        lambda: patched((projections.fleet.fold, "enqueue_limits", does())),
        Stepped(1),
    ),
    Bug(
        "older-incarnation-wins",
        "what a zone says of a node counts, even if another zone has a newer one",
        "I1",
        lambda: patched((projections.fleet.membership.joins, "_is_own", does(True))),
        Stepped(1),
    ),
    Bug(
        "address-goes-with-its-first-holder",
        "an address that two nodes have is let go with one of them",
        "I8",
        lambda: patched((projections.fleet.withdrawals.impact, "_address_impacts", _first_holder_takes_it_along)),
        Stepped(17),
    ),
    Bug(
        "budget-of-each-batch",
        "what was withdrawn is not remembered, so every record has the whole budget",
        "I13",
        lambda: patched(
            (projections.fleet.fold, "charge", does()),
            (projections.fleet.policies.edits, "charge", does()),
        ),
        Stepped(2),
    ),
    Bug(
        "budget-one-more",
        "a change that is over its budget by one passes",
        "I13",
        lambda: patched((FleetState, "budget_remaining", _one_more)),
        Stepped(1),
    ),
    Bug(
        "share-of-what-has-just-come",
        "a budget is a share of what a list allows now, made-up nodes and all",
        "I13",
        lambda: patched((FleetState, "base", _of_what_there_is_now)),
        Stepped(1),
    ),
    Bug(
        "budget-loosened-alone",
        "who may set a budget loosens it without anybody else",
        "I13",
        lambda: patched((projections.fleet.fold, "decide_budget", _at_once)),
        Stepped(16),
    ),
    Bug(
        "held-by-half",
        "a hold keeps the former address of a node, and the new one counts at once",
        "I13",
        lambda: patched((projections.fleet.membership.effects, "_new_row", _beside_what_is_kept)),
        Stepped(1),
    ),
    Bug(
        "one-approval-is-enough",
        "a hold ends with the first approval",
        "I13",
        lambda: patched((projections.fleet.withdrawals.holds, "APPROVALS", instead(1))),
        Stepped(1),
    ),
    Bug(
        "freeze-of-all-ignored",
        "a zone is held only by a freeze of its own",
        "I13",
        lambda: patched((FleetState, "is_frozen", _frozen_by_name_only)),
        Stepped(1),
    ),
    Bug(
        "hold-forgotten-at-restart",
        "which nodes a hold keeps is not derived from the rows that were saved",
        "I10",
        lambda: patched((FleetState, "rederive", _without_holds)),
        Stepped(1),
    ),
    Bug(
        "marks-forgotten-at-restart",
        "fleet's marks are not derived from the rows that were saved",
        "I10",
        lambda: patched((FleetState, "rederive", _without_marks)),
        Stepped(1),
    ),
    Bug(
        "cover-too-wide",
        "an address that is added alone is covered with its neighbour",
        "I8",
        lambda: patched((Cover, "add", _too_wide)),
        Stepped(1),
    ),
    Bug(
        "version-stays-on-loss",
        "a table from which something is only removed keeps its version",
        "I8",
        lambda: patched((RuleSet, "record_change", _version_stays_on_loss)),
        Stepped(1),
    ),
    Bug(
        "leaves-before-joins",
        "a delta removes before it adds",
        "I21",
        lambda: patched((projections.fleet.tables.zone_table, "_ordered", _removes_first)),
        Stepped(1),
    ),
    Bug(
        "lowest-precedence-first",
        "a delta adds the rules of the lowest precedence first",
        "I21",
        lambda: patched((projections.fleet.tables.zone_table, "precedence", _lowest_first)),
        Stepped(1),
    ),
    Bug(
        "snapshot-before-its-offset",
        "a saved state says a position that is one before what it has",
        "I10",
        lambda: patched((eventstore.state_store.saver, "head_of", _before_its_offset)),
        Stepped(1),
    ),
    Bug(
        "restart-skips-a-record",
        "after a restart the first record behind what was saved is skipped",
        "I11",
        lambda: patched((eventstore.state_store.saver, "_take_over", _behind_its_offset)),
        Stepped(11),
    ),
    Bug(
        "changed-rows-not-saved",
        "a row is saved when it is new, and not when it changes",
        "I11",
        lambda: patched((StateTable, "put", _only_new_rows)),
        Stepped(1, steps=120),
    ),
    Bug(
        "ids-saved-apart",
        "rows and position are saved together, command ids some other time",
        "I11",
        lambda: patched((eventstore.state_store.saver, "_add_ids", _skips_some)),
        Stepped(1),
    ),
    Bug(
        "runs-forget-ids",
        "commands that are folded together are not remembered",
        "I10",
        lambda: patched((Ledger, "remember_all", does())),
        Stepped(3),
    ),
    Bug(
        "agent-is-believed",
        "a node agent may state any label and any address",
        "I24",
        lambda: patched((projections.zones.nodes.decide, "is_node_agent", does(False))),
        Stepped(1, agents=True),
    ),
    Bug(
        "address-of-another",
        "fleet gives a node agent the address that another node has",
        "I24",
        lambda: patched((projections.fleet.membership.contested.StatedAddresses, "_is_of_another", does(False))),
        Stepped(1, agents=True),
    ),
    Bug(
        "contested-for-ever",
        "an address that a node waits for is not given to it when the other node is gone",
        "I24",
        lambda: patched((projections.fleet.membership.effects, "grant", does({}))),
        Stepped(1, agents=True),
    ),
)

"""Releases within the budgets: a change in stages denies and allows as many addresses as the same change at once.

The whole impact counts when the first DPUs get the change, and again when all get it, because nodes may have joined or
left between. An impact that approvers were shown does not count. A change over a budget is held; when it is resumed, it
is counted anew.
"""

from __future__ import annotations

from msgspec.structs import replace

from eventstore.folding.fold import DONE, Decision, Outcome, RecordMetadata
from projections.fleet.policies.edits import Edit, edit_impact, propose
from projections.fleet.staging.decide import ChargedRelease, decide_observation
from projections.fleet.staging.rows import StagedChange
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.holds import excess_of, over_budget, unseen_by_approvers
from projections.staging.decide import StageReleased, StagingUpdated
from schemas.events import StageObserved


def decide_release(state: FleetState, event: StageObserved, at: RecordMetadata) -> Decision:
    """Decide on an observation; hold a change whose release would exceed a budget."""
    decision, before = decide_observation(state, event, at), state.staged
    change = decision.change
    if not isinstance(change, StageReleased) or not (change.row.stage == 1 or change.row.is_everywhere):
        return decision
    assert before is not None, "a stage of a present change is released"
    row: StagedChange = change.row
    proposal = propose(state, Edit(policy=row.policy, policy_after=row.after), at.offset + 1)
    found = edit_impact(state, proposal)
    if row.approved is not None:
        found = unseen_by_approvers(state, row.approved, proposal, found)
    over = over_budget(state, found, at)
    if over:
        held = replace(
            row, stage=before.stage, released=before.released, since_ms=before.since_ms, held=excess_of(state, over, at)
        )
        return Decision(StagingUpdated(held), Outcome("done", held.held))
    ids = proposal.plan.ids
    charged = tuple((kind, ids[becomes], count) for (kind, (_, becomes)), count in sorted(found.items()) if count)
    return Decision(ChargedRelease(row, charged), DONE)

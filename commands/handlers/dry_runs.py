"""Dry runs: the result that a command would have, and its effects on the rule tables, without an append.

The folds decide as for the next record, but their states do not change. Long computations, the covers of large sets,
run piece by piece on a copy of the state at one position, so the answer is consistent and other callers are not
delayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network
from itertools import islice

from msgspec import structs

from commands import results
from commands.messages import to_port_ranges
from commands.requests import fleet, nodes
from commands.requests.validation import EnvelopeFactory, NewEvent
from commands.rpc.middleware import Call
from eventstore.folding.fold import Outcome
from eventstore.log import FLEET_0, Partition
from eventstore.replicas.replica import Answer, Replica
from projections.fold_states import FoldStates
from projections.rules.prefixes import SIZE4, SIZE6, networks
from projections.views.dry_runs import DryRun, RuleChange, ZoneEffect, leave_of, of_change
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope

ZONES_SHOWN = 1_000
PREFIXES_SHOWN = 1_000


class DryRunHandler:
    """Handles commands with `dry_run`, for which no event is appended."""

    def __init__(self, replica: Replica, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms

    async def set_policy(self, request: pb.SetPolicyRequest, call: Call) -> pb.CommandResult:
        """Dry-run a change of a policy. In the end its stages have the effect of the change at once."""
        at_once = pb.SetPolicyRequest(policy=request.policy)
        return await self._in_fleet(fleet.set_policy(at_once, self._envelope_factory(call)))

    async def delete_policy(self, request: pb.DeletePolicyRequest, call: Call) -> pb.CommandResult:
        at_once = pb.DeletePolicyRequest(name=request.name)
        return await self._in_fleet(fleet.delete_policy(at_once, self._envelope_factory(call)))

    async def leave(self, request: pb.LeaveNodesRequest, call: Call) -> pb.CommandResult:
        """Dry-run a leave in its zone and, for the rule tables, in fleet."""
        new_event = nodes.leave(request, self._envelope_factory(call))
        partition = self._replica.partition_for(new_event.topic, new_event.key)
        change, outcome = self._replica.dry_run(partition, new_event.event)
        gone = change.tombstones if change is not None else {}
        if not gone:
            return await self._answer(outcome, DryRun.nothing(), partition)
        mark = self._states.fleet.marks.get(partition.number, 0)
        told = leave_of(gone, partition.number, mark, new_event.event.envelope)
        change, of_fleet = self._replica.dry_run(FLEET_0, told)
        dry_run = of_change(self._states.fleet, change, self._replica.position(FLEET_0) + 1)
        said = Outcome(of_fleet.code, of_fleet.reason, items=outcome.items) if dry_run.budget else outcome
        return await self._answer(said, dry_run, partition)

    async def _in_fleet(self, new_event: NewEvent) -> pb.CommandResult:
        change, outcome = self._replica.dry_run(FLEET_0, new_event.event)
        dry_run = of_change(self._states.fleet, change, self._replica.position(FLEET_0) + 1)
        return await self._answer(outcome, dry_run, FLEET_0)

    def _envelope_factory(self, call: Call) -> EnvelopeFactory:
        return lambda subject: Envelope("", subject, call.principal, self._now_ms())

    async def _answer(self, outcome: Outcome, dry_run: DryRun, partition: Partition) -> pb.CommandResult:
        """The result has no hold number, because a dry run creates no hold. Its position is the position of the folds
        at which it was computed."""
        last = Answer(structs.replace(outcome, result={}), partition, self._replica.position(partition) - 1)
        answer = results.to_result("", last, self._replica.log_id)
        effects = []
        for effect in dry_run.table_effects.effects():
            if effect is not None:
                effects.append(_effect(effect))
            await asyncio.sleep(0)
        answer.dry_run.CopyFrom(pb.DryRun(budget=dry_run.budget, addresses=dry_run.addresses, effects=effects))
        return answer


def _effect(effect: ZoneEffect) -> pb.TableEffect:
    return pb.TableEffect(
        zones=effect.zones[:ZONES_SHOWN],
        zone_count=len(effect.zones),
        rules=map(_rule, effect.rules),
        addresses_allowed=effect.verdict_counts.allowed,
        addresses_denied=effect.verdict_counts.denied,
    )


def _rule(found: RuleChange) -> pb.RuleEffect:
    rule, change = found.rule, found.change
    return pb.RuleEffect(
        policy=found.policy,
        action=rule.action,
        priority=rule.priority,
        protocol=rule.protocol,
        ports=to_port_ranges(rule.ports),
        prefixes_added=len(change.add4) // SIZE4 + len(change.add6) // SIZE6,
        prefixes_removed=len(change.remove4) // SIZE4 + len(change.remove6) // SIZE6,
        added=_texts(change.add4, change.add6),
        removed=_texts(change.remove4, change.remove6),
    )


def _texts(packed4: bytes, packed6: bytes) -> Iterable[str]:
    found: Iterator[IPv4Network | IPv6Network] = networks(
        packed4[: PREFIXES_SHOWN * SIZE4], packed6[: PREFIXES_SHOWN * SIZE6]
    )
    return map(str, islice(found, PREFIXES_SHOWN))

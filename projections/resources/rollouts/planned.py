"""The plan of a DPUSet's rollout, as it follows from the objects, and what the fold lacks of it.

The order of DPUs is that of their failure domain, then of their name. A wave is a share of the DPUSet in this order,
and the DPUs of a wave in one failure domain are a group, so that one domain is updated at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from projections.resources.derivation import Derivation
from projections.resources.install_identity import install_identity
from projections.resources.kinds import DPU
from projections.resources.rollouts.advance import last_change
from projections.resources.rollouts.pins import stated_text, template_text
from projections.resources.rollouts.plans import says_the_same
from projections.resources.rollouts.rows import DIGEST_MODULUS, Rollout, member_digest
from projections.resources.rollouts.strategy import Strategy, strategy_of
from projections.resources.state import ObjectId, ResourcesState, object_id
from projections.resources.wanted import Wanted
from schemas.events import MAX_ITEMS, Envelope, RolloutPlanned

SLICE_DPUS = 500
"""Number of DPUs of one slice: some milliseconds."""


class PlannedDpu(NamedTuple):
    """A DPU of a plan."""

    name: str
    identity: str
    wave: int
    group: int


class SetPlan(NamedTuple):
    """The plan of a DPUSet. `dpus` are in the order of their release. `domains` are the failure domains of devices, by
    key, if the strategy has any. Without a template the DPUSet is gone."""

    at: ObjectId
    deployment: str = ""
    template: str = ""
    stated: str = ""
    strategy: Strategy = Strategy()
    dpus: tuple[PlannedDpu, ...] = ()
    digest: int = 0
    domains: Mapping[str, str] = {}


def members(derivation: Derivation, key: str) -> Iterator[tuple[str, Wanted]]:
    """The DPUs of a DPUSet, each after the key of its device."""
    for device in derivation.selection.members(key):
        if derivation.selection.winner(device) != key:
            continue
        for dpu in derivation.dpus.of_owner(device):
            if derivation.dpus.holders[dpu] == device:
                yield device, derivation.dpus.winners[dpu]


def set_plan(state: ResourcesState, derivation: Derivation, key: str) -> SetPlan | None:
    """The plan of a DPUSet; None if it cannot be derived now, so that its DPUs stay as they are."""
    planning = Planning(state, derivation, key)
    while not planning.advance():
        pass
    return planning.plan


class Planning:
    """Derives the plan of a DPUSet in slices: it may have ten thousand DPUs. Call `advance` until it returns True, then
    read `plan`. The derivation is read in the first slice only, so it may change afterwards.

    A DPU whose image or flavor is missing keeps the identity of its last plan.
    """

    def __init__(self, state: ResourcesState, derivation: Derivation, key: str) -> None:
        self.plan: SetPlan | None = None
        self._state = state
        self._derivation = derivation
        self._work = self._planned(key)

    def advance(self) -> bool:
        """Derive the next slice. Returns whether all of them are derived."""
        for _ in self._work:
            return False
        return True

    def _planned(self, key: str) -> Iterator[None]:
        state, derivation = self._state, self._derivation
        found = derivation.sets.get(key)
        if found is None:
            self.plan = None if key in derivation.set_faults else SetPlan(object_id(key))
            return
        strategy = strategy_of(found.spec, found.annotations)
        if found.is_held or isinstance(strategy, str):
            return
        deployment = derivation.children.holders.get(key)
        placed = [
            (device, domain_of(derivation, device, strategy), wanted) for device, wanted in members(derivation, key)
        ]
        identities: dict[str, str] = {}
        domains: dict[str, str] = {}
        for number, (_, domain, wanted) in enumerate(placed, 1):
            known = state.dpu_rollouts.rows.get(wanted.at.key)
            identity = install_identity(state, wanted) or (known.wanted if known is not None else "")
            if identity:
                identities[wanted.at.name] = identity
                domains[wanted.at.name] = domain
            if number % SLICE_DPUS == 0:
                yield
        dpus = tuple(_ordered(identities, domains, strategy))
        yield
        self.plan = SetPlan(
            at=found.at,
            deployment=object_id(deployment).name if deployment else "",
            template=template_text(state, found.at, found.spec),
            stated=stated_text(found.stated),
            strategy=strategy,
            dpus=dpus,
            digest=sum(member_digest(*each) for each in dpus) % DIGEST_MODULUS,
            domains={device: domain for device, domain, _ in placed if domain},
        )


def next_record(state: ResourcesState, plan: SetPlan, position: int, envelope: Envelope) -> RolloutPlanned | None:
    """The next record with what the fold lacks of a plan that was derived at a position; None if it lacks nothing."""
    key = plan.at.key
    changes = [*islice(_changes(state, plan), MAX_ITEMS)]
    event = _record(plan, position, changes, envelope)
    known = state.rollouts.rows.get(key)
    if changes:
        return event
    if not plan.template:
        return None if known is None or _is_leaving(state, key, known) else event
    if known is None:
        return event
    if says_the_same(known, event) and known.position > last_change(state, key, known):
        return None
    return event


def _is_leaving(state: ResourcesState, key: str, known: Rollout) -> bool:
    """Whether the fold ends a rollout without DPUs by itself, with the removal of the object that wants it."""
    row = state.objects.rows.get(known.deployment or key)
    return row is None or row.deleted_ms > 0


def _changes(state: ResourcesState, plan: SetPlan) -> Iterator[PlannedDpu]:
    """The DPUs of a plan whose rows differ, then those that the DPUSet has no more."""
    key, at = plan.at.key, plan.at
    names = set()
    for each in plan.dpus:
        names.add(each.name)
        row = state.dpu_rollouts.rows.get(ObjectId(at.source, DPU, at.namespace, each.name).key)
        if row is None or (row.dpu_set, row.wanted, row.wave, row.group) != (key, *each[1:]):
            yield each
    for dpu in state.rollout_index.of(key).members:
        name = object_id(dpu).name
        if name not in names:
            yield PlannedDpu(name, "", 0, 0)


def _ordered(identities: Mapping[str, str], domains: Mapping[str, str], strategy: Strategy) -> Iterator[PlannedDpu]:
    groups = {domain: number for number, domain in enumerate(sorted(set(domains.values())))}
    ends, wave = strategy.wave_ends(len(identities)), 0
    for place, name in enumerate(sorted(identities, key=lambda name: (domains[name], name))):
        while place >= ends[wave]:
            wave += 1
        yield PlannedDpu(name, identities[name], wave, groups[domains[name]])


def domain_of(derivation: Derivation, device: str, strategy: Strategy) -> str:
    """The failure domain of a device; empty if the strategy has none, or the host is in none."""
    labels = derivation.selection.hosts.devices[device].host_labels
    return labels.get(strategy.failure_domain, "") if strategy.failure_domain else ""


def _record(plan: SetPlan, position: int, dpus: Sequence[PlannedDpu], envelope: Envelope) -> RolloutPlanned:
    strategy = plan.strategy
    return RolloutPlanned(
        envelope,
        plan.at.source,
        plan.at.namespace,
        plan.at.name,
        deployment=plan.deployment,
        position=position,
        template=plan.template,
        stated=plan.stated,
        strategy=strategy.type,
        max_unavailable=strategy.max_unavailable,
        waves=[*strategy.waves],
        bake_ms=strategy.bake_ms,
        failure_budget=strategy.failure_budget,
        is_paused=strategy.is_paused,
        digest=plan.digest,
        dpus=[each.name for each in dpus],
        identities=[each.identity for each in dpus],
        wave_numbers=[each.wave for each in dpus],
        groups=[each.group for each in dpus],
    )

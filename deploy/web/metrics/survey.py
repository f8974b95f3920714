"""Counts over all zones and DPUs for the metrics, computed in slices before the scrape that shows them.

A scrape must respond at once and must not block the loop. A walk over a thousand zones takes too long for both. The
walk therefore runs in the background every few seconds, and a scrape shows the result of the last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from drivers.relays.relay import Relay
from drivers.relays.served_zone import ServedZone
from drivers.relays.sessions import Session
from eventstore.log import RESOURCES, ZONES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.kinds import DPU_CLUSTER
from projections.resources.rollouts.rows import Rollout
from projections.resources.state import ResourcesState

EVERY_S = 5.0
SLICE_S = 0.003


@dataclass(slots=True)
class SurveyResult:
    """The result of one walk. `missing_ms` maps each served zone to the append time of the oldest change that one of
    its connected DPUs lacks, or to 0 without such a change; `frozen` names the frozen served zones.
    `certificate_ends_ms` is the earliest day on which a certificate of a device ends, 0 if none is known.
    """

    nodes: int = 0
    stuck: int = 0
    certificate_ends_ms: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    rollouts: Counter[str] = field(default_factory=Counter)
    clusters: Counter[bool] = field(default_factory=Counter)
    missing_ms: dict[str, int] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)
    connected: int = 0
    current: int = 0
    differing: int = 0
    links: int = 0
    backlog: int = 0
    backlog_max: int = 0


class Survey:
    """Walks while `run` runs; `found` is the result of the last walk."""

    def __init__(self, replica: Replica, relay: Relay | None) -> None:
        self.found = SurveyResult()
        self._replica = replica
        self._states = FoldStates(replica)
        self._relay = relay

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            await self.walk()
            await asyncio.sleep(EVERY_S)

    async def walk(self) -> None:
        """Walk over all zones once, in slices."""
        found, clock = SurveyResult(), asyncio.get_running_loop().time
        until_s = clock() + SLICE_S
        for _ in self._steps(found):
            if clock() >= until_s:
                await asyncio.sleep(0)
                until_s = clock() + SLICE_S
        self.found = found

    def _steps(self, found: SurveyResult) -> Iterator[None]:
        """Count into `found`, and yield after each zone and each session, which may change before the next step."""
        if ZONES in self._replica.supports():
            for partition in self._replica.partitions(ZONES):
                state = self._states.zones_at(partition)
                found.nodes += sum(state.node_counts.values())
                ends_ms = min(state.dpu_index.certificate_ends, default=0)
                found.certificate_ends_ms = min(filter(None, (ends_ms, found.certificate_ends_ms)), default=0)
                for zone in list(state.dpu_index.zones.values()):
                    found.phases.update(zone.phases)
                    found.stuck += len(zone.stuck)
                    yield
        if RESOURCES in self._replica.supports():
            for partition in self._replica.partitions(RESOURCES):
                _count_objects(self._states.resources_at(partition), found)
                yield
        for served in list(self._relay.zones.values()) if self._relay is not None else ():
            yield from self._count_zone(served, found)

    def _count_zone(self, zone: ServedZone[Session], found: SurveyResult) -> Iterator[None]:
        target, oldest = zone.target, zone.target.version
        for session in list(zone.sessions):
            backlog = session.link.backlog
            found.links += 1
            found.backlog += backlog
            found.backlog_max = max(found.backlog_max, backlog)
            for state, dpus in session.states():
                in_hardware = state.in_hardware if state.epoch == target.epoch else 0
                is_current = in_hardware >= zone.target_of(state.stage).version
                found.connected += dpus
                found.current += dpus if is_current else 0
                found.differing += dpus if state.repair else 0
                oldest = min(oldest, in_hardware) if not state.stage else oldest
            yield
        found.missing_ms[zone.name] = zone.lacking_since_ms(oldest) if oldest < target.version else 0
        if zone.frozen:
            found.frozen.append(zone.name)


ROLLOUT_STATES = ("rolling", "held", "paused")


def _count_objects(state: ResourcesState, found: SurveyResult) -> None:
    """Count the rollouts and DPU clusters of a resources partition, of which there are few."""
    for row in state.rollouts.rows.values():
        if row.revisions and not row.revisions[-1].result:
            found.rollouts[_rollout_state(row)] += 1
    for collection, keys in state.by_kind.items():
        if collection.partition("/")[2] == DPU_CLUSTER:
            for key in keys:
                seen = state.seen.get(key)
                found.clusters[seen is not None and seen.is_ready] += 1


def _rollout_state(row: Rollout) -> str:
    if row.held:
        return "held"
    return "paused" if row.paused_by or row.is_paused else "rolling"

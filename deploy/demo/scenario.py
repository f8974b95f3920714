"""The scenario of the demo: its commands in order, and its measurements."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from commands.inventory.plan import InventoryPlan
from deploy.composition.roles import folds_of
from deploy.demo import fleet
from deploy.demo.load import DemoClient, run_all
from deploy.demo.progress import Display, ProgressStep
from deploy.demo.stall_timeout import StallTimeout
from deploy.demo.summary import Latency, Summary
from deploy.operations.audit.verification import (
    DeviceComparison,
    RefoldedLog,
    ReplicaDigest,
    compare_devices,
    refold_log,
)
from deploy.process.plane import Plane
from drivers.relays.relay import Relay
from eventstore.log import CLIQUES, Partition
from eventstore.replicas.status import PartitionStatus
from projections.fleet.tables.zone_table import table
from projections.installs.rows import Level
from projections.zones.dpus.phases import READY
from projections.zones.rows import Dpu
from schemas.api import dpuplane_pb2 as pb

POLL_S = 0.05
LOOK_SHARE = 4
"""Minimum pause after a poll, as a multiple of the duration of the poll: a poll of 200,000 DPUs blocks the event loop
that serves them."""
COMMANDS_PER_BURST = 5_000
"""Approximate maximum number of join commands. A larger fleet joins with more nodes per command, still in one burst."""

CHURN_SHARE = 20
"""One in this many nodes and indices is removed and added again; for DPUs see `_replace_dpus`."""

IMAGE = "bf-bundle-3.1.0"


@dataclass(frozen=True, slots=True)
class DemoSizes:
    """The sizes of a demo."""

    dpus_per_zone: int
    provisioned_per_zone: int


class Scenario:
    """One run of the demo against a plane with a relay and simulated DPUs in its process."""

    def __init__(self, plane: Plane, api: DemoClient, nodes: InventoryPlan, sizes: DemoSizes, display: Display) -> None:
        assert plane.relay is not None, "the demo's plane has every role"
        self._plane = plane
        self._relay: Relay = plane.relay
        self._api = api
        self._fleet = nodes
        self._sizes = sizes
        self._display = display
        self._dpus = sizes.dpus_per_zone * len(nodes.zones)

    async def run(self) -> Summary:
        """Run all steps in order. Raises DemoFailed."""
        await self._connect()
        joins_per_second = await self._join()
        latency = self._relay.latency[Level.APPLIED]
        measured = Latency(latency.quantile(0.5), latency.quantile(0.99), float(latency.max_ms))
        await self._claim()
        await self._provision()
        await self._churn()
        await self._converge()
        return await self._check(measured, joins_per_second)

    async def _connect(self) -> None:
        what = "connecting simulated DPUs"
        with self._display.step(what, self._dpus) as step:
            await self._until(what, lambda: sum(map(len, self._relay.devices().values())), self._dpus, step)

    async def _join(self) -> float:
        """Join the whole fleet in one burst, and wait until every DPU is up to date. Returns nodes per second, from the
        first command to the last response.
        """
        count = self._fleet.node_count
        per_command = max(1, count // COMMANDS_PER_BURST)
        began = time.perf_counter()
        with self._display.step("nodes joining", count) as step:
            await self._ask("JoinNodes", fleet.joins(self._fleet, per_command), step, lambda j: len(j.columns.names))
        seconds = time.perf_counter() - began
        await self._converge()
        return count / seconds

    async def _claim(self) -> None:
        wanted = list(fleet.claims(self._fleet))
        with self._display.step("clique indices claimed", sum(len(each.claims) for each in wanted)) as step:
            await run_all(lambda each: self._api.command("SetCliqueCapacity", each), fleet.capacities(self._fleet))
            await self._ask("ClaimIndices", wanted, step, lambda each: len(each.claims))

    async def _provision(self) -> None:
        wanted = [
            pb.RequestLifecycleRequest(zone=zone, dpu=dpu, verb=pb.RequestLifecycleRequest.VERB_PROVISION, image=IMAGE)
            for zone in self._fleet.zones
            for dpu in self._names(zone)[: self._sizes.provisioned_per_zone]
        ]
        what = "DPUs provisioned, phase by phase"
        with self._display.step(what, len(wanted)) as step:
            await run_all(lambda each: self._api.command("RequestLifecycle", each), wanted)
            await self._until(what, lambda: self._in_phase(READY), len(wanted), step)

    async def _churn(self) -> None:
        leaving = [(batch, 0, max(1, len(batch.names) // CHURN_SHARE)) for batch in self._fleet.batches]
        leaves = [pb.LeaveNodesRequest(zone=b.zone, names=b.names[start:stop]) for b, start, stop in leaving]
        moving = list(fleet.claims(self._fleet, CHURN_SHARE))
        releases = [
            pb.ReleaseIndicesRequest(
                domain=each.domain,
                clique=each.clique,
                releases=[pb.ReleaseSpec(node=claim.node) for claim in each.claims],
            )
            for each in moving
        ]
        total = 2 * sum(len(each) for each in (*(leave.names for leave in leaves), *(each.claims for each in moving)))
        with self._display.step("nodes and indices removed, added again", total) as step:
            await self._ask("LeaveNodes", leaves, step, lambda leave: len(leave.names))
            await self._ask("ReleaseIndices", releases, step, lambda each: len(each.releases))
            again = [fleet.join(*each) for each in leaving]
            await self._ask("JoinNodes", again, step, lambda join: len(join.columns.names))
            await self._ask("ClaimIndices", moving, step, lambda each: len(each.claims))
        await self._replace_dpus()

    async def _replace_dpus(self) -> None:
        """Delete the last DPU of some zones, and register it again."""
        replaced = [(zone, self._names(zone)[-1]) for zone in self._fleet.zones[:: min(CHURN_SHARE, 4)]]
        registered = {dpu: self._dpu_rows(zone)[dpu] for zone, dpu in replaced}
        what = "DPUs removed, registered again"
        with self._display.step(what, 2 * len(replaced)) as step:
            delete = pb.RequestLifecycleRequest.VERB_DELETE
            gone = [pb.RequestLifecycleRequest(zone=zone, dpu=dpu, verb=delete) for zone, dpu in replaced]
            await run_all(lambda each: self._api.command("RequestLifecycle", each), gone)
            await self._until(
                what, lambda: sum(dpu not in self._dpu_rows(zone) for zone, dpu in replaced), len(replaced), step
            )
            again = [
                pb.RegisterDpuRequest(zone=z, dpu=d, node=row.node, serial=row.serial, bmc_address=row.bmc_address)
                for (z, d), row in ((each, registered[each[1]]) for each in replaced)
            ]
            await self._ask("RegisterDpu", again, step)

    async def _converge(self) -> None:
        """Wait until every DPU holds the current table of the folds."""
        what = "DPUs up to date"
        with self._display.step(what, self._dpus) as step:
            await self._until(what, self._up_to_date, self._dpus, step)

    async def _check(self, latency: Latency, joins_per_second: float) -> Summary:
        """Fold the log again while the plane runs, and compare the result with the replica and the DPUs."""
        replica, log = self._plane.replica, self._plane.log
        what = "folding the log afresh"
        with self._display.step(what, len(self._deciding())) as step:
            ends = {each.partition: each.position for each in self._deciding()}
            await self._until(what, lambda: self._saved(ends), len(ends), step)
            now = self._deciding()
            replica_digests = [
                ReplicaDigest(replica.name, each.partition, each.saved_position, each.digest) for each in now
            ]
            fresh = await refold_log(log, folds_of(log.partition_count), replica_digests)
        compared = compare_devices(fresh, replica.lineage, self._relay.devices())
        return self._summary(fresh, compared, latency, joins_per_second)

    def _summary(
        self, fresh: RefoldedLog, compared: DeviceComparison, latency: Latency, joins_per_second: float
    ) -> Summary:
        replayed = fresh.replayed
        rules = [sum(found.prefixes.size() for found in table(fresh.fleet, zone).sets) for zone in fresh.zones]
        return Summary(
            nodes=len(fresh.fleet.members.rows),
            zones=len(fresh.zones),
            dpus=sum(map(len, fresh.dpus.values())),
            cliques=sum(len(folded.state.cliques) for p, folded in replayed.partitions.items() if p.topic == CLIQUES),
            rules_per_zone=max(rules, default=0),
            join_to_applied_ms=latency,
            joins_per_second=joins_per_second,
            log_records=replayed.records,
            log_bytes=replayed.bytes,
            replay_seconds=replayed.seconds,
            replay_records_per_second=replayed.records / replayed.seconds if replayed.seconds else 0.0,
            converged=not compared.differences and not compared.absent,
            digests_match=not fresh.differences and fresh.replica_digests > 0,
        )

    # --- observation of the plane -------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, requests: Iterable[Any], step: ProgressStep, weight: Callable[[Any], int] = lambda _: 1
    ) -> None:
        async def ask(request: Any) -> None:
            await self._api.command(method, request)
            step.advance(weight(request))

        await run_all(ask, requests)

    async def _until(self, what: str, done: Callable[[], int], total: int, step: ProgressStep) -> None:
        """Wait until `done` returns `total`. Raises DemoFailed after a time without progress."""
        stall_timeout, began = StallTimeout(), time.perf_counter()
        while (so_far := done()) < total:
            step.set(so_far)
            stall_timeout.check(what, so_far, total, self._moves())
            await asyncio.sleep(max(POLL_S, LOOK_SHARE * (time.perf_counter() - began)))
            began = time.perf_counter()

    def _moves(self) -> tuple[int, ...]:
        """Counts that show progress within a step: folded records; tables received, applied and in hardware."""
        replica = self._plane.replica
        folded = (replica.position(part) for topic in replica.topics.deciding for part in replica.partitions(topic))
        return sum(folded), *(latency.count for latency in self._relay.latency.values())

    def _up_to_date(self) -> int:
        state, epoch, held = self._plane.states.fleet, self._plane.replica.generation, self._relay.devices()
        count = 0
        for zone in self._fleet.zones:
            now = table(state, zone)
            count += sum(found == (epoch, now.version, now.digest) for found in held.get(zone, {}).values())
        return count

    def _deciding(self) -> list[PartitionStatus]:
        found = self._plane.replica.partitions_status()
        return [each for each in found if each.partition.topic in self._plane.log.topics.deciding and not each.halted]

    def _saved(self, ends: Mapping[Partition, int]) -> int:
        """The number of partitions whose state is saved up to these ends. Only saved states have digests to compare."""
        return sum(each.saved_position >= ends[each.partition] for each in self._deciding())

    def _dpu_rows(self, zone: str) -> Mapping[str, Dpu]:
        return self._plane.states.zone(zone).dpus.rows

    def _names(self, zone: str) -> list[str]:
        return sorted(name for name, dpu in self._dpu_rows(zone).items() if dpu.zone == zone)

    def _in_phase(self, phase: str) -> int:
        return sum(dpu.phase == phase for state in self._plane.states.all_zones() for dpu in state.dpus.rows.values())

"""Queries of staged changes."""

from __future__ import annotations

import asyncio
from collections import Counter

from commands.queries.fold_reader import FoldReader
from commands.requests.validation import require
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import FLEET, INSTALLS, RESOURCES, ZONES
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.fleet.staging.rows import StagedChange
from projections.resources.kinds import DPU
from projections.resources.network_documents.needs import NetworkSides
from projections.resources.network_documents.staged import source_documents
from projections.resources.network_stages.rows import StagedNetworks
from projections.staging.course import stop_reason
from projections.views.network_staging import NetworkStageProgress
from projections.views.stage_progress import StageProgress
from projections.views.staging import PolicyStageProgress
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import values_by_short_name
from schemas.api.times import to_duration, to_timestamp

_PHASES: dict[str, pb.StagedChange.Phase] = values_by_short_name(pb.StagedChange.Phase.DESCRIPTOR)
_ZONES_AT_ONCE = 16
"""Zones that are counted before the loop yields."""
_DPUS_AT_ONCE = 50
"""DPUs that are counted before the loop yields."""


class StagingQueries:
    """Answers the queries about staged changes."""

    _reader: FoldReader

    async def get_staged_change(self, request: pb.GetStagedChangeRequest, call: Call) -> pb.StagedChange:
        if request.source:
            return await self._of_networks(request, call)
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET, INSTALLS), call)
        fleet = self._reader.fleet
        staged = fleet.staged
        if staged is None:
            raise NotFound(Fault("name: no change of a policy was staged", Reason.POLICY_NOT_STAGED))
        progress = PolicyStageProgress(fleet, staged, epoch=self._reader.generation, now_ms=staged.since_ms)
        for number in () if staged.result else self._reader.partition_numbers:
            state = self._reader.zones(number)
            for count, zone in enumerate(sorted(state.dpu_index.zones)):
                progress.add_zone(zone, state, self._reader.installs(zone))
                if count % _ZONES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        message = _message(staged, progress, fleet.named_dpus)
        message.policy, message.requested_by = staged.policy, staged.requested_by
        message.position = self._reader.token(ZONES, FLEET, INSTALLS)
        return message

    async def _of_networks(self, request: pb.GetStagedChangeRequest, call: Call) -> pb.StagedChange:
        require(check_zone("source", request.source))
        await self._reader.wait_for_position(request.min_position, (RESOURCES, ZONES, FLEET, INSTALLS), call)
        reader, source = self._reader, request.source
        number = reader.partition_number(source)
        world = (await reader.derive_resources([number]))[number]
        row = world.state.staged_networks.rows.get(source)
        if row is None:
            reason = f"source: no change of the networks of {quoted(source)} was staged"
            raise NotFound(Fault(reason, Reason.NETWORKS_NOT_STAGED, source=source))
        documents = {source: source_documents(world.state, world.derivation, source)}
        sides = NetworkSides(world.state, world.derivation, documents, reader.zone)
        progress = NetworkStageProgress(
            reader.fleet, sides, source, row, reader.installs, epoch=reader.generation, now_ms=row.since_ms
        )
        dpus = [] if row.result else [*world.derivation.dpus.of_kind(source, DPU)]
        for count, key in enumerate(dpus, 1):
            progress.add_dpu(key)
            if count % _DPUS_AT_ONCE == 0:
                await asyncio.sleep(0)
                await reader.derive_resources([number])
        message = _message(row, progress, world.state.named_network_dpus(source))
        message.source = source
        message.position = reader.token(RESOURCES, ZONES, FLEET, INSTALLS)
        return message


def _message(staged: StagedChange | StagedNetworks, progress: StageProgress, named: Counter[int]) -> pb.StagedChange:
    return pb.StagedChange(
        version=staged.version,
        phase=_PHASES[staged.phase],
        message=_said(staged),
        stages=staged.plan.stages,
        stage=staged.stage,
        released=staged.released,
        named=[named[stage] for stage in range(1, len(staged.plan.stages))],
        dpus=progress.total,
        installed=progress.installed,
        waiting=progress.waiting,
        failed=staged.failed,
        begin_time=to_timestamp(staged.began_ms),
        stage_time=to_timestamp(staged.since_ms),
        failure_budget=staged.plan.failure_budget,
        end_time=to_timestamp(staged.ended_ms),
        bake_time=to_duration(staged.plan.bake_ms),
    )


def _said(staged: StagedChange | StagedNetworks) -> str:
    if staged.undone_by:
        return f"rolled back by {staged.undone_by}"
    return stop_reason(staged)

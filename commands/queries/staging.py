"""Queries of staged changes of policies."""

from __future__ import annotations

import asyncio

from commands.queries.fold_reader import FoldReader
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import FLEET, INSTALLS, ZONES
from eventstore.reasons import Fault, Reason
from projections.fleet.staging.rows import StagedChange
from projections.views.staging import StageProgress
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import values_by_short_name
from schemas.api.times import to_duration, to_timestamp

_PHASES: dict[str, pb.StagedChange.Phase] = values_by_short_name(pb.StagedChange.Phase.DESCRIPTOR)
_ZONES_AT_ONCE = 16
"""Zones that are counted before the loop yields."""


class StagingQueries:
    """Answers the queries about staged changes."""

    _reader: FoldReader

    async def get_staged_change(self, request: pb.GetStagedChangeRequest, call: Call) -> pb.StagedChange:
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET, INSTALLS), call)
        fleet = self._reader.fleet
        staged = fleet.staged
        if staged is None:
            raise NotFound(Fault("name: no change of a policy was staged", Reason.POLICY_NOT_STAGED))
        progress = StageProgress(fleet, staged, epoch=self._reader.generation, now_ms=staged.since_ms)
        for number in () if staged.result else self._reader.partition_numbers:
            state = self._reader.zones(number)
            for count, zone in enumerate(sorted(state.dpu_index.zones)):
                progress.add_zone(zone, state, self._reader.installs(zone))
                if count % _ZONES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        message = _message(staged, progress)
        message.named.extend(fleet.named_dpus[stage] for stage in range(1, len(staged.plan.stages)))
        message.position = self._reader.token(ZONES, FLEET, INSTALLS)
        return message


def _message(staged: StagedChange, progress: StageProgress) -> pb.StagedChange:
    return pb.StagedChange(
        policy=staged.policy,
        version=staged.version,
        phase=_PHASES[staged.phase],
        message=_said(staged),
        stages=staged.plan.stages,
        stage=staged.stage,
        released=staged.released,
        dpus=progress.total,
        installed=progress.installed,
        waiting=progress.waiting,
        failed=staged.failed,
        begin_time=to_timestamp(staged.began_ms),
        stage_time=to_timestamp(staged.since_ms),
        failure_budget=staged.plan.failure_budget,
        requested_by=staged.requested_by,
        end_time=to_timestamp(staged.ended_ms),
        bake_time=to_duration(staged.plan.bake_ms),
    )


def _said(staged: StagedChange) -> str:
    if staged.undone_by:
        return f"rolled back by {staged.undone_by}"
    return staged.held or (f"paused by {staged.paused_by}" if staged.paused_by else "")

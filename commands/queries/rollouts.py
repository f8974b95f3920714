"""Queries of rollouts."""

from __future__ import annotations

from commands.queries.fold_reader import FoldReader
from commands.requests.validation import require, require_one_of
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import RESOURCES
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone
from projections.resources.kinds import short_name
from projections.resources.rollouts.pins import without_content
from projections.resources.rollouts.progress import Progress, fault_of_annotations, progress
from projections.resources.rollouts.requests import KINDS, rollouts_of
from projections.resources.rollouts.status import Status
from projections.resources.state import LOCAL, ObjectId, object_id
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import values_by_short_name
from schemas.api.times import to_timestamp

_STATES: dict[str, pb.SetRollout.State] = values_by_short_name(pb.SetRollout.State.DESCRIPTOR)


class RolloutQueries:
    """Answers the queries about rollouts."""

    _reader: FoldReader

    async def get_rollout(self, request: pb.GetRolloutRequest, call: Call) -> pb.Rollout:
        at = ObjectId(request.source or LOCAL, request.name.kind, request.name.namespace, request.name.name)
        require(check_zone("source", at.source))
        require_one_of("kind", at.kind, KINDS)
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        number = self._reader.partition_number(at.source)
        state = self._reader.resources(number)
        found = [progress(state, key) for key in rollouts_of(state, at.key)]
        if not found:
            cause = fault_of_annotations(state, at.key) or "it does not exist, or its DPUs are not derived yet"
            reason = f"name: {short_name(at.key)} has no rollout: {cause}"
            raise NotFound(Fault(reason, Reason.RESOURCE_NOT_FOUND))
        return pb.Rollout(
            sets=[_message(each) for each in found if each is not None],
            position=self._reader.token(RESOURCES, numbers=[number]),
        )


def _message(found: Progress) -> pb.SetRollout:
    at, row = object_id(found.key), found.row
    message = pb.SetRollout(
        namespace=at.namespace,
        name=at.name,
        deployment=object_id(row.deployment).name if row.deployment else "",
        state=_STATES[found.state],
        message=found.message,
        wave=min(row.wave, len(row.waves) - 1) + 1,
        waves=row.waves,
        dpus=found.total,
        updated=found.of(Status.DONE),
        updating=found.of(Status.UPDATING),
        failed=found.of(Status.FAILED),
        outdated=found.dpus.outdated,
        unavailable=found.dpus.unavailable,
        max_unavailable=found.max_unavailable,
        baked_time=to_timestamp(row.baked_ms),
        pinned=bool(row.pin),
    )
    for each in row.revisions:
        message.revisions.add(
            revision=each.number,
            template=without_content(each.template),
            begin_time=to_timestamp(each.began_ms),
            end_time=to_timestamp(each.ended_ms),
            result=each.result,
            actor=each.actor,
        )
    return message

"""Queries of the objects of custom resources."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable

import msgspec

from commands.queries.fold_reader import FoldReader
from commands.requests.resources import known_kind
from commands.requests.validation import require
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import RESOURCES
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.label_selectors import matches, parse_selector
from projections.pages import page
from projections.resources import views
from projections.resources.conditions.causes import Cause, blocked_by, conditions_of
from projections.resources.conditions.world import World
from projections.resources.references import references
from projections.resources.state import LOCAL, ObjectId, Resource, ResourcesState, object_id
from projections.resources.status_fields import status_fields
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp

_BYTES_PER_PAGE = 1_000_000
_REFERRERS_MAX = 100
_OBJECTS_PER_SLICE = 10
"""Number of objects of a page whose conditions are computed at once: those of a DPUSet take a few milliseconds."""


class ResourceQueries:
    """Answers the queries about objects."""

    _reader: FoldReader

    async def get_resource(self, request: pb.GetResourceRequest, call: Call) -> pb.Resource:
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        at = ObjectId(request.source or LOCAL, request.kind, request.namespace, request.name)
        number = self._reader.partition_number(at.source)
        world = (await self._reader.derive_resources([number]))[number]
        found = views.view(at.key, world)
        if found is None:
            where = f" in namespace {quoted(at.namespace)}" if at.namespace else ""
            reason = f"name: {quoted(at.name)} of kind {quoted(at.kind)} does not exist{where}"
            raise NotFound(Fault(reason, Reason.RESOURCE_NOT_FOUND))
        message = shown(at, found, world)
        message.references.extend(_references(world, at, found.row))
        message.referrers.extend(_referrers(world.state, at))
        message.causes.extend(_cause(cause) for cause in blocked_by(at.key, world))
        message.children.extend(map(_group, views.children(at.key, world)))
        message.position = self._reader.token(RESOURCES, numbers=[number])
        return message

    async def list_resources(self, request: pb.ListResourcesRequest, call: Call) -> pb.ListResourcesResponse:
        selector = parse_selector("label_selector", request.label_selector)
        if request.source:
            require(check_zone("source", request.source))
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        reader = self._reader
        numbers = [reader.partition_number(request.source)] if request.source else list(reader.partition_numbers)
        worlds = await reader.derive_resources(numbers)
        position = reader.token(RESOURCES, numbers=numbers)

        def keys(number: int) -> Iterable[str]:
            found = views.keys(worlds[number].state, worlds[number].derivation, request.source, request.kind)
            return (key for key in found if is_in(key)) if request.namespace else found

        def is_in(key: str) -> bool:
            return key.split("/", 3)[2] == request.namespace

        def is_selected(number: int, key: str) -> bool:
            return matches(selector, views.labels(key, worlds[number]))

        found = page(numbers, keys, request.page_size, request.page_token, is_selected if selector else None)
        answer = pb.ListResourcesResponse(next_page_token=found.next_token, position=position)
        size = 0
        for listed, (number, key) in enumerate(found.keys, 1):
            view = views.view(key, worlds[number])
            if view is None:
                continue  # it has gone since the page began
            size += len(view.row.spec) + sum(map(len, view.row.annotations.values()))
            if size > _BYTES_PER_PAGE and answer.resources:
                answer.next_page_token = found.token_after(listed - 1)
                break
            answer.resources.append(shown(object_id(key), view, worlds[number]))
            if listed % _OBJECTS_PER_SLICE == 0:
                await asyncio.sleep(0)
                worlds = await reader.derive_resources(numbers)
        return answer


def shown(at: ObjectId, found: views.ObjectView, world: World) -> pb.Resource:
    """An object with its owner and its status."""
    message = message_of(at, found.row)
    message.derived = found.is_derived
    conditions = conditions_of(at.key, world)
    message.phase = views.phase(at.key, found.row, conditions, world)
    for each in conditions:
        message.conditions.add(type=each.type, status=each.status, reason=each.reason, message=each.message)
    fields = status_fields(at.key, world)
    message.status = msgspec.json.encode(fields).decode() if fields else ""
    seen = world.state.observed.rows.get(at.key)
    if seen is not None:
        time = to_timestamp(seen.changed_ms)
        observation = pb.ResourceObservation(fields=seen.observation, observer=seen.observer, time=time)
        message.observation.CopyFrom(observation)
    owner = views.view(found.owner, world) if found.owner else None
    if owner is not None:
        of = message_of(object_id(found.owner), owner.row)
        message.owner.MergeFrom(
            pb.ResourceOwner(kind=of.kind, api_version=of.api_version, namespace=of.namespace, name=of.name, uid=of.uid)
        )
    return message


def message_of(at: ObjectId, row: Resource) -> pb.Resource:
    """An object as a message, without its references."""
    kind = known_kind(at.kind)
    return pb.Resource(
        kind=at.kind,
        api_version=kind.api_version if kind is not None else "",
        namespace=at.namespace,
        name=at.name,
        labels=row.labels,
        annotations=row.annotations,
        spec=row.spec,
        source=at.source,
        uid=row.uid,
        generation=row.generation,
        create_time=to_timestamp(row.created_ms),
        update_time=to_timestamp(row.changed_ms),
        delete_time=to_timestamp(row.deleted_ms),
        actor=row.actor,
        revision=row.changed_offset,
    )


def _cause(cause: Cause) -> pb.ResourceCause:
    at = object_id(cause.key.partition("#")[0])
    name = pb.ResourceName(kind=at.kind, namespace=at.namespace, name=at.name)
    return pb.ResourceCause(depth=cause.depth, name=name, message=cause.message, root=cause.is_root)


def _group(group: views.ChildGroup) -> pb.ResourceChildren:
    return pb.ResourceChildren(
        kind=group.kind, status=group.status, reason=group.reason, count=group.size, names=group.names
    )


def _references(world: World, at: ObjectId, row: Resource) -> Iterable[pb.ResourceReference]:
    for each in references(at.kind, msgspec.json.decode(row.spec)):
        target = ObjectId(at.source, each.kind, each.namespace or at.namespace, each.name)
        is_missing = not world.exists(target.key)
        yield pb.ResourceReference(path=f"spec.{each.path}", kind=each.kind, name=each.name, missing=is_missing)


def _referrers(state: ResourcesState, at: ObjectId) -> Iterable[pb.ResourceReference]:
    for key in heapq.nsmallest(_REFERRERS_MAX, state.users(at.key)):
        other = object_id(key)
        yield pb.ResourceReference(kind=other.kind, name=other.name)

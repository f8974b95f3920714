"""Queries of the objects of custom resources."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from commands.queries.fold_reader import FoldReader
from commands.requests.resources import LOCAL, known_kind
from commands.requests.validation import require
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import RESOURCES
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.label_selectors import matches, parse_selector
from projections.pages import page
from projections.resources.references import references
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp

_BYTES_PER_PAGE = 1_000_000
_REFERRERS_MAX = 100


class ResourceQueries:
    """Answers the queries about objects."""

    _reader: FoldReader

    async def get_resource(self, request: pb.GetResourceRequest, call: Call) -> pb.Resource:
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        at = ObjectId(request.source or LOCAL, request.kind, request.namespace, request.name)
        number = self._reader.partition_number(at.source)
        state = self._reader.resources(number)
        row = state.objects.rows.get(at.key)
        if row is None:
            where = f" in namespace {quoted(at.namespace)}" if at.namespace else ""
            reason = f"name: {quoted(at.name)} of kind {quoted(at.kind)} does not exist{where}"
            raise NotFound(Fault(reason, Reason.RESOURCE_NOT_FOUND))
        message = message_of(at, row)
        message.references.extend(_references(state, at, row))
        message.referrers.extend(_referrers(state, at))
        message.position = self._reader.token(RESOURCES, numbers=[number])
        return message

    async def list_resources(self, request: pb.ListResourcesRequest, call: Call) -> pb.ListResourcesResponse:
        selector = parse_selector("label_selector", request.label_selector)
        if request.source:
            require(check_zone("source", request.source))
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        reader = self._reader
        numbers = [reader.partition_number(request.source)] if request.source else list(reader.partition_numbers)

        def keys(number: int) -> Iterable[str]:
            return _listed(reader.resources(number), request)

        def row_of(number: int, key: str) -> Resource:
            return reader.resources(number).objects.rows[key]

        def is_selected(number: int, key: str) -> bool:
            return matches(selector, row_of(number, key).labels)

        def size_of(number: int, key: str) -> int:
            row = row_of(number, key)
            return len(row.spec) + sum(map(len, row.annotations.values()))

        found = page(numbers, keys, request.page_size, request.page_token, is_selected if selector else None).within(
            _BYTES_PER_PAGE, size_of
        )
        return pb.ListResourcesResponse(
            resources=[message_of(object_id(key), row_of(number, key)) for number, key in found.keys],
            next_page_token=found.next_token,
            position=reader.token(RESOURCES, numbers=numbers),
        )


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
    )


def _listed(state: ResourcesState, request: pb.ListResourcesRequest) -> Iterable[str]:
    """The keys of the objects of a list, apart from its selector."""
    for collection, keys in state.by_kind.items():
        source, _, kind = collection.partition("/")
        if request.source not in ("", source) or request.kind not in ("", kind):
            continue
        if request.namespace:
            prefix = f"{collection}/{request.namespace}/"
            yield from (key for key in keys if key.startswith(prefix))
        else:
            yield from keys


def _references(state: ResourcesState, at: ObjectId, row: Resource) -> Iterable[pb.ResourceReference]:
    for path, kind, name in references(at.kind, msgspec.json.decode(row.spec)):
        is_missing = at._replace(kind=kind, name=name).key not in state.objects.rows
        yield pb.ResourceReference(path=f"spec.{path}", kind=kind, name=name, missing=is_missing)


def _referrers(state: ResourcesState, at: ObjectId) -> Iterable[pb.ResourceReference]:
    for key in sorted(state.referrers.get(at.key, ()))[:_REFERRERS_MAX]:
        other = object_id(key)
        yield pb.ResourceReference(kind=other.kind, name=other.name)

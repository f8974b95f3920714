"""Objects as users of Kubernetes know them: as a manifest, as a row of a table, and in detail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

from deploy.cli.resources.kinds import object_name
from deploy.cli.shared.output import Column, Table
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms
from schemas.resources.dpf import DPF_KINDS
from schemas.resources.kinds import Column as KindColumn
from schemas.resources.kinds import Kind

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[\?\(@\.([A-Za-z0-9_-]+)==['\"]([^'\"]*)['\"]\)\]|\[(\d+)\]")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_TWICE = 2
"""An age is given in a unit once it has two of them: 90 minutes are 90m, and 3 hours are 3h, as kubectl prints."""


def manifest_of(resource: pb.Resource) -> dict[str, Any]:
    """An object as a manifest, with the metadata that the plane has given it, and its status."""
    document = _document(
        resource,
        uid=resource.uid,
        generation=resource.generation,
        creationTimestamp=_time(to_ms(resource.create_time)),
        deletionTimestamp=_time(to_ms(resource.delete_time)),
        ownerReferences=[_owner(resource.owner)] if resource.HasField("owner") else [],
    )
    conditions = [
        {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
        for each in resource.conditions
    ]
    known = _observed_status(resource) | (json.loads(resource.status) if resource.status else {})
    status = known | {key: value for key, value in (("phase", resource.phase), ("conditions", conditions)) if value}
    return document | ({"status": status} if status else {})


def stated_of(resource: pb.Resource) -> dict[str, Any]:
    """An object as a manifest, with nothing but what a user states."""
    return _document(resource)


def list_of(resources: Sequence[pb.Resource]) -> dict[str, Any]:
    """Several objects as a list that `apply` takes."""
    return {"apiVersion": "v1", "kind": "List", "items": [manifest_of(each) for each in resources]}


def table_of(kind: Kind, now_ms: int, *, with_namespace: bool, with_kind: bool = False) -> Table:
    """The columns of a kind, as kubectl prints them. With the kind, a name is that of the format `name`."""
    named = Column("name", lambda found: object_name(kind, found.name) if with_kind else found.name)
    placed = Column("namespace", lambda found: found.namespace)
    own = [_column(each, now_ms) for each in kind.columns]
    first = [placed, named] if with_namespace else [named]
    generation = Column("generation", lambda found: found.generation, wide=True)
    return Table(lambda found: object_name(kind, found.name), (*first, *own, generation))


def values_at(document: Any, path: str) -> list[Any]:
    """The values at a JSON path of a printer column: fields, indices, and filters by one field."""
    found = [document]
    for step in _STEP.finditer(path):
        found = [value for each in found for value in _step(each, step)]
    return found


def age_text(age_ms: int) -> str:
    """An age in one unit."""
    seconds = max(0, age_ms // 1_000)
    for size, unit in _AGES:
        if seconds >= size * _TWICE or unit == "s":
            return f"{seconds // size}{unit}"
    raise AssertionError("every age has a number of seconds")


def _column(column: KindColumn, now_ms: int) -> Column:
    def cell(resource: pb.Resource) -> str:
        if column.path == ".metadata.creationTimestamp":
            return age_text(now_ms - to_ms(resource.create_time))
        values = [_text(value) for value in values_at(manifest_of(resource), column.path)]
        return ",".join(_age_since(value, now_ms) for value in values) if column.type == "date" else ",".join(values)

    return Column(column.name, cell, wide=column.priority > 0)


def _step(value: Any, step: re.Match[str]) -> Iterator[Any]:
    field, key, wanted, index = step.groups()
    if field is not None and isinstance(value, Mapping) and field in value:
        yield value[field]
    elif key is not None and isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping) and item.get(key) == wanted)
    elif index is not None and isinstance(value, list) and int(index) < len(value):
        yield value[int(index)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _document(resource: pb.Resource, **assigned: Any) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "name": resource.name,
        "namespace": resource.namespace,
        "labels": dict(sorted(resource.labels.items())),
        "annotations": dict(sorted(resource.annotations.items())),
    }
    metadata = {key: value for key, value in (stated | assigned).items() if value}
    return {
        "apiVersion": resource.api_version or resource.kind.partition(".")[2],
        "kind": resource.kind.partition(".")[0],
        "metadata": metadata,
        "spec": json.loads(resource.spec),
    }


def _observed_status(resource: pb.Resource) -> dict[str, Any]:
    """The fields of the kind's status that an observation has. An observation also has fields that folds use."""
    name, _, group = resource.kind.partition(".")
    kind = DPF_KINDS.get((group, name)) if resource.HasField("observation") else None
    status = kind.model.model_fields.get("status") if kind is not None else None
    if status is None:
        return {}
    seen: dict[str, Any] = json.loads(resource.observation.fields)
    models = [each for each in (status.annotation, *get_args(status.annotation)) if hasattr(each, "model_fields")]
    names = {field.alias or name for model in models for name, field in model.model_fields.items()}
    return {name: value for name, value in seen.items() if name in names}


def _age_since(time: str, now_ms: int) -> str:
    """The age of a time as Kubernetes writes it."""
    try:
        return age_text(now_ms - int(datetime.fromisoformat(time).timestamp() * 1_000))
    except ValueError:
        return time


def _owner(owner: pb.ResourceOwner) -> dict[str, Any]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind.partition(".")[0],
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _time(time_ms: int) -> str:
    """A time as Kubernetes writes it; empty for none."""
    return f"{datetime.fromtimestamp(time_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}" if time_ms else ""

"""The items of a record about objects: reads its columns as one value per item. A malformed item refuses the record.

The API checks a request with the same functions before it appends anything, and also checks specs against the schemas
of their kinds. The fold does not: a schema may become stricter, and an object of the log stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from projections.field_checks import MAX_AHEAD_MS, check_labels, check_uid, check_zone, quoted
from projections.resources.json_limits import fault_of_limits
from projections.resources.observation import observation
from projections.resources.state import ObjectId
from schemas.events import (
    MAX_COMMAND_BYTES,
    MAX_ITEMS,
    DpusPlaced,
    ResourcesApplied,
    ResourcesDeleted,
    ResourcesObserved,
)

MAX_SPEC_BYTES = 200_000
"""Maximum size of a spec: a rendered configuration of a DPU has at most 128 kB."""
MAX_ANNOTATION_BYTES = 50_000
"""Maximum size of all annotations of an object. Kubernetes allows 256 kB, which do not fit in one record with the
spec."""

MAX_OBSERVATION_BYTES = 20_000
"""Maximum size of an observation: it has only the fields that folds use."""
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}\.[a-z0-9][a-z0-9.-]{0,252}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_ANNOTATION_KEY = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_object = msgspec.json.Decoder(dict[str, Any])

T = TypeVar("T")
_AnyEvent: TypeAlias = ResourcesApplied | ResourcesDeleted | ResourcesObserved | DpusPlaced


class Applied(NamedTuple):
    """One object of a ResourcesApplied. `uid` is empty if the fold assigns it, and the generation."""

    at: ObjectId
    uid: str
    generation: int
    created_ms: int
    deleted_ms: int
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: str
    expected_generation: int
    expected_revision: int
    version: int


class Deleted(NamedTuple):
    """One object of a ResourcesDeleted. An empty uid means any incarnation."""

    at: ObjectId
    uid: str


class Seen(NamedTuple):
    """One object of a ResourcesObserved. An empty observation removes the last one."""

    at: ObjectId
    uid: str
    observation: str
    version: int = 0


def applied_items(event: ResourcesApplied, now_ms: int) -> list[Applied] | str:
    """The objects of a record, or its first fault in one sentence."""
    ids = _ids(event)
    if isinstance(ids, str):
        return ids
    count = len(ids)
    columns: tuple[tuple[str, Sequence[Any]], ...] = (
        ("uids", event.uids),
        ("generations", event.generations),
        ("created_ms", event.created_ms),
        ("deleted_ms", event.deleted_ms),
        ("labels", event.labels),
        ("annotations", event.annotations),
        ("specs", event.specs),
        ("expected_generations", event.expected_generations),
        ("expected_revisions", event.expected_revisions),
        ("resource_versions", event.resource_versions),
    )
    for field, column in columns:
        if len(column) not in (0, 1, count):
            return f"{field}: {len(column)} values must be 0, one for all objects, or one for each of the {count}"
    if not event.specs:
        return "specs: 0 values must be one for all objects, or one for each"
    items = [
        Applied(*item)
        for item in zip(
            ids,
            _expanded(event.uids, count, ""),
            _expanded(event.generations, count, 0),
            _expanded(event.created_ms, count, 0),
            _expanded(event.deleted_ms, count, 0),
            _expanded(event.labels, count, {}),
            _expanded(event.annotations, count, {}),
            _expanded(event.specs, count, ""),
            _expanded(event.expected_generations, count, -1),
            _expanded(event.expected_revisions, count, -1),
            _expanded(event.resource_versions, count, 0),
            strict=True,
        )
    ]
    faults = (_fault_of_item(number, item, now_ms) for number, item in enumerate(items))
    return next(filter(None, faults), None) or _fault_of_size(items) or items


def deleted_items(event: ResourcesDeleted) -> list[Deleted] | str:
    """The deletions of a record, or its first fault in one sentence."""
    ids = _ids(event)
    if isinstance(ids, str):
        return ids
    if len(event.uids) not in (0, 1, len(ids)):
        return f"uids: {len(event.uids)} values must be 0, one for all objects, or one for each of the {len(ids)}"
    faults = (check_uid(f"uids[{number}]", uid) for number, uid in enumerate(event.uids))
    return next(filter(None, faults), None) or [
        Deleted(at, uid) for at, uid in zip(ids, _expanded(event.uids, len(ids), ""), strict=True)
    ]


def observed_items(event: ResourcesObserved) -> list[Seen] | str:
    """The observations of a record, or its first fault in one sentence."""
    ids = _ids(event)
    if isinstance(ids, str):
        return ids
    if len(event.uids) not in (0, 1, len(ids)):
        return f"uids: {len(event.uids)} values must be 0, one for all objects, or one for each of the {len(ids)}"
    if len(event.observations) not in (1, len(ids)):
        return f"observations: {len(event.observations)} values must be one for all objects, or one for each"
    versions = event.resource_versions
    if len(versions) not in (0, 1, len(ids)):
        return f"resource_versions: {len(versions)} values must be 0, one for all objects, or one for each"
    faults = (check_uid(f"uids[{number}]", uid) for number, uid in enumerate(event.uids))
    of_versions = (_fault_of_version(number, version) for number, version in enumerate(versions))
    of_texts = (_fault_of_observation(number, text) for number, text in enumerate(event.observations))
    fault = next(filter(None, (*faults, *of_texts, *of_versions)), None)
    if fault is None and sum(map(len, event.observations)) > MAX_COMMAND_BYTES:
        fault = f"observations: all of them together must have at most {MAX_COMMAND_BYTES} characters"
    columns = ((event.uids, ""), (event.observations, ""), (versions, 0))
    items = zip(ids, *(_expanded(column, len(ids), default) for column, default in columns), strict=True)
    return fault or [Seen(*item) for item in items]


def placed_items(event: DpusPlaced) -> list[tuple[str, str]] | str:
    """The keys and zones of DPUs in a record, or its first fault in one sentence."""
    ids = _ids(event)
    if isinstance(ids, str):
        return ids
    if len(event.zones) not in (1, len(ids)):
        return f"zones: {len(event.zones)} values must be one for all objects, or one for each of the {len(ids)}"
    return [(at.key, zone) for at, zone in zip(ids, _expanded(event.zones, len(ids), ""), strict=True)]


def check_object_name(field: str, name: str) -> str | None:
    """The name of an object or namespace: a DNS subdomain (RFC 1123)."""
    if _NAME.fullmatch(name):
        return None
    return f"{field}: {quoted(name)} must be 1 to 253 lower-case letters, digits, '.' and '-', no '.' or '-' at an end"


def _ids(event: _AnyEvent) -> list[ObjectId] | str:
    count = len(event.names)
    if not 1 <= count <= MAX_ITEMS:
        return f"names: {count} items must be from 1 to {MAX_ITEMS}"
    for field, column in (("kinds", event.kinds), ("namespaces", event.namespaces)):
        if len(column) not in (1, count):
            return f"{field}: {len(column)} values must be one for all objects, or one for each of the {count}"
    kinds, namespaces = _expanded(event.kinds, count, ""), _expanded(event.namespaces, count, "")
    if fault := _fault_of_source(event):
        return fault
    ids = [ObjectId(event.source, *part) for part in zip(kinds, namespaces, event.names, strict=True)]
    seen: set[ObjectId] = set()
    for number, each in enumerate(ids):
        fault = check_object_name(f"names[{number}]", each.name)
        if each.namespace:
            fault = fault or check_object_name(f"namespaces[{number}]", each.namespace)
        if _KIND.fullmatch(each.kind) is None:
            fault = f"kinds[{number}]: {quoted(each.kind)} must be KIND.GROUP, such as BFB.provisioning.dpu.nvidia.com"
        if fault is None and each in seen:
            fault = f"names[{number}]: {quoted(each.name)} is given twice; a record must name an object once"
        if fault is not None:
            return fault
        seen.add(each)
    return ids


def _fault_of_source(event: _AnyEvent) -> str | None:
    """Why the source of a record is invalid. Only observed objects can be in a DPU cluster, whose name is longer."""
    if not isinstance(event, ResourcesObserved):
        return check_zone("source", event.source)
    if _SOURCE.fullmatch(event.source):
        return None
    return (
        f"source: {quoted(event.source)} must be 1 to 253 letters, digits, '.', '_' and '-', of a source or a cluster"
    )


def _fault_of_item(number: int, item: Applied, now_ms: int) -> str | None:
    fault = check_uid(f"uids[{number}]", item.uid) or check_labels(f"labels[{number}]", item.labels)
    for field, time_ms in (("created_ms", item.created_ms), ("deleted_ms", item.deleted_ms)):
        if not 0 <= time_ms <= now_ms + MAX_AHEAD_MS:
            fault = fault or f"{field}[{number}]: {time_ms} must be from 0 to one minute ahead of the log"
    if item.uid and item.generation < 1:
        fault = fault or f"generations[{number}]: {item.generation} must be 1 or more for an object with a uid"
    if item.expected_generation < -1:
        fault = fault or f"expected_generations[{number}]: {item.expected_generation} must be -1 or more"
    if item.expected_revision < -1:
        fault = fault or f"expected_revisions[{number}]: {item.expected_revision} must be -1 or more"
    fault = fault or _fault_of_version(number, item.version)
    fault = fault or fault_of_annotations(f"annotations[{number}]", item.annotations)
    return fault or fault_of_spec(f"specs[{number}]", item.spec)


def fault_of_annotations(field: str, annotations: dict[str, str]) -> str | None:
    """Why an object cannot have these annotations."""
    for key in sorted(annotations):
        if _ANNOTATION_KEY.fullmatch(key) is None:
            return f"{field}: key {quoted(key)} must be letters, digits, '.', '_' and '-', after an optional PREFIX/"
    size = sum(len(key) + len(value.encode(errors="surrogatepass")) for key, value in annotations.items())
    return None if size <= MAX_ANNOTATION_BYTES else f"{field}: {size} bytes are more than {MAX_ANNOTATION_BYTES}"


def fault_of_spec(field: str, spec: str) -> str | None:
    """Why an object cannot have this spec, which is JSON text."""
    if len(spec) > MAX_SPEC_BYTES:
        return f"{field}: {len(spec)} characters are more than the {MAX_SPEC_BYTES} allowed"
    if fault := fault_of_limits(spec):
        return f"{field}: {fault}"
    try:
        _object.decode(spec)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return f"{field}: {quoted(spec)} must be a JSON object"
    return None


def _fault_of_version(number: int, version: int) -> str | None:
    return None if version >= 0 else f"resource_versions[{number}]: {version} must be 0 or more"


def _fault_of_observation(number: int, text: str) -> str | None:
    if not text:
        return None
    if len(text) > MAX_OBSERVATION_BYTES:
        return f"observations[{number}]: {len(text)} characters are more than the {MAX_OBSERVATION_BYTES} allowed"
    if fault := fault_of_limits(text):
        return f"observations[{number}]: {fault}"
    try:
        _object.decode(text)
        observation(text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        fields = "`ready` true or false, and `phase` and `message` texts"
        return f"observations[{number}]: {quoted(text)} must be a JSON object with {fields}"
    return None


def _fault_of_size(items: Sequence[Applied]) -> str | None:
    """The fault of a record that is too large; None if it fits. A record of one object always fits."""
    size = sum(len(item.spec) + sum(map(len, item.annotations.values())) for item in items)
    if len(items) == 1 or size <= MAX_COMMAND_BYTES:
        return None
    return f"specs: {size} bytes of specs and annotations are more than the {MAX_COMMAND_BYTES} allowed"


def _expanded(column: Sequence[T], count: int, absent: T) -> Sequence[T]:
    """One value per item of a valid column."""
    return column if len(column) == count else [*(column or [absent])] * count

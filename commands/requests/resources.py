"""Requests about objects of custom resources, as events. Objects are checked as the API server of Kubernetes would
check them, also against the object that they replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from commands.requests.validation import TIME_MS_MAX, EnvelopeFactory, NewEvent, require, require_count
from eventstore.log import RESOURCES
from projections.field_checks import quoted
from projections.resources.items import applied_items, deleted_items, fault_of_annotations, fault_of_spec
from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.network_stages.annotations import annotation_faults as network_faults
from projections.resources.rollouts.requests import KINDS as ROLLED_OUT
from projections.resources.rollouts.strategy import annotation_faults as rollout_faults
from projections.resources.state import LOCAL, ObjectId, Resource
from schemas.api import dpuplane_pb2 as pb
from schemas.events import ResourcesApplied, ResourcesDeleted
from schemas.resources.dpf import DPF_KINDS, REFUSED_GROUPS
from schemas.resources.kinds import Kind
from schemas.resources.validation import validate

_ANY = -1

T = TypeVar("T")

_object = msgspec.json.Decoder(dict[str, Any])


class CheckedObject(NamedTuple):
    """An object of a request, with its defaults. `known` is the present object. `faults` are sentences that begin with
    the path in the object; `is_refused_by_known` tells that they come from the comparison with the present object."""

    at: ObjectId
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: str
    known: Resource | None
    revision: int = 0
    """The revision that the object was made from, 0 for any."""
    faults: tuple[str, ...] = ()
    is_refused_by_known: bool = False

    @property
    def expected_generation(self) -> int:
        return 0 if self.known is None else self.known.generation


def known_kind(text: str) -> Kind | None:
    """The kind with this name and group, KIND.GROUP."""
    name, _, group = text.partition(".")
    return DPF_KINDS.get((group, name))


def object_id(given: pb.ResourceSpec | pb.ResourceName) -> ObjectId:
    """The identity of an object of a request."""
    return ObjectId(LOCAL, given.kind, given.namespace, given.name)


def check_object(given: pb.ResourceSpec, known: Resource | None) -> CheckedObject:
    """The object of a request, compared with the present one."""
    labels, annotations = dict(sorted(given.labels.items())), dict(sorted(given.annotations.items()))
    checked = CheckedObject(object_id(given), labels, annotations, given.spec or "{}", known, given.revision)
    kind = known_kind(given.kind)
    if kind is None:
        return checked._replace(faults=(_fault_of_kind(given.kind),))
    try:
        spec = _object.decode(checked.spec)
    except (msgspec.DecodeError, RecursionError):
        return checked._replace(faults=("spec: must be a JSON object",))
    manifest = _manifest(kind, checked, spec)
    fixed = None if known is None else _fault_of_known(given.name, known)
    # An object that cannot be changed at all is not compared: faults of single fields would hide the reason.
    older = None if known is None or fixed else _manifest(kind, checked, _object.decode(known.spec))
    own = _own_faults(given, kind)
    try:
        found = validate(kind, manifest, older)
        faults = (*own, *map(str, found.faults))
        alone = {*own, *map(str, validate(kind, manifest).faults)} if faults and older is not None else {*faults}
    except RecursionError:
        return checked._replace(faults=("spec: must not be nested that deep",))
    faults = (*faults, fixed) if fixed else faults
    if given.revision and (known is None or known.changed_offset != given.revision):
        faults = (*faults, f"metadata.resourceVersion: {given.name} has changed after {given.revision}; read it again")
    if faults:
        return checked._replace(faults=faults, is_refused_by_known=not alone.intersection(faults))
    completed = msgspec.json.encode(found.manifest.get("spec", {}), order="sorted").decode()
    limits = (fault_of_spec("spec", completed), fault_of_annotations("metadata.annotations", annotations))
    return checked._replace(spec=completed, faults=tuple(filter(None, limits)))


def applied(objects: Sequence[CheckedObject], envelope: EnvelopeFactory) -> NewEvent:
    """The event that applies checked objects. Raises InvalidRequest."""
    require_count("resources", len(objects))
    kinds = [each.at.kind for each in objects]
    namespaces = [each.at.namespace for each in objects]
    event = ResourcesApplied(
        envelope(_subject([each.at for each in objects])),
        LOCAL,
        _short(kinds),
        _short(namespaces),
        [each.at.name for each in objects],
        [],
        [],
        [],
        [],
        _column([each.labels for each in objects], {}),
        _column([each.annotations for each in objects], {}),
        [each.spec for each in objects],
        [each.expected_generation for each in objects],
        _column([each.revision or _ANY for each in objects], _ANY),
    )
    items = applied_items(event, TIME_MS_MAX)
    require(items if isinstance(items, str) else None)
    return NewEvent(RESOURCES, LOCAL, event)


def delete_resources(request: pb.DeleteResourcesRequest, envelope: EnvelopeFactory) -> NewEvent:
    require_count("resources", len(request.resources))
    at = [object_id(each) for each in request.resources]
    event = ResourcesDeleted(
        envelope(_subject(at)),
        LOCAL,
        _short([each.kind for each in at]),
        _short([each.namespace for each in at]),
        [each.name for each in at],
        _column([each.uid for each in request.resources], ""),
    )
    items = deleted_items(event)
    require(items if isinstance(items, str) else None)
    return NewEvent(RESOURCES, LOCAL, event)


def _fault_of_known(name: str, known: Resource) -> str | None:
    """Why a present object cannot be changed at all; None if it can."""
    if known.is_external:
        return f"metadata.name: {name} belongs to a Kubernetes cluster, which alone may change it"
    if known.deleted_ms:
        waits = "is being deleted, and waits for the objects that use it; apply it again afterwards"
        return f"metadata.name: {name} {waits}"
    return None


def _fault_of_kind(text: str) -> str:
    _, _, group = text.partition(".")
    if group in REFUSED_GROUPS:
        return f"kind: {quoted(text)} is refused: {REFUSED_GROUPS[group]}"
    return f"kind: {quoted(text)} must be KIND.GROUP of a kind that the plane knows, such as {next(iter(_KIND_NAMES))}"


_KIND_NAMES = [f"{name}.{group}" for group, name in DPF_KINDS]


def _own_faults(given: pb.ResourceSpec, kind: Kind) -> tuple[str, ...]:
    """Faults of the fields that the schema of the kind does not have."""
    faults = []
    if given.api_version not in ("", kind.api_version):
        faults.append(f"apiVersion: {quoted(given.api_version)} must be {kind.api_version}")
    if kind.is_namespaced and not given.namespace:
        faults.append("metadata.namespace: must be set")
    if not kind.is_namespaced and given.namespace:
        faults.append(f"metadata.namespace: must not be set, because objects of {kind.name} have no namespace")
    if given.kind in ROLLED_OUT:
        faults += rollout_faults(given.annotations)
    if given.kind == DPF_OPERATOR_CONFIG:
        faults += network_faults(given.annotations)
    return tuple(faults)


def _manifest(kind: Kind, given: CheckedObject, spec: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": given.at.name, "labels": given.labels, "annotations": given.annotations}
    if given.at.namespace:
        metadata["namespace"] = given.at.namespace
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def _subject(at: Sequence[ObjectId]) -> str:
    """The object, or the source of several."""
    return "/".join(at[0][1:]) if len(at) == 1 else LOCAL


def _short(values: list[str]) -> list[str]:
    """A column of one entry if all items have the same value."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _column(values: list[T], absent: T) -> list[T]:
    """A column of the log: empty if no item has a value."""
    return [] if values.count(absent) == len(values) else values

"""The collections that the simulated API server serves, the paths to them, and the selection of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from schemas.kubernetes.api import NOT_FOUND, ApiError

Object: TypeAlias = dict[str, Any]
Selector: TypeAlias = Callable[[Object], bool]

_REQUIREMENT = re.compile(r"(!?)([^\s!=(),]+)\s*(?:(==|=|!=)\s*([^\s,]*)|\s(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")


@dataclass(frozen=True)
class Collection:
    """A kind of object. `schema` is None for a kind of Kubernetes' own, whose fields are not checked."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool
    has_status: bool = True
    schema: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def counts_generations(self) -> bool:
        return self.schema is not None

    @property
    def full_name(self) -> str:
        """The name of the collection in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


BUILT_IN = (
    Collection("v1", "Namespace", "namespaces", is_namespaced=False),
    Collection("v1", "Node", "nodes", is_namespaced=False),
    Collection("v1", "Pod", "pods", is_namespaced=True),
    Collection("v1", "ConfigMap", "configmaps", is_namespaced=True, has_status=False),
    Collection("v1", "Secret", "secrets", is_namespaced=True, has_status=False),
    Collection("v1", "Event", "events", is_namespaced=True, has_status=False),
    Collection("events.k8s.io/v1", "Event", "events", is_namespaced=True, has_status=False),
    Collection(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        is_namespaced=False,
    ),
    Collection(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        is_namespaced=False,
        has_status=False,
    ),
    Collection("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", is_namespaced=False),
)


def defined(definition: Mapping[str, Any]) -> list[Collection]:
    """The collections of a CustomResourceDefinition."""
    spec = definition["spec"]
    return [
        Collection(
            f"{spec['group']}/{version['name']}",
            spec["names"]["kind"],
            spec["names"]["plural"],
            is_namespaced=spec["scope"] == "Namespaced",
            has_status="status" in version.get("subresources", {}),
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in spec["versions"]
    ]


class Place(NamedTuple):
    """What a path names: a collection, in one namespace or in all, or an object or its subresource."""

    collection: Collection
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The key of the object; objects are listed in the order of their keys."""
        return f"{self.namespace}/{self.name}" if self.collection.is_namespaced else self.name


NOWHERE = Place(BUILT_IN[0], "", "", "")
"""The place of a request that is about no object."""
_VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}


class Paths:
    """The collections by their paths."""

    def __init__(self) -> None:
        self._collections = {(each.api_version, each.plural): each for each in BUILT_IN}

    def add(self, collection: Collection) -> None:
        self._collections[collection.api_version, collection.plural] = collection

    def about(self, path: str) -> Object | None:
        """The version of the server, or the kinds of a group and version; None if the path is about neither."""
        parts = path.strip("/").split("/")
        if parts == ["version"]:
            return dict(_VERSION)
        if len(parts) != (2 if parts[0] == "api" else 3):
            return None
        served = "/".join(parts[1:])
        found = [each for (version, _), each in self._collections.items() if version == served]
        if not found:
            return None
        names = [{"name": each.plural, "kind": each.kind, "namespaced": each.is_namespaced} for each in found]
        return {"kind": "APIResourceList", "groupVersion": served, "resources": names}

    def place(self, path: str) -> Place:
        """What a path names. Raises ApiError if there is no such collection."""
        parts = path.strip("/").split("/")
        core = parts[0] == "api"
        version, rest = ("v1", parts[2:]) if core else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and (version, rest[2]) in self._collections:
            namespace, rest = rest[1], rest[2:]
        collection = self._collections.get((version, rest[0])) if rest else None
        if collection is None or len(rest) > 3:
            raise ApiError(NOT_FOUND, "NotFound", "the server could not find the requested resource")
        return Place(collection, namespace, *[*rest[1:], "", ""][:2])


def selector(query: Mapping[str, str]) -> Selector:
    """Whether an object is selected by the query's label and field selectors."""
    tests = [_label_test(found) for found in _REQUIREMENT.finditer(query.get("labelSelector", ""))]
    tests += [_field_test(part) for part in query.get("fieldSelector", "").split(",") if part]
    return lambda item: all(test(item) for test in tests)


def _label_test(requirement: re.Match[str]) -> Selector:
    no, key, sign, value, word, values = requirement.groups()

    def label(item: Object) -> str | None:
        found: str | None = (item["metadata"].get("labels") or {}).get(key)
        return found

    if sign:
        return lambda item: (label(item) == value) != (sign == "!=")
    if word:
        chosen = {each.strip() for each in values.split(",")}
        return lambda item: (label(item) in chosen) != (word == "notin")
    return lambda item: (label(item) is None) == bool(no)


def _field_test(part: str) -> Selector:
    path, sign, value = re.split(r"(!=|==|=)", part, maxsplit=1)

    def test(item: Object) -> bool:
        found: Any = item
        for name in path.split("."):
            found = found.get(name, {}) if isinstance(found, dict) else {}
        return (str(found or "") == value) != (sign == "!=")

    return test

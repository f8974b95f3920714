"""The description of a custom resource: everything in its definition except the schema of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemas.resources.faults import Fault
from schemas.resources.model import Model

GROUP = "dpuplane.io"
VERSION = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that kubectl prints. `priority` above 0 shows it only in wide output."""

    name: str
    path: str
    type: Literal["string", "integer", "date", "boolean"] = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of resource, with the model of all its fields except apiVersion, kind and metadata."""

    name: str
    plural: str
    model: type[Model]
    group: str = GROUP
    version: str = VERSION
    is_namespaced: bool = False
    has_status: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    keeps_definition: bool = False
    """Whether Helm leaves the definition, and with it every object, when a release that installed it is uninstalled."""

    admission: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Iterator[Fault]] | None = None
    """The checks of a spec, and of its older version, that no schema can state."""

    @property
    def is_ours(self) -> bool:
        """Whether the plane defines the kind. Other kinds belong to other projects, and the plane only writes objects
        of them."""
        return self.group == GROUP

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of an object on the API server. Without a name, it is the path of the collection; without a
        namespace either, the collection covers all namespaces."""
        parts = [f"/apis/{self.group}/{self.version}"]
        parts += ["namespaces", namespace] if namespace else []
        parts += [self.plural, name, subresource]
        return "/".join(part for part in parts if part)

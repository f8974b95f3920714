"""Objects of DPF as rows of a resources partition, and derivations from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from projections.resources import kinds
from projections.resources.derivation import Derivation
from projections.resources.handover import BMC_ADDRESS
from projections.resources.state import ObjectId, Observed, Resource, ResourcesState
from schemas.resources.dpf.names import DPU_NODE_NAME

SOURCE, NAMESPACE = "east", "dpf"


def key(kind: str, name: str, namespace: str = NAMESPACE) -> str:
    return ObjectId(SOURCE, kind, "" if kind == kinds.NODE else namespace, name).key


def row(spec: Mapping[str, Any] | None = None, *, labels: Mapping[str, str] | None = None, **fields: Any) -> Resource:
    """A row with this spec. `fields` are other fields, and `created_ms` is 1 if not given."""
    given: dict[str, Any] = {"uid": "u", "generation": 1, "created_ms": 1, "changed_ms": 1, "changed_offset": 0}
    given |= {"annotations": {}, "labels": dict(labels or {}), "spec": json.dumps(spec or {})}
    return Resource(**(given | fields))


def dpu_set(image: str = "image", *, labels: Mapping[str, str] | None = None, **fields: Any) -> Resource:
    """A DPUSet with this image; `fields` are fields of its spec, and `created_ms`, `deleted_ms` those of the row."""
    times = {name: fields.pop(name) for name in ("created_ms", "deleted_ms") if name in fields}
    template = {"spec": {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
    return row({"dpuTemplate": template} | fields, labels=labels, **times)


def device(host: str, *, labels: Mapping[str, str] | None = None, serial: str = "s", **times: Any) -> Resource:
    """A DPUDevice whose label names its DPUNode, with a simulated BMC."""
    address = {BMC_ADDRESS: f"simulated:{host}"}
    return row(
        {"serialNumber": serial}, labels={DPU_NODE_NAME: host} | dict(labels or {}), annotations=address, **times
    )


class Derived:
    """A derivation that follows the changes of a state."""

    def __init__(self, rows: Mapping[str, Resource] | None = None) -> None:
        self.state = ResourcesState()
        self.derivation = Derivation()
        self.apply(rows or {})

    def apply(self, rows: Mapping[str, Resource | None]) -> list[str]:
        """Apply rows to the state, and update the derivation. Returns the wanted objects that changed."""
        self.state.apply(rows)
        return [*self.derivation.update(self.state, rows)]

    def observe(self, name: str, **fields: Any) -> list[str]:
        """Take over an observation; without fields it is removed. Returns the wanted objects that changed."""
        seen = Observed("", json.dumps(fields), "test", 1, 1) if fields else None
        self.state.observe({name: seen})
        return [*self.derivation.update(self.state, [name])]

    def names(self, kind: str) -> list[str]:
        """The names of the wanted objects of a kind, sorted."""
        return [each.at.name for each in self.derivation.wanted() if each.at.kind == kind]

    def spec(self, kind: str, name: str) -> dict[str, Any]:
        """The spec of a wanted object."""
        return next(each.spec for each in self.derivation.wanted() if (each.at.kind, each.at.name) == (kind, name))


def content(derivation: Derivation) -> dict[str, object]:
    """Everything that a derivation says, for comparisons. It must not depend on the way to it."""
    return {
        "wanted": [*derivation.wanted()],
        "selected by": dict(sorted(derivation.selection.selected_by.items())),
        "sets": dict(sorted(derivation.sets.items())),
        "faults": dict(sorted(derivation.set_faults.items())),
        "deployments": dict(sorted(derivation.deployments.items())),
        "devices": dict(sorted(derivation.selection.hosts.devices.items())),
    }


def full(state: ResourcesState, keys: Iterable[str] | None = None) -> Derivation:
    """The derivation from a whole state, whose objects are read in this order."""
    derivation = Derivation()
    derivation.update(state, state.objects.rows if keys is None else keys)
    return derivation

"""A resources partition that a test folds record by record, as a log delivers it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from eventstore.folding.fold import Outcome
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES, Partition
from projections.resources.fold import ResourcesFold
from projections.resources.references import PROVISIONING
from projections.resources.state import ObjectId, Resource, ResourcesState
from schemas.events import Event, ResourcesApplied, ResourcesDeleted
from tests.support.delivered import Delivered

PARTITION = Partition(RESOURCES, 0)
START_MS = 1_700_000_000_000
LOCAL, EAST = "local", "east"
BFB, DPU_SET = f"BFB.{PROVISIONING}", f"DPUSet.{PROVISIONING}"
NAMESPACE = "dpf"


def bfb(file: str) -> str:
    """The spec of a BFB."""
    return json.dumps({"url": f"http://images/{file}.bfb"})


def dpu_set(image: str) -> str:
    """The spec of a DPUSet that refers to a BFB."""
    return json.dumps({"dpuTemplate": {"spec": {"bfb": {"name": image}}}})


class DeliveredResources:
    """A resources fold and its records; each command has a new id."""

    def __init__(self) -> None:
        self.delivered = Delivered(PARTITION, ResourcesFold(), START_MS)
        self.state: ResourcesState = self.delivered.folded.state
        self.now_ms = START_MS
        self._rng = Random(2)

    def append(self, event: Event) -> Outcome:
        self.now_ms += 1
        _, _, outcome = self.delivered.issue(event, self.now_ms)
        self.state = self.delivered.folded.state
        return outcome

    def apply(self, kind: str, name: str, spec: str, *, expected: int = -1, **columns: Any) -> Outcome:
        """Apply one object without a cluster. `columns` are other columns of the record."""
        return self.append(self.applied(kind, [name], [spec], expected_generations=[expected], **columns))

    def report(self, kind: str, name: str, spec: str, *, uid: str, generation: int, created_ms: int = 1) -> Outcome:
        """Report one object of a Kubernetes cluster."""
        incarnation = {"uids": [uid], "generations": [generation], "created_ms": [created_ms]}
        return self.append(self.applied(kind, [name], [spec], source=EAST, **incarnation))

    def delete(self, kind: str, name: str, *, uid: str = "", source: str = LOCAL) -> Outcome:
        return self.append(self.deleted([kind], [name], uids=[uid], source=source))

    def applied(self, kind: str, names: list[str], specs: list[str], **columns: Any) -> ResourcesApplied:
        optional = ("uids", "generations", "created_ms", "deleted_ms", "labels", "annotations", "expected_generations")
        empty: dict[str, Any] = {column: [] for column in optional}
        given = {"source": LOCAL, "kinds": [kind], "namespaces": [NAMESPACE], "names": names, "specs": specs}
        return ResourcesApplied(self._envelope(), **(given | empty | columns))

    def deleted(self, kinds: list[str], names: list[str], **columns: Any) -> ResourcesDeleted:
        given: dict[str, Any] = {"source": LOCAL, "namespaces": [NAMESPACE], "uids": []}
        return ResourcesDeleted(self._envelope(), kinds=kinds, names=names, **(given | columns))

    def row(self, kind: str, name: str, source: str = LOCAL) -> Resource | None:
        return self.state.objects.rows.get(ObjectId(source, kind, NAMESPACE, name).key)

    def _envelope(self) -> Any:
        return envelope(LOCAL, "test", uuid7(self.now_ms, self._rng))

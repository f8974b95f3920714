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
from schemas.events import DpusPlaced, Event, ResourcesApplied, ResourcesDeleted, ResourcesObserved
from tests.support.delivered import Delivered

PARTITION = Partition(RESOURCES, 0)
START_MS = 1_700_000_000_000
LOCAL, EAST = "local", "east"
DPU = f"DPU.{PROVISIONING}"
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

    def report(
        self,
        kind: str,
        name: str,
        spec: str,
        *,
        uid: str,
        generation: int,
        created_ms: int = 1,
        version: int = 0,
        expected: int = -1,
    ) -> Outcome:
        """Report one object of a Kubernetes cluster."""
        incarnation = {"uids": [uid], "generations": [generation], "created_ms": [created_ms]}
        incarnation |= {"resource_versions": [version], "expected_generations": [expected]}
        return self.append(self.applied(kind, [name], [spec], source=EAST, **incarnation))

    def delete(self, kind: str, name: str, *, uid: str = "", source: str = LOCAL) -> Outcome:
        return self.append(self.deleted([kind], [name], uids=[uid], source=source))

    def observe(self, kind: str, name: str, observation: str, **fields: Any) -> Outcome:
        """Observe one object without a cluster. `fields` are other fields of the record."""
        return self.append(self.observed(kind, [name], [observation], **fields))

    def applied(self, kind: str, names: list[str], specs: list[str], **columns: Any) -> ResourcesApplied:
        optional = ("uids", "generations", "created_ms", "deleted_ms", "labels", "annotations")
        expected = ("expected_generations", "expected_revisions")
        empty: dict[str, Any] = {column: [] for column in (*optional, *expected)}
        given = {"source": LOCAL, "kinds": [kind], "namespaces": [NAMESPACE], "names": names, "specs": specs}
        return ResourcesApplied(self.envelope(), **(given | empty | columns))

    def deleted(self, kinds: list[str], names: list[str], **columns: Any) -> ResourcesDeleted:
        given: dict[str, Any] = {"source": LOCAL, "namespaces": [NAMESPACE], "uids": []}
        return ResourcesDeleted(self.envelope(), kinds=kinds, names=names, **(given | columns))

    def observed(self, kind: str, names: list[str], observations: list[str], **fields: Any) -> ResourcesObserved:
        given: dict[str, Any] = {"source": LOCAL, "kinds": [kind], "namespaces": [NAMESPACE], "uids": []}
        return ResourcesObserved(self.envelope(), names=names, observations=observations, **(given | fields))

    def revision(self, kind: str, name: str) -> int:
        """The offset of the last change of an object without a cluster."""
        return self.state.objects.rows[ObjectId(LOCAL, kind, NAMESPACE, name).key].changed_offset

    def place(self, *names: str, zone: str) -> Outcome:
        """Propose the zone of DPUs; an empty one ends their placements."""
        return self.append(self.placed([*names], [zone]))

    def placed(self, names: list[str], zones: list[str], **fields: Any) -> DpusPlaced:
        given: dict[str, Any] = {"source": LOCAL, "kinds": [DPU], "namespaces": [NAMESPACE]}
        return DpusPlaced(self.envelope(), names=names, zones=zones, **(given | fields))

    def seen(self, kind: str, name: str, source: str = LOCAL) -> str | None:
        """The present observation of an object."""
        found = self.state.observed.rows.get(ObjectId(source, kind, NAMESPACE, name).key)
        return found.observation if found else None

    def row(self, kind: str, name: str, source: str = LOCAL) -> Resource | None:
        return self.state.objects.rows.get(ObjectId(source, kind, NAMESPACE, name).key)

    def envelope(self) -> Any:
        return envelope(LOCAL, "test", uuid7(self.now_ms, self._rng))

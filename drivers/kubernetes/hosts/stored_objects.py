"""Objects of a source cluster that steps read and edit, on its API server.

An object that the plane makes has a finalizer: its deletion waits until its effect on the host is lifted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drivers.backends.bmc import NeedsOperator
from drivers.hosts.objects import StoredObject
from drivers.kubernetes.hosts.calls import NODES, create, merge, named, read, remove, replace
from drivers.kubernetes.hosts.shared_watch import SharedWatch
from projections.kubernetes.object_names import OWN_LABELS
from projections.resources.kinds import NODE
from projections.resources.state import ObjectId
from schemas.kubernetes.api import KubernetesApi
from schemas.resources.dpf import DPF_KINDS
from schemas.resources.dpf.names import PROVISIONING
from schemas.resources.kinds import Kind

FINALIZER = f"{PROVISIONING}/dpunodemaintenance-protection"


class KubernetesObjects:
    """The objects of one source cluster, whose API server is `api`."""

    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        self._watches: dict[str, SharedWatch] = {}
        """The watches by the path of their collection. There are few: a namespace of DPF has all its objects."""

    async def get(self, at: ObjectId) -> StoredObject | None:
        found = await read(self.api, _path(at))
        return None if found is None else _stored(at, found)

    async def put(self, wanted: StoredObject) -> None:
        if wanted.version:
            await self._replace(wanted)
        else:
            await create(self.api, _collection(wanted.at.kind, wanted.at.namespace), _new(wanted))

    async def delete(self, known: StoredObject) -> None:
        found = await read(self.api, _path(known.at))
        if found is None or found["metadata"]["uid"] != known.uid:
            return
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            found["metadata"]["finalizers"] = [each for each in finalizers if each != FINALIZER]
            if not await replace(self.api, _path(known.at), found):
                return
        await remove(self.api, _path(known.at), known.uid)

    async def changed(self, at: ObjectId, version: str) -> None:
        path = _collection(at.kind, at.namespace)
        watch = self._watches.setdefault(path, SharedWatch(self.api, path))
        await watch.changed(at.name, version)

    async def _replace(self, wanted: StoredObject) -> None:
        found = await read(self.api, _path(wanted.at))
        if found is None or found["metadata"]["resourceVersion"] != wanted.version:
            return
        if wanted.at.kind == NODE:  # others own the rest of a Node, and the plane has no right to replace it
            await merge(self.api, _path(wanted.at), _annotations_patch(found, wanted))
            return
        found["metadata"] |= {"labels": wanted.labels, "annotations": wanted.annotations}
        found["spec"] = wanted.spec
        await replace(self.api, _path(wanted.at), found)


def _new(wanted: StoredObject) -> dict[str, Any]:
    kind = _kind(wanted.at.kind)
    metadata = {
        "name": wanted.at.name,
        "namespace": wanted.at.namespace,
        "labels": wanted.labels | OWN_LABELS,
        "annotations": wanted.annotations,
        "finalizers": [FINALIZER],
    }
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": wanted.spec}


def _annotations_patch(found: dict[str, Any], wanted: StoredObject) -> dict[str, Any]:
    present = found["metadata"].get("annotations") or {}
    changes: dict[str, Any] = dict.fromkeys(present.keys() - wanted.annotations.keys())
    changes |= wanted.annotations
    return {"metadata": {"resourceVersion": wanted.version, "annotations": changes}}


def _stored(at: ObjectId, found: dict[str, Any]) -> StoredObject:
    metadata = found["metadata"]
    return StoredObject(
        at,
        metadata["uid"],
        metadata["resourceVersion"],
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        found.get("spec") or {},
        round(datetime.fromisoformat(metadata["creationTimestamp"]).timestamp() * 1_000),
        "deletionTimestamp" in metadata,
        ((found.get("status") or {}).get("nodeInfo") or {}).get("bootID", "") if at.kind == NODE else "",
    )


def _path(at: ObjectId) -> str:
    return f"{_collection(at.kind, at.namespace)}/{named(at.name)}"


def _collection(kind: str, namespace: str = "") -> str:
    return NODES if kind == NODE else _kind(kind).path(namespace)


def _kind(text: str) -> Kind:
    name, _, group = text.partition(".")
    found = DPF_KINDS.get((group, name))
    if found is None:
        raise NeedsOperator(f"kind: {text} is no kind that the plane writes")
    return found

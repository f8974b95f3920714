"""The observing part of an edge, played: what the objects of other programs say is stated to the plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from projections.kubernetes.foreign.kind import ForeignKind
from projections.kubernetes.foreign.kinds import IN_SOURCE_CLUSTER
from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.kubernetes.foreign.secrets import PULL_SECRET
from projections.kubernetes.foreign.services import CHART_SERVICE
from projections.resources import kinds
from schemas.kubernetes.api import NOT_FOUND, ApiError
from schemas.kubernetes.objects import Custom
from tests.support.kubernetes.requests import get
from tests.support.kubernetes.resource_clusters import ResourceClusters

_custom = msgspec.json.Decoder(Custom)


async def observing(made: ResourceClusters) -> None:
    """Observe the objects in the namespace of a test, and the nodes of its DPU cluster, until cancelled."""
    in_source = (*IN_SOURCE_CLUSTER[:2], *IN_SOURCE_CLUSTER[3:], PULL_SECRET)
    in_dpu_cluster = (CHART_SERVICE, CLUSTER_NODE)
    kinds_of = [(each, False) for each in in_source] + [(each, True) for each in in_dpu_cluster]
    seen: dict[tuple[str, str, bool], Any] = {}
    while True:
        present = set()
        for kind, is_in_dpus in kinds_of:
            for item in await _listed(made, kind, is_in_dpus):
                found = kind.observe(_custom.decode(json.dumps(item).encode()))
                at = (kind.name, item["metadata"]["name"], is_in_dpus)
                present.add(at)
                if found is not None and seen.get(at) != found:
                    seen[at] = found
                    await made.observe(*at[:2], found, in_dpu_cluster=is_in_dpus)
        for at in [each for each in seen if each not in present]:
            del seen[at]
            await made.observe(*at[:2], None, in_dpu_cluster=at[2])
        await asyncio.sleep(0.05)


async def _listed(made: ResourceClusters, kind: ForeignKind, is_in_dpus: bool) -> Iterable[dict[str, Any]]:
    """The objects of a kind in the namespace of the test. Nodes have none, and are all of the cluster."""
    root, _, plural = kind.path.rpartition("/")
    path = kind.path if kind.name == kinds.NODE else f"{root}/namespaces/{made.namespace}/{plural}"
    query = {"labelSelector": kind.label_selector} if kind.label_selector else None
    try:
        items: list[dict[str, Any]] = (await get(made.dpu_api if is_in_dpus else made.api, path, query))["items"]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return []  # the server does not have the kind
    return items


async def has_condition(made: ResourceClusters, kind: str, name: str, aspect: str, status: str = "True") -> bool:
    found = await made.object(kind, name)
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == (aspect, status) for each in conditions)

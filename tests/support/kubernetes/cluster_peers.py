"""Actors that play what runs in a DPU cluster: the kubelets of DPUs, and the controllers of chains and address pools.

A DPU joins as a Node once it is installed. Now and then a Node is not ready, or a controller reports an error; the next
step is always right, so that everything becomes ready in the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import yaml

from projections.zones.dpus.phases import CLUSTER_CONFIG
from schemas.kubernetes.api import CONFLICT, NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf.chain import SERVICE_CHAIN_SET
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.interface import SERVICE_INTERFACE_SET
from tests.support.kubernetes.peers import THIRD_PARTY_CRDS, open_definition, suppress_outage
from tests.support.kubernetes.requests import create, get
from tests.support.peers import next_node, ready_condition

PERIOD_S = 0.1
NODES = "/api/v1/nodes"
_SETS = (SERVICE_CHAIN_SET.path(), SERVICE_INTERFACE_SET.path())
_POOL_KINDS = (
    ("nv-ipam.nvidia.com", "IPPool", "ippools", True),
    ("nv-ipam.nvidia.com", "CIDRPool", "cidrpools", True),
)
_NETWORK = ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network-attachment-definitions", False)
_POOLS = tuple(f"/apis/{group}/v1alpha1/{plural}" for group, _, plural, _ in _POOL_KINDS)


def cluster_definitions() -> list[dict[str, Any]]:
    """The definitions of the kinds in a DPU cluster: the real ones of others, if the run is given them."""
    found = [definition(SERVICE_CHAIN_SET), definition(SERVICE_INTERFACE_SET)]
    folder = os.environ.get(THIRD_PARTY_CRDS)
    if folder is None:
        return [*found, *(open_definition(*kind) for kind in _POOL_KINDS), open_definition(*_NETWORK, version="v1")]
    names = {f"{plural}.{group}" for group, _, plural, _ in (*_POOL_KINDS, _NETWORK)}
    others = [yaml.safe_load(path.read_text()) for path in sorted(Path(folder).glob("*.yaml"))]
    return [*found, *(each for each in others if each["metadata"]["name"] in names)]


async def join_installed(source: KubernetesApi, cluster: KubernetesApi, namespace: str) -> None:
    """Let each DPU that is installed join the cluster, as its first start with the join command does."""
    for item in (await get(source, DPU_KIND.path(namespace)))["items"]:
        if (item.get("status") or {}).get("phase") == CLUSTER_CONFIG:
            try:
                await create(cluster, NODES, {"metadata": {"name": item["metadata"]["name"]}})
            except ApiError as error:
                if error.status != CONFLICT:
                    raise


class ClusterPeers:
    """The peers in one DPU cluster, while `run` runs. `failure` is the share of steps that go wrong. Unless it
    is 0, the first step that can go wrong does."""

    def __init__(
        self, source: KubernetesApi, cluster: KubernetesApi, namespace: str, *, rng: Random, failure: float = 0.3
    ) -> None:
        self.failures = 0
        self._source, self._cluster = source, cluster
        self._namespace = namespace
        self._rng = rng
        self._failure = failure

    async def run(self) -> None:
        """Look at every object again and again until cancelled, also across an outage of an API server."""
        while True:
            with suppress_outage():
                await join_installed(self._source, self._cluster, self._namespace)
                for item in (await get(self._cluster, NODES))["items"]:
                    await self._node(item)
                for path in _SETS:
                    for item in (await get(self._cluster, path))["items"]:
                        await self._set(path, item)
                for path in _POOLS:
                    for item in (await get(self._cluster, path))["items"]:
                        await self._pool(path, item)
            await asyncio.sleep(PERIOD_S)

    async def _node(self, item: Mapping[str, Any]) -> None:
        status = next_node(item, self._draw(), self._failure)
        if status is not None:
            self.failures += status["conditions"][0]["status"] == "False"
            await self._patch(NODES, item, status)

    async def _set(self, path: str, item: Mapping[str, Any]) -> None:
        generation, status = item["metadata"]["generation"], item.get("status") or {}
        ready = ready_condition(item)
        if ready.get("status") == "True" and status.get("observedGeneration") == generation:
            return
        goes_wrong = ready.get("reason") != "Error" and self._goes_wrong()
        condition = {
            "type": "Ready",
            "status": "False" if goes_wrong else "True",
            "reason": "Error" if goes_wrong else "Success",
            "message": "ovs-vsctl failed" if goes_wrong else "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await self._patch(path, item, {"conditions": [condition], "observedGeneration": generation})

    async def _pool(self, path: str, item: Mapping[str, Any]) -> None:
        if (item.get("status") or {}).get("allocations"):
            return
        names = [each["metadata"]["name"] for each in (await get(self._cluster, NODES))["items"]]
        if path.endswith("cidrpools"):
            found = [{"nodeName": name, "prefix": f"10.0.{number}.0/24"} for number, name in enumerate(names)]
        else:
            found = [
                {"nodeName": name, "startIP": f"10.0.{number}.1", "endIP": f"10.0.{number}.8"}
                for number, name in enumerate(names)
            ]
        if found:
            await self._patch(path, item, {"allocations": found})

    def _draw(self) -> float:
        return self._rng.random() if self.failures else 0.0

    def _goes_wrong(self) -> bool:
        found = self._draw() < self._failure
        self.failures += found
        return found

    async def _patch(self, collection: str, item: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        about = item["metadata"]
        root, _, plural = collection.rpartition("/")
        place = f"namespaces/{about['namespace']}/" if "namespace" in about else ""
        try:
            await self._cluster.patch(
                f"{root}/{place}{plural}/{about['name']}/status", {"status": dict(status)}, "merge"
            )
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

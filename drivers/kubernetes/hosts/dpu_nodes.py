"""DPUs as nodes of a DPU cluster: they join, get the labels and annotations of their DPU, and run its services."""

from __future__ import annotations

import asyncio

from drivers.hosts.host import DONE, Progress
from drivers.kubernetes.hosts.calls import NODES, PODS, merge, named, read, read_list, remove, until_event
from drivers.kubernetes.hosts.evictions import node_field
from projections.kubernetes.dpu_node import is_ready, patch_of, unready_services
from projections.resources.specs import Labels
from schemas.kubernetes.api import KubernetesApi

DAEMON_SETS = "/apis/apps/v1/daemonsets"
PATCHES = 5
"""Number of times that a patch of a node is tried when the node changes meanwhile."""


class KubernetesDpuNodes:
    """The nodes of one DPU cluster."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._awaited = (NODES, "", "")

    async def join(self, node: str, labels: Labels, annotations: Labels) -> Progress:
        listed, version = await read_list(self._api, NODES, {"fieldSelector": f"metadata.name={node}"})
        self._awaited = (NODES, f"metadata.name={node}", version)
        if not listed:
            return Progress(False, "waits for the DPU to join its cluster")
        if not is_ready(listed[0]):
            return Progress(False, "waits for the DPU's node to be ready in its cluster")
        found = listed[0]
        for _ in range(PATCHES):
            patch = patch_of(found, labels, annotations)
            if patch is None:
                return DONE
            await merge(self._api, _path(node), patch)
            again = await read(self._api, _path(node))
            if again is None:
                break
            found = again
        return Progress(False, "waits for the DPU's node, which others change")

    async def services(self, node: str, awaited: frozenset[str] | None) -> Progress:
        found = await read(self._api, _path(node))
        if found is None:
            return Progress(False, "waits for the DPU to join its cluster")
        sets, _ = await read_list(self._api, DAEMON_SETS)
        pods, version = await read_list(self._api, PODS, {"fieldSelector": node_field(node)})
        self._awaited = (PODS, node_field(node), version)
        unready = unready_services(found, sets, pods, awaited)
        if not unready:
            return DONE
        others = f", one of {len(unready)} services that are not ready on the DPU" if len(unready) > 1 else ""
        return Progress(False, f"waits for {unready[0].text}{others}")

    async def remove(self, node: str) -> None:
        found = await read(self._api, _path(node))
        if found is not None:
            await remove(self._api, _path(node), found["metadata"]["uid"])

    async def changed(self, node: str) -> None:
        if self._awaited[2]:
            await until_event(self._api, *self._awaited)
        else:
            await asyncio.get_running_loop().create_future()


def _path(node: str) -> str:
    return f"{NODES}/{named(node)}"

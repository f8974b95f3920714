"""Kamaji in a simulation: the control planes of DPUClusters, and their Services. It says what tests/support/peers.py
decides.

A control plane starts late, is not ready at random, also after it was ready, and is upgraded when its version changes.
While it is not ready, its API server does not answer. People delete its Service, which Kamaji makes again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from projections.kubernetes.foreign.control_planes import observe as observe_control_plane
from projections.kubernetes.foreign.services import observe as observe_service
from projections.resources.kinds import DPU_CLUSTER, SERVICE, TENANT_CONTROL_PLANE
from projections.resources.state import object_id
from projections.resources.wanted import Wanted
from tests.simulation.cluster_servers import ClusterServers
from tests.simulation.history import ControlPlaneDeleted, History
from tests.simulation.peers import Item, item_of, observed_text
from tests.support.peers import next_control_plane
from tests.support.virtual_loop import current_loop

FAILURE, RELAPSE, LATE, LOST_SERVICE = 0.3, 0.06, 0.3, 0.06
NODE_PORT = 31_443


class Kamaji:
    """The controller of TenantControlPlanes."""

    kinds = (TENANT_CONTROL_PLANE, SERVICE)

    def __init__(self, servers: ClusterServers, history: History) -> None:
        self._failure, self._relapse, self._late, self._lost = FAILURE, RELAPSE, LATE, LOST_SERVICE
        self._servers = servers
        self._history = history
        self._items: dict[str, Item] = {}

    def heal(self) -> None:
        self._failure = self._relapse = self._late = self._lost = 0.0

    async def advance(self, wanted: Mapping[str, Wanted], rng: random.Random, position: int) -> None:
        for key in [key for key in self._items if key not in wanted]:
            del self._items[key]
            if object_id(key).kind == TENANT_CONTROL_PLANE:
                self._note("control plane deleted", key)
                cluster = _cluster(key)
                self._history.add(ControlPlaneDeleted(current_loop().time(), cluster, position))
                await self._servers.remove(cluster)
        for key, each in wanted.items():
            if each.at.kind == SERVICE:
                self._advance_service(key, each, rng)
            elif key in self._items or not each.is_held:
                await self._advance_control_plane(key, each, rng)

    def observed(self) -> dict[str, str]:
        return {
            key: observed_text(item, observe_service if object_id(key).kind == SERVICE else observe_control_plane)
            for key, item in self._items.items()
        }

    def _advance_service(self, key: str, wanted: Wanted, rng: random.Random) -> None:
        """A Service gets a port of the nodes. Kamaji keeps that of a control plane."""
        if key in self._items:
            if rng.random() < self._lost:
                self._note("Service of a control plane deleted", key)
                del self._items[key]
            return
        tenant = object_id(key)._replace(kind=TENANT_CONTROL_PLANE).key
        if not wanted.is_held or tenant in self._items:
            ports = [{"name": "kube-apiserver", "port": 6443, "nodePort": NODE_PORT}]
            self._items[key] = item_of(wanted, {}) | {"spec": {"type": "NodePort", "ports": ports}}

    async def _advance_control_plane(self, key: str, wanted: Wanted, rng: random.Random) -> None:
        known = self._items.get(key)
        kept = known["spec"] if known is not None and wanted.is_held else wanted.spec
        item = item_of(wanted, known or {}) | {"spec": kept}
        self._items[key] = item
        if rng.random() < self._late:
            return
        status = next_control_plane(item, rng.random(), self._failure, self._relapse)
        if status is None:
            return
        phase = status["kubernetesResources"]["version"]["status"]
        self._note(f"control plane {phase}", key)
        cluster, name = _cluster(key), object_id(key).name
        if phase == "Ready":
            await self._servers.serve(cluster)
        elif phase == "NotReady":
            self._servers.stop(cluster)
        about: dict[str, Any] = {"controlPlaneEndpoint": "198.18.0.1:6443"}
        item["status"] = status | about | {"kubeconfig": {"admin": {"secretName": f"{name}-admin-kubeconfig"}}}

    def _note(self, what: str, key: str) -> None:
        self._history.note(current_loop().time(), what, key)


def _cluster(key: str) -> str:
    return object_id(key)._replace(kind=DPU_CLUSTER).key

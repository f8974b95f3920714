"""A host that is a node of a source cluster: tainted, labelled or drained, and rebooted by a script or its agent."""

from __future__ import annotations

import asyncio
from typing import Any

from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.hosts.agent_host import AgentHost
from drivers.hosts.host import DONE, Host, NetworkRequest, Progress, RebootRequest
from drivers.kubernetes.hosts import config_pods, node_maintenances
from drivers.kubernetes.hosts.calls import NODES, PODS, merge, named, read, read_list, until_event
from drivers.kubernetes.hosts.evictions import evict, node_field, pods_to_evict
from projections.kubernetes.node_claims import ON_NODE, NodeClaim, holder_of, patch_to_claim, patch_to_lift
from projections.kubernetes.ready_taint import patch_of_taint
from projections.resources.host_effects import CUSTOM_ACTION, DRAIN
from projections.resources.step_facts import SCRIPT, HostRef
from schemas.kubernetes.api import KubernetesApi

CLAIMS = 5
"""Number of times that a patch of a node is tried when the node changes meanwhile."""


class KubernetesHost:
    """One node. `agent` reboots a host that has an agent."""

    def __init__(self, api: KubernetesApi, ref: HostRef, *, agent: Host | AgentHost | None = None) -> None:
        self._api = api
        self._ref = ref
        self._agent = agent
        self._has_maintenances: bool | None = None
        self._awaited: tuple[str, str, str] | None = None
        """What `changed` waits for: the path and the field selector of a list, and its known version, empty for the
        present one."""

    async def apply(self, claim: NodeClaim) -> Progress:
        self._awaited = None
        kind = claim.effect.kind
        if kind == CUSTOM_ACTION:
            self._awaited = (f"/api/v1/namespaces/{named(claim.namespace)}/pods", f"metadata.name={claim.name}", "")
            return await config_pods.act(self._api, self._ref.name, claim)
        if kind not in ON_NODE:
            return DONE
        if kind == DRAIN and await self._is_maintained():
            self._awaited = (node_maintenances.collection(claim.namespace), f"metadata.name={self._ref.name}", "")
            return await node_maintenances.request(self._api, self._ref.name, claim)
        node = await self._claim(claim)
        if node is None:
            return Progress(False, f"waits for Node {self._ref.name}, which nodeEffect {kind} needs")
        return await self._drain() if kind == DRAIN else DONE

    async def lift(self, claim: NodeClaim) -> Progress:
        self._awaited = None
        kind = claim.effect.kind
        if kind == CUSTOM_ACTION:
            await config_pods.end_action(self._api, claim)
        if kind == DRAIN and await self._is_maintained():
            self._awaited = (node_maintenances.collection(claim.namespace), f"metadata.name={self._ref.name}", "")
            progress = await node_maintenances.end(self._api, self._ref.name, claim)
            if not progress.is_done:
                return progress
        if kind not in ON_NODE:
            return DONE
        for _ in range(CLAIMS):
            node = await read(self._api, self._path)
            patch = None if node is None else patch_to_lift(node, claim)
            if patch is None:
                return DONE
            await merge(self._api, self._path, patch)
        return Progress(False, f"waits for Node {self._ref.name}, which others change")

    async def holder(self, claim: NodeClaim) -> str:
        kind = claim.effect.kind
        if kind == CUSTOM_ACTION:
            return await config_pods.holder(self._api, claim)
        if kind not in ON_NODE:
            return ""
        if kind == DRAIN and await self._is_maintained():
            found = await node_maintenances.holder(self._api, self._ref.name, claim)
            if found:
                return found
        node = await read(self._api, self._path)
        return "" if node is None else holder_of(node, claim)

    async def keep_taint(self, *, is_wanted: bool) -> None:
        for _ in range(CLAIMS):
            node = await read(self._api, self._path)
            patch = None if node is None else patch_of_taint(node, is_wanted=is_wanted)
            if patch is None or await merge(self._api, self._path, patch):
                return
        raise Unreachable(f"host: Node {self._ref.name} changes too often")

    async def reboot(self, request: RebootRequest) -> Progress:
        self._awaited = None
        if request.how.method == SCRIPT:
            name = f"{self._ref.name}-script-job"
            path = f"/apis/batch/v1/namespaces/{named(self._ref.namespace)}/jobs"
            self._awaited = (path, f"metadata.name={name}", "")
            return await config_pods.run_script(self._api, request)
        if self._agent is None:
            raise NeedsOperator(
                f"nodeRebootMethod: {request.how.method} needs an agent on host {self._ref.name}, and it has none; use "
                "external or script"
            )
        return await self._agent.reboot(request)

    async def forget_reboot(self, request: RebootRequest) -> None:
        if self._agent is not None:
            await self._agent.forget_reboot(request)

    async def configure_network(self, request: NetworkRequest) -> Progress:
        return DONE if self._agent is None else await self._agent.configure_network(request)

    async def changed(self) -> None:
        if self._awaited is not None:
            path, fields, version = self._awaited
            if not version:
                _, version = await read_list(self._api, path, {"fieldSelector": fields})
            await until_event(self._api, path, fields, version)
        elif self._agent is not None:
            await self._agent.changed()
        else:
            await asyncio.get_running_loop().create_future()

    @property
    def _path(self) -> str:
        return f"{NODES}/{named(self._ref.name)}"

    async def _claim(self, claim: NodeClaim) -> dict[str, Any] | None:
        """The node with the claim; None if it does not exist."""
        for _ in range(CLAIMS):
            node = await read(self._api, self._path)
            patch = None if node is None else patch_to_claim(node, claim)
            if patch is None:
                return node
            await merge(self._api, self._path, patch)
        return await read(self._api, self._path)

    async def _drain(self) -> Progress:
        found = await pods_to_evict(self._api, self._ref.name)
        self._awaited = (PODS, node_field(self._ref.name), found.version)
        return await evict(self._api, found)

    async def _is_maintained(self) -> bool:
        if self._has_maintenances is None:
            self._has_maintenances = await node_maintenances.is_served(self._api)
        return self._has_maintenances

"""A host that is no node of a source cluster. Its agent reboots it and configures its network, if it has one; its
operator does everything else."""

from __future__ import annotations

import asyncio

from drivers.backends.bmc import NeedsOperator
from drivers.hosts.agent_host import AgentHost
from drivers.hosts.host import DONE, NetworkRequest, Progress, RebootRequest
from projections.kubernetes.node_claims import NodeClaim
from projections.resources.host_effects import HOLD, NO_EFFECT
from projections.resources.step_facts import HOST_AGENT, HostRef


class UnmanagedHost:
    """The host, of which only the name is known, and its agent."""

    def __init__(self, host: HostRef, agent: AgentHost | None = None) -> None:
        self._host = host
        self._agent = agent

    async def apply(self, claim: NodeClaim) -> Progress:
        if claim.effect.kind in (HOLD, NO_EFFECT):
            return DONE
        raise NeedsOperator(
            f"nodeEffect: {claim.effect.kind} needs a node of a Kubernetes cluster, and {self._host.name} is none; use "
            "hold or noEffect"
        )

    async def lift(self, claim: NodeClaim) -> Progress:
        return DONE

    async def holder(self, claim: NodeClaim) -> str:
        return ""

    async def keep_taint(self, *, is_wanted: bool) -> None:
        return None

    async def reboot(self, request: RebootRequest) -> Progress:
        if self._agent is not None and request.how.method == HOST_AGENT:
            return await self._agent.reboot(request)
        raise NeedsOperator(
            f"nodeRebootMethod: {request.how.method} cannot reach host {self._host.name}; use external, or none for a "
            "DPU without a host"
        )

    async def forget_reboot(self, request: RebootRequest) -> None:
        if self._agent is not None:
            await self._agent.forget_reboot(request)

    async def configure_network(self, request: NetworkRequest) -> Progress:
        return DONE if self._agent is None else await self._agent.configure_network(request)

    async def changed(self) -> None:
        if self._agent is not None:
            await self._agent.changed()
        else:
            await asyncio.get_running_loop().create_future()

"""A host that the plane cannot reach, as it is no node of a source cluster: its operator does what concerns it."""

from __future__ import annotations

import asyncio

from drivers.backends.bmc import NeedsOperator
from drivers.hosts.host import DONE, Progress, RebootRequest
from projections.kubernetes.node_claims import NodeClaim
from projections.resources.host_effects import HOLD, NO_EFFECT
from projections.resources.step_facts import HostRef


class UnmanagedHost:
    """The host, of which only the name is known."""

    def __init__(self, host: HostRef) -> None:
        self._host = host

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
        raise NeedsOperator(
            f"nodeRebootMethod: {request.how.method} cannot reach host {self._host.name}; use external, or none for a "
            "DPU without a host"
        )

    async def changed(self) -> None:
        await asyncio.get_running_loop().create_future()

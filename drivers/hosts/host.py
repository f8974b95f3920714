"""The protocol of a host, as the steps of its DPUs use it.

Each call makes one bounded move towards what is wanted, and may be repeated by any process at any time: it reads the
host, and does only what is missing. So an attempt that follows another one continues where that one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from projections.kubernetes.node_claims import NodeClaim
from projections.resources.step_facts import HostReboot, HostRef


class Progress(NamedTuple):
    """Whether the wanted state is reached, and otherwise what it waits for, in one sentence."""

    is_done: bool
    message: str = ""
    percent: int = 0


DONE = Progress(True)


class RebootRequest(NamedTuple):
    """One reboot of a host for all DPUs that need it now.

    An id is the name of a DPU with the offset at which it began to need a reboot: it has another id for the next one.
    `own` is the id of the DPU whose step asks, `ids` are those of all. `zone` is the zone of the DPUs. `method` is the
    most thorough reboot that one of them needs, `methods` has that of each DPU.
    """

    host: HostRef
    how: HostReboot
    own: str
    ids: frozenset[str]
    method: str
    methods: Mapping[str, str]
    zone: str = ""


class NetworkRequest(NamedTuple):
    """The network of a host for one DPU: its VFs, and the bridge that the DPU manages its host through. `own` is the id
    of the DPU, as in a RebootRequest."""

    host: HostRef
    own: str
    zone: str
    serial: str
    mtu: int


class DeviceRequest(NamedTuple):
    """Work on a DPU that its host does: an installation or a restart. `own` is the id of the DPU, as in a
    RebootRequest.

    `url` is where the agent finds the image, without a secret.
    """

    action: str
    own: str
    zone: str
    pci_address: str
    url: str


class Host(Protocol):
    """One host. Any call may raise Unreachable, TaskFailed or NeedsOperator."""

    async def apply(self, claim: NodeClaim) -> Progress:
        """Move the host towards the effect of a maintenance. It is done when the effect is complete: for a drain, when
        the workload has left."""
        ...

    async def lift(self, claim: NodeClaim) -> Progress:
        """Put the host back as it was before the maintenance. A claim of a later maintenance stays."""
        ...

    async def holder(self, claim: NodeClaim) -> str:
        """The uid of the maintenance that has the effect of this claim on the host; empty if none has it."""
        ...

    async def keep_taint(self, *, is_wanted: bool) -> None:
        """Set or remove the taint that keeps new workload away until the DPUs of the host are ready."""
        ...

    async def reboot(self, request: RebootRequest) -> Progress:
        """Reboot the host, by its agent or its script. It is done when a reboot for the asking DPU has ended."""
        ...

    async def forget_reboot(self, request: RebootRequest) -> None:
        """Take back a reboot that was asked for and has not begun, as the host is no longer rebooted by its agent."""
        ...

    async def configure_network(self, request: NetworkRequest) -> Progress:
        """Configure the network of the host for a DPU. It is done at once on a host that has no agent."""
        ...

    async def changed(self) -> None:
        """Return when the host may have changed. The caller has a deadline."""
        ...


Hosts: TypeAlias = Callable[[HostRef, str], Host | None]
"""The host of a DPU whose BMC has this address; None if the device stands for its host."""

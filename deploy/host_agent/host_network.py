"""How the network of a host is to be, with the names and numbers of DPF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BRIDGE = "br-dpu"
"""The name of the bridge in DPF."""
VFS = 16
"""The number of VFs in DPF unless its setting NUM_OF_VFS says otherwise."""


class HostNetwork(NamedTuple):
    """The bridge of a host, its addresses as ADDRESS/LENGTH, and the number of VFs of each DPU."""

    bridge: str = BRIDGE
    addresses: Sequence[str] = ()
    vfs: int = VFS

"""Configure the network of the host that this runs on, as the agent of a host does for a task.

    python -m tests.support.configured_host SYSFS PCI_ADDRESS VFS ADDRESSES MTU APPEARS_S [DIES]

With DIES, the process ends as by SIGKILL before its nth change of an interface or an address; before the first one, the
VFs are made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from deploy.host_agent import network
from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.host_network import HostNetwork
from schemas.api import dpuplane_pb2 as pb


async def _progress(percent: int, message: str, *, is_required: bool = False) -> bool:
    await asyncio.sleep(0)
    return True


def _die_before(change: int) -> None:
    left = [change]

    class Dying(network.IPRoute):  # type: ignore[misc,name-defined]
        def __getattribute__(self, name: str) -> Any:
            if name in ("link", "addr"):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> Any:
            return super().__getattr__(name)

    network.IPRoute = Dying  # type: ignore[attr-defined]


def main() -> None:
    sysfs, pci_address, vfs, addresses, mtu, appears_s, *dies = sys.argv[1:]
    if dies:
        _die_before(int(dies[0]))
    wanted = HostNetwork(addresses=addresses.split(",") if addresses else (), vfs=int(vfs))
    action = network.NetworkAction(Path(sysfs), wanted, appears_s=float(appears_s))
    try:
        asyncio.run(action.run(pb.HostTask(id="task", pci_address=pci_address, mtu=int(mtu)), _progress))
    except ActionFailed as error:
        sys.exit(f"failed: {error}")


if __name__ == "__main__":
    main()

"""The bridge of a guest as the network of a DPU: it holds one network document, and says what it has of it.

    python -m tests.support.guest.networked_bridge FOLDER BRIDGE DOCUMENT

FOLDER has the sockets of Open vSwitch. Each line of the output has the interfaces that have no port yet, and is printed
when they change.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

from deploy.composition.device_backends import Bridge
from drivers.backends.device import DeviceFailed
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from projections.resources.network_documents.document import digest_of
from tests.support.openvswitch import LAYOUT

LOOK_S = 0.2


async def _hold(device: OpenVSwitchNetwork, document: str) -> None:
    while device.fault:
        await asyncio.sleep(LOOK_S)
    digest, shown = bytes.fromhex(digest_of(document)), None
    await device.program(document.encode(), digest)
    while True:
        try:
            found = await device.read_back()
        except DeviceFailed as error:
            print(f"read again: {error}", file=sys.stderr, flush=True)
        else:
            if found.digest == digest and found.unresolved != shown:
                shown = found.unresolved
                print(json.dumps(shown), flush=True)
        await asyncio.sleep(LOOK_S)


async def main() -> None:
    folder, bridge, document = sys.argv[1:]
    device = OpenVSwitchNetwork(Bridge(bridge, Path(folder), LAYOUT).network, rng=random.Random(1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(device.run())
        tasks.create_task(_hold(device, document))


if __name__ == "__main__":
    asyncio.run(main())

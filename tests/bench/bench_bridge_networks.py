"""A network document in a real Open vSwitch: against `ovs-vsctl` and `ovs-ofctl --bundle` with the same content,
a change of one chain, and the read-back of a heartbeat.

The datapath is emulated, so that the figures are those of the database and the OpenFlow tables.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.host.openvswitch import Switch
from drivers.backends.device import NetworkDevice
from projections.resources.network_documents.document import Document, encoded
from tests.bench.figures import Figure
from tests.contract.network_device import chain, physical
from tests.support.openvswitch import bridge_network, switch_folder

INTERFACES = 100
ROUNDS = 5


def figures() -> list[Figure]:
    with switch_folder() as switch:
        return asyncio.run(_figures(switch))


async def _figures(switch: Switch) -> list[Figure]:
    whole, changes, reads, peers = [], [], [], []
    for number in range(ROUNDS):
        switch.add_bridge(bridge := f"b{number}", ports=0)
        document, other = content(bridge, 0), content(bridge, 1)
        async with bridge_network(switch, bridge) as device:
            whole.append(await _program_ms(device, document))
            changes.append(await _program_ms(device, other))
            began = time.perf_counter()
            assert (await device.read_back()).digest == bytes.fromhex(encoded(other).digest)
            reads.append((time.perf_counter() - began) * 1e3)
        flows = switch.flows(bridge)
        switch.vsctl("del-br", bridge)
        peers.append(_peers_ms(switch, document, flows))
    name = f"a document of {INTERFACES} interfaces in {INTERFACES // 2} chains to one bridge"
    return [
        Figure(name, min(whole), "ms", min(peers), "ovs-vsctl and ovs-ofctl", better="lower"),
        Figure("one of its chains changed", min(changes), "ms"),
        Figure("its read-back, with ports and flows", min(reads), "ms"),
    ]


def content(bridge: str, changed: int) -> Document:
    """Chains of two ports each; the first one has `changed` ports more."""
    ports = [physical(f"{bridge}-{number}") for number in range(INTERFACES)]
    pairs = zip(ports[::2], ports[1::2], strict=True)
    chains = [chain(f"c{number}", *pair) for number, pair in enumerate(pairs)]
    chains[0] = chain("c0", *ports[: 2 + changed])
    return Document(interfaces=tuple(ports), switches=tuple(chains))


async def _program_ms(device: NetworkDevice, document: Document) -> float:
    found = encoded(document)
    began = time.perf_counter()
    assert not (await device.program(found.text.encode(), bytes.fromhex(found.digest))).unresolved
    return (time.perf_counter() - began) * 1e3


def _peers_ms(switch: Switch, document: Document, flows: list[str]) -> float:
    """Milliseconds that the tools of Open vSwitch take for the same ports and flows."""
    switch.add_bridge("peer", ports=0)
    words: list[str] = []
    for each in document.interfaces:
        words += ["--", "add-port", "peer", each.port, "--", "set", "interface", each.port, f"mtu_request={each.mtu}"]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "flows"
        file.write_text("\n".join(flows))
        began = time.perf_counter()
        switch.vsctl(*words)
        switch.ofctl("add-flows", "peer", str(file), "--bundle")
        elapsed = (time.perf_counter() - began) * 1e3
    switch.vsctl("del-br", "peer")
    return elapsed

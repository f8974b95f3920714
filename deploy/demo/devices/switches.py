"""The switches of the device demo: a bridge for each DPU in one Open vSwitch, and a wire through one of them.

Only root may use network interfaces. Without root, all ports are emulated; the switch then evaluates packets, but none
is sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from deploy.demo.devices.manifests import FIREWALL, ROUTER, DemoDpu, pod_interface
from deploy.host.openvswitch import Switch, SwitchFailed, switch_folder

PACKETS = 20
PORT = 7_000
COMMAND_S = 60.0
RECEIVER = "10.255.0.1"
"""The address behind the firewall of the DPU with the wire."""


class Wire(NamedTuple):
    """A DPU whose two services are network namespaces, so that packets go through its bridge."""

    dpu: DemoDpu
    sender: str
    receiver: str


class DpuSwitches:
    """The bridges. `wire` is None without root."""

    def __init__(self, switch: Switch, tag: str, dpus: Sequence[DemoDpu], wire: Wire | None) -> None:
        self.switch = switch
        self.dpus = dpus
        self.wire = wire
        self._tag = tag

    def bridge(self, dpu: DemoDpu) -> str:
        return f"d{self._tag}{dpu.number:03}"

    def port(self, dpu: DemoDpu, service: str) -> str:
        return f"{self.bridge(dpu)}{service[0]}"

    def add(self, dpu: DemoDpu) -> None:
        """Add the bridge of a DPU, with the ports of its two services, as its system and its CNI plugin would."""
        self.switch.add_bridge(bridge := self.bridge(dpu), ports=0)
        words: list[str] = []
        for number, service in enumerate((ROUTER, FIREWALL), 1):
            port = self.port(dpu, service)
            kind = [] if self.wire is not None and self.wire.dpu == dpu else ["type=dummy"]
            ids = [f"external_ids:{key}={value}" for key, value in pod_interface(service, dpu).items()]
            words += ["--", "add-port", bridge, port, "--", "set", "interface", port, *kind]
            words += [f"ofport_request={number}", *ids]
        self.switch.vsctl(*words[1:])

    def lose_flows(self, dpu: DemoDpu) -> None:
        """What an installation does to the bridge of a DPU."""
        self.switch.ofctl("del-flows", self.bridge(dpu))

    def lets_pass(self, dpu: DemoDpu, source: str) -> bool:
        """Whether the bridge of a DPU sends a packet from the router to the firewall."""
        packet = f"in_port={self.port(dpu, ROUTER)},ip,nw_src={source},nw_dst={RECEIVER},nw_ttl=64"
        return self.port(dpu, FIREWALL) in self.switch.outputs(self.bridge(dpu), packet)

    def send(self, sources: Sequence[str]) -> dict[str, int]:
        """Send packets from these addresses through the wire. Returns how many of each arrived."""
        assert self.wire is not None, "packets need root"
        for source in sources:
            _ip("-n", self.wire.sender, "address", "add", f"{source}/8", "dev", "eth0")
        receiving = _probe(self.wire.receiver, "receive", RECEIVER, str(PORT))
        assert receiving.stdout is not None and receiving.stdin is not None
        receiving.stdout.readline()  # it listens
        sending = _probe(self.wire.sender, "send", RECEIVER, str(PORT), str(PACKETS), *sources)
        sending.communicate(timeout=COMMAND_S)
        shown, _ = receiving.communicate("end\n", timeout=COMMAND_S)
        arrived: dict[str, int] = json.loads(shown)
        return {source: arrived.get(source, 0) for source in sources}


@contextmanager
def dpu_switches(dpus: Sequence[DemoDpu], tag: str, *, has_packets: bool | None = None) -> Iterator[DpuSwitches]:
    """The bridges of these DPUs. The first one has the wire, if there may be packets. Raises SwitchFailed."""
    if has_packets is None:
        has_packets = os.geteuid() == 0
    with ExitStack() as stack:
        switch = stack.enter_context(switch_folder(has_packets=has_packets))
        wire = Wire(dpus[0], f"{tag}-router", f"{tag}-firewall") if has_packets else None
        found = DpuSwitches(switch, tag, dpus, wire)
        if wire is not None:
            for namespace, service in ((wire.sender, ROUTER), (wire.receiver, FIREWALL)):
                stack.enter_context(_namespace(namespace, found.port(wire.dpu, service)))
            _ip("-n", wire.receiver, "address", "add", f"{RECEIVER}/8", "dev", "eth0")
        for dpu in dpus:
            found.add(dpu)
        yield found


@contextmanager
def _namespace(name: str, port: str) -> Iterator[None]:
    """A network namespace whose interface eth0 is wired to a port of a bridge."""
    _ip("netns", "add", name)
    try:
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", port, "up")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    ended = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=COMMAND_S)
    if ended.returncode:
        raise SwitchFailed(f"ip {' '.join(words)}: {ended.stderr.strip()}")


def _probe(namespace: str, *words: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "deploy.demo.devices.packets", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

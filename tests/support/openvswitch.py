"""A real Open vSwitch of a test: its own daemons, database and sockets in a folder, with bridges whose datapath is
emulated (`dummy`). Verdicts are those of `ofproto/trace`, the switch's own evaluation of a packet.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from deploy.composition.device_backends import Bridge
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.openflow import messages as openflow
from drivers.openflow.rule_flows import FlowLayout
from tests.support.requirements import missing_requirement

PROGRAMS = ("ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_S = 20.0
LAYOUT = FlowLayout(20, openflow.goto_table(30), 1_000, 30, openflow.apply_actions(openflow.output(openflow.NORMAL)))
"""That of an agent without options."""


class Switch:
    """The daemons of one Open vSwitch."""

    def __init__(self, folder: Path, *, has_packets: bool = False) -> None:
        self.folder = folder
        self._datapath = "netdev" if has_packets else "dummy"
        self._database = f"unix:{folder}/db.sock"
        self._environment = os.environ | {"OVS_RUNDIR": str(folder), "OVS_LOGDIR": str(folder)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        if not (self.folder / "conf.db").exists():
            self._run("ovsdb-tool", "create", str(self.folder / "conf.db"), str(SCHEMA))
        self.start_daemon("ovsdb-server")
        self._run("ovs-vsctl", f"--db={self._database}", "--no-wait", "init")
        self.start_daemon("ovs-vswitchd")

    def start_daemon(self, name: str) -> None:
        if name == "ovsdb-server":
            self._start(name, str(self.folder / "conf.db"), f"--remote=p{self._database}")
        else:
            emulated = ["--enable-dummy=override"] if self._datapath == "dummy" else []
            self._start(name, self._database, *emulated, "--disable-system")

    def kill(self, name: str) -> None:
        """Kill a daemon, as a fault would."""
        child = self._running.pop(name)
        child.send_signal(signal.SIGKILL)
        child.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def vsctl(self, *arguments: str) -> str:
        return self._run("ovs-vsctl", f"--db={self._database}", "--timeout=20", *arguments)

    def add_bridge(self, name: str, ports: int = 2) -> Path:
        """Add a bridge with ports 1 to `ports`; returns its OpenFlow socket."""
        words = ["add-br", name, "--", "set", "bridge", name, f"datapath_type={self._datapath}", "fail-mode=secure"]
        words += ["protocols=OpenFlow10,OpenFlow14"]
        for number in range(1, ports + 1):
            port = f"{name}-{number}"
            words += ["--", "add-port", name, port, "--", "set", "interface", port, "type=dummy"]
            words += [f"ofport_request={number}"]
        self.vsctl(*words)
        return self.folder / f"{name}.mgmt"

    def ofctl(self, command: str, bridge: str, *arguments: str, stdin: str | None = None) -> str:
        return self._run("ovs-ofctl", "-O", "OpenFlow14", command, str(self.socket(bridge)), *arguments, stdin=stdin)

    def socket(self, bridge: str) -> Path:
        return self.folder / f"{bridge}.mgmt"

    def flows(self, bridge: str) -> list[str]:
        """The flows of a bridge in the notation of ovs-ofctl, without statistics, in order."""
        shown = self.ofctl("dump-flows", bridge, "--no-stats")
        return sorted(line.strip() for line in shown.splitlines() if "actions=" in line)

    def is_forwarded(self, bridge: str, packet: str) -> bool:
        """Whether the switch forwards a packet, in the notation of ovs-ofctl."""
        return self.trace(bridge, packet) != "drop"

    def trace(self, bridge: str, packet: str) -> str:
        """What the switch does with a packet, as the actions of its datapath."""
        shown = self._appctl("ofproto/trace", bridge, packet)
        found = re.search(r"^Datapath actions: (.*)$", shown, re.MULTILINE)
        assert found is not None, shown
        return found[1]

    def outputs(self, bridge: str, packet: str) -> set[str]:
        """The names of the ports to which the switch outputs a packet."""
        numbers = {
            found[2]: found[1]
            for found in re.finditer(r"^\s+(\S+) \d+/(\d+):", self._appctl("dpif/show"), re.MULTILINE)
        }
        return {numbers[each] for each in self.trace(bridge, packet).split(",") if each.isdecimal()}

    def _appctl(self, *words: str) -> str:
        return self._run("ovs-appctl", "-t", str(self._control("ovs-vswitchd")), *words)

    def _control(self, name: str) -> Path:
        return self.folder / f"{name}.ctl"

    def _start(self, name: str, *arguments: str) -> None:
        control = self._control(name)
        control.unlink(missing_ok=True)
        words = [name, *arguments, f"--unixctl={control}", f"--pidfile={self.folder / name}.pid"]
        with (self.folder / f"{name}.txt").open("ab") as output:
            child = subprocess.Popen(words, env=self._environment, stdout=output, stderr=output)
        self._running[name] = child
        ends_at = time.monotonic() + START_S
        while subprocess.run(["ovs-appctl", "-t", control, "version"], capture_output=True, check=False).returncode:
            assert child.poll() is None, f"{name}: {(self.folder / f'{name}.txt').read_text()}"
            assert time.monotonic() < ends_at, f"{name} did not start"
            time.sleep(0.02)

    def _run(self, *words: str, stdin: str | None = None) -> str:
        ended = subprocess.run(
            words, env=self._environment, input=stdin, capture_output=True, text=True, check=False, timeout=60.0
        )
        assert not ended.returncode, f"{words}: {ended.stderr}"
        return ended.stdout


@contextmanager
def open_vswitch(folder: Path, *, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in this folder, whose path is short enough for sockets. With `has_packets`, it forwards
    the packets of network interfaces; its ports are to be added."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        missing_requirement(f"{missing[0]} not found: apt-get install openvswitch-switch")
    switch = Switch(folder, has_packets=has_packets)
    try:
        switch.start()
        yield switch
    finally:
        switch.stop()


@contextmanager
def switch_folder(*, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ovs-"))
    try:
        with open_vswitch(folder, has_packets=has_packets) as switch:
            yield switch
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def bridge_device(switch: Switch, bridge: str, layout: FlowLayout = LAYOUT) -> AsyncIterator[OpenVSwitch]:
    """A bridge as a device, connected."""
    device = OpenVSwitch(switch.socket(bridge), layout, rng=random.Random(1))
    running = asyncio.create_task(device.run())
    try:
        async with asyncio.timeout(START_S):
            while device.fault:
                await asyncio.sleep(0.01)
        yield device
        assert not running.done(), "nothing ends the session"
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def bridge_network(switch: Switch, bridge: str) -> AsyncIterator[OpenVSwitchNetwork]:
    """A bridge as the network of a device, connected."""
    device = OpenVSwitchNetwork(Bridge(bridge, switch.folder, LAYOUT).network, rng=random.Random(1))
    running = asyncio.create_task(device.run())
    try:
        async with asyncio.timeout(START_S):
            while device.fault:
                await asyncio.sleep(0.01)
        yield device
        assert not running.done(), "nothing ends the sessions"
    finally:
        running.cancel()
        await asyncio.wait({running})

"""An Open vSwitch of this process: its own daemons, database and sockets in a folder, beside one of the system.

Its bridges have the datapath `netdev`, which forwards packets of network interfaces in user space and needs root; or
`dummy`, which only evaluates packets. `ofproto/trace` is the switch's own evaluation of a packet, in both.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventstore.errors import FatalError

PROGRAMS = ("ovsdb-server", "ovs-vswitchd", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_S = 60.0
COMMAND_S = 60.0


class SwitchFailed(FatalError):
    """A program of Open vSwitch failed."""


def missing_program() -> str:
    """Why Open vSwitch cannot be used here, in one sentence; empty if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or not SCHEMA.exists():
        return f"{missing[0] if missing else SCHEMA} not found: apt-get install openvswitch-switch"
    return ""


class Switch:
    """The daemons of one Open vSwitch."""

    def __init__(self, folder: Path, *, has_packets: bool = False) -> None:
        self.folder = folder
        self.has_packets = has_packets
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
            # A bridge of packets may also have emulated ports. An emulated bridge emulates all of its ports.
            emulation = "--enable-dummy" if self.has_packets else "--enable-dummy=override"
            self._start(name, self._database, emulation, "--disable-system")

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
        """Add a bridge with emulated ports 1 to `ports`; returns its OpenFlow socket."""
        words = ["add-br", name, "--", "set", "bridge", name, f"datapath_type={self._datapath}", "fail-mode=secure"]
        words += ["protocols=OpenFlow10,OpenFlow14"]
        for number in range(1, ports + 1):
            port = f"{name}-{number}"
            words += ["--", "add-port", name, port, "--", "set", "interface", port, "type=dummy"]
            words += [f"ofport_request={number}"]
        self.vsctl(*words)
        if not self.socket(name).exists():  # ovs-vsctl succeeds all the same
            raise SwitchFailed(f"Open vSwitch could not make the bridge {name}: {self._last_error()}")
        return self.socket(name)

    def _last_error(self) -> str:
        if self.has_packets and "ovs-netdev: creating tap device failed" in self._output("ovs-vswitchd"):
            return "another Open vSwitch of this machine forwards packets in user space, and only one can"
        errors = re.findall(r"\|ERR\|(.*)", self._output("ovs-vswitchd"))
        return errors[-1] if errors else "its log has no error"

    def _output(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

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
        if found is None:
            raise SwitchFailed(f"ofproto/trace of bridge {bridge} printed no actions: {shown}")
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
            if child.poll() is not None:
                raise SwitchFailed(f"{name} ended: {self._output(name)}")
            if time.monotonic() > ends_at:
                raise SwitchFailed(f"{name} did not start within {START_S:.0f} s")
            time.sleep(0.02)

    def _run(self, *words: str, stdin: str | None = None) -> str:
        ended = subprocess.run(
            words, env=self._environment, input=stdin, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )
        if ended.returncode:
            raise SwitchFailed(f"{' '.join(words[:4])}: {ended.stderr.strip()}")
        return ended.stdout


@contextmanager
def open_vswitch(folder: Path, *, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in this folder, whose path is short enough for sockets. Raises SwitchFailed."""
    if missing := missing_program():
        raise SwitchFailed(missing)
    switch = Switch(folder, has_packets=has_packets)
    try:
        switch.start()
        yield switch
    finally:
        switch.stop()


@contextmanager
def switch_folder(*, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in a folder of its own, which is removed at the end. Raises SwitchFailed."""
    folder = Path(tempfile.mkdtemp(prefix="ovs-"))
    try:
        with open_vswitch(folder, has_packets=has_packets) as switch:
            yield switch
    finally:
        shutil.rmtree(folder, ignore_errors=True)

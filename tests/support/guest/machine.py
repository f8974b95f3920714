"""A guest in QEMU: Debian's kernel with a network card that has SR-IOV, and netdevsim.

QEMU emulates the processor: nested virtualization is rarely there. A boot takes about 15 s on an idle core.

The card is QEMU's model of an Intel 82576: seven VFs, made by the PCI code and the igb driver of the kernel, each with
an interface of the igbvf driver. This machine is 10.0.2.2 in the guest.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.guest import executor
from tests.support.guest.initramfs import write_initramfs
from tests.support.guest.packages import GuestParts, guest_parts

TREE = Path(__file__).parents[3]
PLANE = "10.0.2.2"
"""The address of this machine in the guest."""
MEMORY_MIB = 1_024
BOOT_S = 900.0
"""Time for a boot, with the work that comes before it where a test waits for a reboot."""
COMMAND_S = 300
ANSWER_S = 120.0
CONSOLE_SHOWN = 4_000
"""Characters of the console's end in a message."""


class Guest:
    """A running guest. `boots` has the id of each boot since it was started."""

    def __init__(self, link: socket.socket, console: Path) -> None:
        self.boots: list[str] = []
        self._link = link
        self._console = console
        self._read = b""

    def run(self, *command: str, timeout_s: int = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self._asked(command, {"command": command, "timeout_s": timeout_s})

    def call(self, module: str, *arguments: str, timeout_s: int = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """Run a module of the tree as a program of its own, without the time that its imports take."""
        return self._asked((module, *arguments), {"module": module, "arguments": arguments, "timeout_s": timeout_s})

    def _asked(self, words: Sequence[str], request: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        self._link.settimeout(ANSWER_S)
        self._link.sendall(json.dumps(request).encode() + b"\n")
        answer = self._line(request["timeout_s"] + ANSWER_S)
        return subprocess.CompletedProcess(words, answer["status"], answer["stdout"], answer["stderr"])

    def must(self, *command: str, timeout_s: int = COMMAND_S) -> str:
        """Run a command that has to succeed. Returns its output."""
        ran = self.run(*command, timeout_s=timeout_s)
        assert ran.returncode == 0, f"{command}: status {ran.returncode}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def read(self, path: str) -> str:
        return self.must("cat", path).strip()

    def write(self, path: str, text: str) -> subprocess.CompletedProcess[str]:
        """Write to a file of the guest in one system call, as `echo` does."""
        return self.run("sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text)

    def until_booted(self) -> str:
        """Wait for the next boot. Returns its id."""
        self.boots.append(self._line(BOOT_S)["boot"])
        return self.boots[-1]

    def _line(self, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._read:
            self._link.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                part = self._link.recv(65_536)
            except TimeoutError:
                part = b""
            if not part:
                console = self._console.read_text(errors="replace")[-CONSOLE_SHOWN:]
                raise AssertionError(f"the guest did not answer in {timeout_s:g} s, or ended: {console}")
            self._read += part
        line, self._read = self._read.split(b"\n", 1)
        return json.loads(line)


@contextmanager
def guest(folder: Path) -> Iterator[Guest]:
    """A guest that has booted, stopped at the end. `folder` gets its console and its files."""
    parts = guest_parts()
    command = (sys.executable, "-B", executor.__file__, str(TREE))
    write_initramfs(folder / "initramfs", parts.busybox, parts.modules, command)
    port, console = folder / "port", folder / "console"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(port))
        listening.listen(1)
        listening.settimeout(ANSWER_S)
        with (folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                _qemu(parts, folder, port, console), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            link, _ = listening.accept()
            with link:
                found = Guest(link, console)
                found.until_booted()
                yield found
        finally:
            process.kill()
            process.wait(ANSWER_S)


def _qemu(parts: GuestParts, folder: Path, port: Path, console: Path) -> list[str]:
    options = {
        "machine": "q35",
        "accel": "tcg,thread=multi",
        "cpu": "max",
        "smp": "2",
        "m": str(MEMORY_MIB),
        "display": "none",
        "kernel": str(parts.kernel),
        "initrd": str(folder / "initramfs"),
        "append": "console=ttyS0 quiet loglevel=4 mitigations=off pci=realloc",
        "serial": f"file:{console}",
        "fsdev": "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
        "netdev": "user,id=plane",
        "chardev": f"socket,id=port,path={port}",
    }
    devices = (
        "virtio-9p-pci,fsdev=root,mount_tag=root",
        "virtio-net-pci,netdev=plane,romfile=,mac=52:54:00:00:00:01",
        "virtio-serial-pci",
        f"virtserialport,chardev=port,name={executor.PORT}",
        "pcie-root-port,id=slot1",
        "igb,bus=slot1,romfile=,mac=52:54:00:00:00:02",
    )
    words = [word for name, value in options.items() for word in (f"-{name}", value)]
    return [*parts.qemu, "-nodefaults", "-no-user-config", *words, *(w for each in devices for w in ("-device", each))]

"""A sandbox for a run, with its own network, mounts and process ids. The kernel removes the sandbox with its first
process, so no firewall rule, file or process outlives the run. It needs no root where the kernel allows user
namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

INSIDE = "--inside"
_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

_PROBE = "nft add table inet probe && echo 1 > /proc/sys/net/ipv4/ip_forward && mount -t tmpfs tmpfs /mnt"


def namespace_prefix() -> list[str]:
    """The command prefix that runs a command in separate namespaces; without root, as root of a user namespace."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_NAMESPACES]


def unsupported_reason() -> str:
    """Why this machine cannot run a sandbox; empty if it can."""
    if missing := [name for name in ("unshare", "nsenter", "ip", "nft") if shutil.which(name) is None]:
        return f"needs {', '.join(missing)} (of Debian's util-linux, iproute2, nftables)"
    probe = subprocess.run([*namespace_prefix(), "sh", "-c", _PROBE], capture_output=True, text=True, check=False)
    return f"needs network namespaces: {probe.stderr.strip()[:200]}" if probe.returncode else ""


def memory_folder() -> Path:
    """A folder in memory for all files of a run. Call it only inside the sandbox, with which the folder is removed."""
    folder = Path("/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "dpuplane", str(folder)], check=True)
    return folder


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module of the tests in a sandbox."""
    return [*namespace_prefix(), sys.executable, "-m", module, INSIDE, *arguments]


def run(module: str, arguments: Sequence[str]) -> int:
    """Run the module in a sandbox; returns its exit status. SIGTERM ends all processes at once. Ctrl-C reaches the
    module itself, which prints its summary.
    """
    with subprocess.Popen(command(module, arguments)) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.kill())
        while True:
            with suppress(KeyboardInterrupt):
                return child.wait()

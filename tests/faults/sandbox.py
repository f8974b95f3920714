"""A place of its own for a run: its own network, mounts and process ids, which the kernel takes back with its first
process. So nothing that a run cuts, fills or starts is ever left behind, however it ends, and no root is needed where
the kernel lets users have namespaces of their own.
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


def apart() -> list[str]:
    """What a command begins with to run in namespaces of its own; without root, as root of a world of its own."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_NAMESPACES]


def why_not() -> str:
    """Why there can be no such place on this machine; empty if there can."""
    if missing := [name for name in ("unshare", "nsenter", "ip", "nft") if shutil.which(name) is None]:
        return f"needs {', '.join(missing)} (of Debian's util-linux, iproute2, nftables)"
    probe = subprocess.run([*apart(), "sh", "-c", _PROBE], capture_output=True, text=True, check=False)
    return f"needs network namespaces: {probe.stderr.strip()[:200]}" if probe.returncode else ""


def in_memory() -> Path:
    """A folder for all that a run writes. Only from inside: it is gone with the place."""
    folder = Path("/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "dpuplane", str(folder)], check=True)
    return folder


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module of ours in such a place."""
    return [*apart(), sys.executable, "-m", module, INSIDE, *arguments]


def run(module: str, arguments: Sequence[str]) -> int:
    """Run it there, to its exit status. SIGTERM ends all of it at once; a Ctrl-C it gets itself, and sums up."""
    with subprocess.Popen(command(module, arguments)) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.kill())
        while True:
            with suppress(KeyboardInterrupt):
                return child.wait()

"""Hosts as network namespaces, each with a cable to this machine, where their planes listen."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.planes import DPUPLANE
from tests.support.requirements import missing_requirement

_numbers = itertools.count(1)


class HostNamespace(NamedTuple):
    """A network namespace. `plane` is the address of this machine at the other end of the cable."""

    name: str
    plane: str

    @property
    def program(self) -> tuple[str, ...]:
        """The command line inside of the namespace. `ip` becomes the program: signals reach it."""
        return ("ip", "netns", "exec", self.name, DPUPLANE)

    def run(self, *command: str) -> str:
        """Run a command inside of it. Returns its output."""
        return _run("ip", "netns", "exec", self.name, *command)


@contextmanager
def host_namespace() -> Iterator[HostNamespace]:
    """A namespace whose addresses follow from the id of this process: several runs share the machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        missing_requirement("network namespaces need root and iproute2")
    number = os.getpid() % (1 << 14)
    own = f"{os.getpid()}-{next(_numbers)}"
    name, cable = f"dpuplane-{own}", f"dp{own}"
    network = f"198.18.{number >> 6}.{(number & 63) * 4}"
    prefix, last = network.rpartition(".")[0], int(network.rpartition(".")[2])
    found = HostNamespace(name, f"{prefix}.{last + 1}")
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        missing_requirement(f"network namespaces cannot be made here: {error.stderr}")
    try:
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "address", "add", f"{found.plane}/30", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        found.run("ip", "address", "add", f"{prefix}.{last + 2}/30", "dev", "eth0")
        found.run("ip", "link", "set", "eth0", "up")
        yield found
    finally:
        # the kernel removes a namespace later, and what is in it
        subprocess.run(("ip", "link", "delete", cable), check=False, capture_output=True, timeout=60)
        _run("ip", "netns", "delete", name)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

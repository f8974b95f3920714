"""A network under the control of a run: every host (a broker, a process of the plane) has a namespace and an address.
All their traffic passes one router, where nftables drops, rejects or thins out packets.

Each rule counts the packets that it matches, so that a cut without effect is detected.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

HUB = "10.77.0.1"
"""The address of the router. Clients, proxies and devices share it."""


class LabHost(NamedTuple):
    """A host with a network of its own."""

    name: str
    address: str
    device: str
    holder: int
    """The id of the process that keeps the namespace open."""

    def enter(self, *command: str) -> list[str]:
        """The command line that runs this command on this host."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *command]


class Flow(NamedTuple):
    """Packets in one direction, by addresses and ports. An empty field matches every packet."""

    source: str = ""
    target: str = ""
    source_port: int = 0
    target_port: int = 0

    @property
    def match(self) -> str:
        parts = (
            f"ip saddr {self.source}" if self.source else "",
            f"ip daddr {self.target}" if self.target else "",
            f"tcp sport {self.source_port}" if self.source_port else "",
            f"tcp dport {self.target_port}" if self.target_port else "",
        )
        return " ".join(filter(None, parts))

    @property
    def back(self) -> Flow:
        """The opposite direction."""
        return Flow(self.target, self.source, self.target_port, self.source_port)


def both(*flows: Flow) -> list[Flow]:
    """Both directions."""
    return [each for flow in flows for each in (flow, flow.back)]


class Hits:
    """The number of packets that a rule matched."""

    packets = 0


class NetworkLab:
    """The router and its hosts."""

    def __init__(self) -> None:
        self._holders: list[asyncio.subprocess.Process] = []
        self._numbers = itertools.count(1)
        self._rules = itertools.count(1)

    @staticmethod
    @asynccontextmanager
    async def open() -> AsyncIterator[NetworkLab]:
        """Set up the network in the namespace of this process, which must not be the machine's own."""
        network_lab = NetworkLab()
        await run("ip", "link", "set", "lo", "up")
        await run("ip", "address", "add", f"{HUB}/32", "dev", "lo")
        await run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        try:
            yield network_lab
        finally:
            for holder in network_lab._holders:
                holder.kill()
                await holder.wait()

    async def lab_host(self, name: str) -> LabHost:
        """Add a host and link it to the router."""
        number = next(self._numbers)
        near, address, device = f"10.77.{number}.1", f"10.77.{number}.2", f"v{number}"
        pipe = asyncio.subprocess.PIPE
        holder = await asyncio.create_subprocess_exec(
            "unshare", "--net", "sh", "-c", "echo in; exec sleep infinity", stdout=pipe
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"in\n"
        lab_host = LabHost(name, address, device, holder.pid)
        await run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        await run("ip", "address", "add", f"{near}/30", "dev", device)
        await run("ip", "link", "set", device, "up")
        await run(*lab_host.enter("ip", "address", "add", f"{address}/30", "dev", "eth0"))
        await run(*lab_host.enter("ip", "link", "set", "eth0", "up"))
        await run(*lab_host.enter("ip", "link", "set", "lo", "up"))
        await run(*lab_host.enter("ip", "route", "add", "default", "via", near))
        return lab_host

    @asynccontextmanager
    async def rule(self, flows: Sequence[Flow], verdict: str = "drop", test: str = "") -> AsyncIterator[Hits]:
        """Apply a rule to these packets during the context; `test` narrows the match."""
        table, hits = f"rule{next(self._rules)}", Hits()
        chains = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0;\n"
            + "".join(f"{flow.match} {test} counter {verdict}\n" for flow in flows)
            + "}\n"
            for hook in ("input", "forward", "output")
        )
        await run("nft", "-f", "-", stdin=f"table inet {table} {{\n{chains}}}\n")
        try:
            yield hits
        finally:
            listed = json.loads(await run("nft", "-j", "list", "table", "inet", table))
            expressions = [part for item in listed["nftables"] for part in item.get("rule", {}).get("expr", ())]
            hits.packets = sum(part["counter"]["packets"] for part in expressions if "counter" in part)
            await run("nft", "delete", "table", "inet", table)

    @asynccontextmanager
    async def link_down(self, lab_host: LabHost) -> AsyncIterator[None]:
        """Take the host's link down during the context."""
        await run("ip", "link", "set", lab_host.device, "down")
        try:
            yield
        finally:
            await run("ip", "link", "set", lab_host.device, "up")


async def run(*command: str, stdin: str = "") -> str:
    """Run a command; returns its output. Raises RuntimeError with its error text if it fails."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    printed, complaint = await child.communicate(stdin.encode())
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)}: {complaint.decode().strip()}")
    return printed.decode()

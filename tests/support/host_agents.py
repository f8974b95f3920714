"""Agents of hosts as real processes beside a plane in this process, and the steps of DPUs that give them tasks."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from drivers.hosts.agent_host import AgentHost
from drivers.hosts.host import NetworkRequest, RebootRequest
from drivers.hosts.logged_objects import LoggedObjects
from drivers.hosts.task_box import TaskBox
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES
from projections.resources.host_tasks import host_object
from projections.resources.state import LOCAL
from projections.resources.step_facts import HOST_AGENT, HostReboot, HostRef
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas.events import DpuRegistered, Envelope, Event, LifecycleRequested, StepStarted, StepSucceeded
from tests.support.host_trees import HostTree
from tests.support.planes import Process, started
from tests.support.served import Served, now_ms, served

NAMESPACE = f"dpf-{os.getpid()}"
"""One of its own for each worker: agents of one host and namespace exclude each other on the whole machine."""
HOST, ZONE = "host-1", "z1"
PATIENCE_S = 120.0

REBOOTS = """
import os, pathlib, sys, time
tree, notes, go = map(pathlib.Path, sys.argv[1:4])
boot = tree / "sys/kernel/random/boot_id"
before = boot.read_text().strip()
with notes.open("a") as out:
    out.write(f"{before} {os.environ['DPUNODE_NAME']} {os.environ['DPUNODE_REBOOT_METHOD']}\\n")
while not go.exists() and boot.read_text().strip() == before:
    time.sleep(0.02)
partial = boot.with_name(f".{os.getpid()}")
partial.write_text(f"boot-{int(before[5:]) + 1}\\n")
if boot.read_text().strip() == before:  # a host that goes down ends every command of that boot
    partial.replace(boot)
"""
"""A command that notes the boot in which it runs, and puts the host into the next one as soon as it may."""


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.05)


class AgentPlane:
    """A plane, and a host with an agent."""

    def __init__(self, plane: Served, folder: Path, tree: HostTree) -> None:
        self.plane = plane
        self.tree = tree
        self.notes, self.go = folder / "notes", folder / "go"
        self.errors = folder / "errors"
        self._rng = random.Random(3)
        store = LoggedObjects(plane.replica, LOCAL, now_ms=now_ms, rng=self._rng)
        self.box = TaskBox(plane.replica, store, NAMESPACE, HOST)
        self.host = AgentHost(self.box, HOST)

    def agent(self, *more: str) -> AbstractAsyncContextManager[Process]:
        """A process of the agent, killed at the end."""
        script = self.errors.with_name("reboots.py")
        script.write_text(REBOOTS)
        command = f"{sys.executable} {script} {self.tree.proc} {self.notes} {self.go}"
        methods = ("PowerCycle", "SystemLevelReset", "SystemReboot")
        reboots = (text for method in methods for text in ("--reboot-command", f"{method}={command}"))
        of = ("--node", HOST, "--namespace", NAMESPACE, "--interval", "0.1")
        return started(
            "host-agent", "--server", self.plane.address, *of, *self.tree.options, *reboots, *more, stderr=self.errors
        )

    @property
    def commands(self) -> list[str]:
        """The boot, host and method of each reboot command that has begun."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @property
    def boot_id(self) -> str:
        return self.tree.boot_id

    def zones(self) -> ZonesState:
        found: ZonesState = self.plane.replica.state(self.plane.replica.partition_for(ZONES, ZONE))
        return found

    def dpu(self, name: str) -> Dpu:
        return self.zones().dpus.rows[name]

    async def step_until(self, name: str, phase: str, *, serial: str = "", address: str = "redfish://bmc:443") -> None:
        """Register a DPU, and bring it into a phase whose step is running."""
        await self._state(name, lambda e: DpuRegistered(e, ZONE, name, HOST, serial, address))
        await self.request(name, "provision", "image")
        while True:
            dpu = self.dpu(name)
            number, at = dpu.attempt + 1, dpu.phase
            await self._state(name, lambda e, at=at, n=number: StepStarted(e, ZONE, name, at, n, "test#1"))  # type: ignore[misc]
            if at == phase:
                return
            await self._state(name, lambda e, at=at, n=number: StepSucceeded(e, ZONE, name, at, n, {}))  # type: ignore[misc]

    async def end_until(self, name: str, phase: str) -> None:
        """End the running step of a DPU and those after it, until the DPU is in a phase."""
        while True:
            at, number = self.dpu(name).phase, self.dpu(name).attempt
            await self._state(name, lambda e, at=at, n=number: StepSucceeded(e, ZONE, name, at, n, {}))  # type: ignore[misc]
            at, number = self.dpu(name).phase, self.dpu(name).attempt + 1
            if at == phase:
                return
            await self._state(name, lambda e, at=at, n=number: StepStarted(e, ZONE, name, at, n, "test#1"))  # type: ignore[misc]

    async def request(self, name: str, request: str, image: str = "") -> None:
        """State a request of an operator for a DPU."""
        await self._state(name, lambda e: LifecycleRequested(e, ZONE, name, request, image))

    def reboot_request(self, *names: str, method: str = "PowerCycle") -> RebootRequest:
        """The request of the step of the first of these DPUs."""
        ids = [f"{name}@{self.dpu(name).since}" for name in names]
        ref = HostRef(host_object(NAMESPACE, HOST), NAMESPACE, is_external=False)
        how, methods = HostReboot(HOST_AGENT), dict.fromkeys(names, method)
        return RebootRequest(ref, how, ids[0], frozenset(ids), method, methods, ZONE)

    def network_request(self, name: str, *, mtu: int = 1_500) -> NetworkRequest:
        """The request of the step of a DPU."""
        ref, dpu = HostRef(host_object(NAMESPACE, HOST), NAMESPACE, is_external=False), self.dpu(name)
        return NetworkRequest(ref, f"{name}@{dpu.since}", ZONE, dpu.serial, mtu)

    async def until_reported(self) -> None:
        """Wait for the first report of the agent."""

        async def is_reported() -> bool:
            return await self.box.read() is not None

        await eventually(is_reported)

    async def _state(self, name: str, event: Callable[[Envelope], Event]) -> None:
        about = envelope(name, "test", uuid7(now_ms(), self._rng))
        partition = self.plane.replica.partition_for(ZONES, ZONE)
        answer = await self.plane.replica.submit(partition, ZONE.encode(), event(about), timeout_s=30.0)
        assert answer.outcome.code in ("done", "unchanged"), answer


@asynccontextmanager
async def agent_plane(folder: Path, tree: HostTree) -> AsyncIterator[AgentPlane]:
    async with served(folder / "plane") as plane:
        yield AgentPlane(plane, folder, tree)

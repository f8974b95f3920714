"""A process of the plane in a simulation: the production components, assembled as `deploy` does, in one task group.

A process can die between any two steps of the loop. Its wire, its disk and its links are cut before its tasks are
cancelled, so that no cleanup has an effect that a dead process cannot have. Its memory is lost. Its disk stays, or is
replaced by an older copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from deploy.composition.kubernetes_edge import KubernetesEdge
from drivers.backends.simulated_bmc import SimulatedBmcs
from drivers.hosts.simulated_hosts import SimulatedHosts
from drivers.relays.relay import Relay
from drivers.stall_detector import StallDetector
from drivers.wire.links import Busy, LinkClosed
from eventstore.errors import AppendUnknown, LogUnavailable, PlaneError
from eventstore.log import EventLog, Partition
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.store import SavedHead
from tests.simulation.api import Api, request_for
from tests.simulation.cluster_servers import ClusterServers
from tests.simulation.history import History, ProcessUptime, StateSaved
from tests.simulation.network import LinkEnd, Wire, WiredLog, link_pair
from tests.simulation.redfish_bmcs import RedfishBmcs
from tests.simulation.roles import start_roles
from tests.simulation.source_cluster import SourceCluster
from tests.simulation.workload import Request
from tests.support.memory_disk import Disk, DiskStore
from tests.support.virtual_loop import current_loop, owned_by

ENDS_WITHIN_S = 60.0


class Instance:
    """One instance of a process, from its start to its crash."""

    def __init__(self, name: str, wire: Wire, store: DiskStore) -> None:
        self.name = name
        self.from_s = current_loop().time()
        self.wire = wire
        self.store = store
        self.replica: Replica
        self.relay: Relay | None = None
        self.beacons: Beacons
        self.stall_detector: StallDetector | None = None
        self.api: Api | None = None
        self.edge: KubernetesEdge | None = None
        self.group: asyncio.TaskGroup
        self.is_up = False
        self.ready_s: float | None = None
        self.links: list[LinkEnd] = []
        self.calls: set[asyncio.Future[Answer]] = set()

    def spawn(self, work: Awaitable[None], name: str) -> None:
        """Start a task that ends with this instance at the latest."""
        with owned_by(self.name):
            self.group.create_task(work, name=name)  # type: ignore[arg-type]


@dataclass
class Process:
    """A process of the plane, across its restarts."""

    name: str
    log: EventLog
    rng: random.Random
    history: History
    now_ms: Callable[[], int]
    bmcs: SimulatedBmcs
    redfish: RedfishBmcs
    hosts: SimulatedHosts
    roles: frozenset[str]
    cluster: SourceCluster | None = None
    """The source cluster of the process, if it has the role `kubernetes`."""
    servers: ClusterServers | None = None
    """The API servers of DPU clusters, which a process with the role `provisioner` connects to."""
    disk: Disk = field(default_factory=Disk)
    disk_copies: list[dict[Partition, Any]] = field(default_factory=list)
    """Copies of the disk from earlier crashes."""
    wire_slow_s: float = 0.0
    starts: int = 0
    instance: Instance | None = None
    faults: list[str] = field(default_factory=list)
    _main: asyncio.Task[None] | None = None

    # --- start and crash

    def start(self) -> None:
        """Start a new instance with the current content of the disk."""
        assert self.instance is None
        self.starts += 1
        name = f"{self.name}#{self.starts}"
        wire = Wire(random.Random(f"{self.rng.random()}"), slow_s=self.wire_slow_s)
        store = DiskStore(self.disk, random.Random(f"{self.rng.random()}"), self._committed)
        self.instance = Instance(name, wire, store)
        with owned_by(name):
            self._main = current_loop().create_task(self._run_instance(self.instance), name=name)

    async def crash(self, *, loses_power: bool = False) -> None:
        """Kill the instance at once. With `loses_power`, its peers see no closed link."""
        instance, main = self.instance, self._main
        if instance is None or main is None:
            return
        self.instance = self._main = None
        self.history.add(self.uptime(instance))
        instance.is_up = False
        instance.wire.is_cut = True
        instance.store.cut()
        for link in instance.links:
            link.is_silent = loses_power
            link.abort()
        for call in instance.calls:
            if not call.done():
                call.set_exception(AppendUnknown(f"{self.name} has crashed"))
        main.cancel()
        _, pending = await asyncio.wait({main}, timeout=ENDS_WITHIN_S)
        if pending:
            self.faults.append(f"{instance.name} still runs {ENDS_WITHIN_S:g} s after its cancellation")
        await asyncio.sleep(0.01)
        if left := current_loop().tasks_of(instance.name):
            self.faults.append(f"{instance.name} left tasks behind: {left[:5]}")

    def uptime(self, instance: Instance) -> ProcessUptime:
        """The uptime of this instance, up to now."""
        roles, now_s = tuple(sorted(self.roles)), current_loop().time()
        return ProcessUptime(self.name, roles, instance.from_s, now_s, instance.ready_s)

    async def _run_instance(self, instance: Instance) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                instance.group = group
                start_roles(self, instance, WiredLog(self.log, instance.wire))
                await instance.replica.ready()
                instance.is_up = True
                instance.ready_s = current_loop().time()
                self.history.note(current_loop().time(), "ready", instance.name)
        except* PlaneError as group:
            self._record_failure(instance, group.exceptions[0])
        except* Exception as group:
            self._record_failure(instance, group.exceptions[0])

    def _record_failure(self, instance: Instance, error: BaseException) -> None:
        """Record that the instance ended by itself, which is a fault of the plane."""
        if not instance.wire.is_cut:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.faults.append(f"{instance.name} died of {type(error).__name__}: {error}")
            instance.is_up = False

    def _committed(self, partition: Partition, head: SavedHead) -> None:
        self.history.add(StateSaved(self.name, partition, head.position, head.digest, head.running))

    # --- calls, queries and links

    async def call(self, request: Request, timeout_s: float) -> Answer:
        """Send a command over the network. Raises AppendUnknown, or LogUnavailable if nothing was appended."""
        instance = self.instance
        if instance is None or not instance.is_up:
            raise LogUnavailable(f"{self.name} takes no connections")
        await asyncio.sleep(self.rng.uniform(0.0001, 0.003))
        if instance is not self.instance:
            raise AppendUnknown(f"{self.name} has crashed")
        answer: asyncio.Future[Answer] = current_loop().create_future()
        instance.calls.add(answer)
        handling = _handle(instance, request, answer, timeout_s)
        try:
            instance.spawn(handling, "call")
        except RuntimeError:  # the instance is about to end by itself, which is recorded as a fault
            handling.close()
            raise AppendUnknown(f"{self.name} has ended") from None
        try:
            async with asyncio.timeout(timeout_s + 5.0):
                return await answer
        except TimeoutError:
            raise AppendUnknown(f"{self.name} gave no answer") from None
        finally:
            instance.calls.discard(answer)

    async def read(self, partition: Partition, min_offset: int, *, of_fleet: bool, timeout_s: float) -> tuple[int, int]:
        """Query with a minimum position; returns the positions of the partition and of fleet in the response, or -1 for
        fleet.

        Raises LogUnavailable.
        """
        instance = self.instance
        if instance is None or not instance.is_up:
            raise LogUnavailable(f"{self.name} takes no connections")
        assert instance.api is not None, "a process that takes commands has the API"
        return await instance.api.read(partition, min_offset, of_fleet=of_fleet, timeout_s=timeout_s)

    async def dial(self, agent: str) -> LinkEnd:
        """Open a link to this process's relay. Raises LinkClosed, Busy."""
        instance = self.instance
        await asyncio.sleep(self.rng.uniform(0.0001, 0.003))
        if instance is None or instance is not self.instance or not instance.is_up or instance.relay is None:
            raise LinkClosed(f"{self.name} takes no connections")
        if wait_s := instance.relay.admit(agent, is_one_dpu=False):
            raise Busy(f"{self.name} takes no more links now", wait_s)
        relays, agents = link_pair(self.name, agent, self.rng)
        instance.links = [link for link in instance.links if not link.is_closed] + [relays]
        instance.spawn(instance.relay.serve(relays), f"link of {agent}")
        return agents


async def _handle(instance: Instance, request: Request, answer: asyncio.Future[Answer], timeout_s: float) -> None:
    """Handle one command inside the process, and set its answer."""
    try:
        found = await _answer(instance, request, timeout_s)
    except PlaneError as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(found)


async def _answer(instance: Instance, request: Request, timeout_s: float) -> Answer:
    """Send a command through the API if the API offers it, and otherwise as the plane's components do."""
    api_request = request_for(request.event)
    if api_request is None or instance.api is None:
        return await instance.replica.submit(request.partition, request.key, request.event, timeout_s=timeout_s)
    method, message = api_request
    return await instance.api.submit(method, message, request.event.envelope.actor, timeout_s)

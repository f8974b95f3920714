"""One run: a log, processes, clients and devices on one virtual clock; a phase with faults, then one without.

Afterwards the log is read again and folded afresh, and the whole history is compared with it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from deploy.composition.topics import TOPICS
from drivers.backends import simulated_bmc
from drivers.backends.simulated import NO_DEVICE_FAULTS
from drivers.backends.simulated_bmc import SimulatedBmcs
from drivers.hosts.simulated_hosts import SimulatedHosts
from drivers.simulators.simulator import NAMING, Simulator
from drivers.wire.links import Link
from eventstore.errors import TransientError
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition, Record, partition_of
from eventstore.replicas.replica import Answer
from projections.kubernetes.clique_objects import Mode
from schemas.events import DpuRegistered, Envelope, Event
from tests.simulation import (
    device_nemesis,
    image_operator,
    kubelets,
    network_stager,
    peers,
    resource_editor,
    stager,
    wanted_agents,
)
from tests.simulation.agents import AgentHost, HostDevice, WatchedDevice
from tests.simulation.api_faults import AWAY, ApiNemesis
from tests.simulation.argo_cd import ArgoCd
from tests.simulation.bridges import Bridge
from tests.simulation.broker import Broker, DirectedLog
from tests.simulation.checkers.network_stages import network_course_counts
from tests.simulation.checkers.rollouts import taken_count
from tests.simulation.checkers.staging import course_counts
from tests.simulation.clients import Client
from tests.simulation.cluster_servers import ClusterServers
from tests.simulation.device_nemesis import DeviceNemesis
from tests.simulation.devices import SimulatedRegistrar, WatchedFleet
from tests.simulation.history import FaultInjected, History
from tests.simulation.image_operator import ImageOperator
from tests.simulation.kamaji import Kamaji
from tests.simulation.kubelets import Kubelets
from tests.simulation.nemesis import Nemesis
from tests.simulation.network_stager import NetworkStager
from tests.simulation.peers import Peers
from tests.simulation.plan import PARTITIONS, ClusterPlan, Plan
from tests.simulation.process import Process
from tests.simulation.redfish_bmcs import RedfishBmcs, WatchedBmc
from tests.simulation.resource_editor import ResourceEditor
from tests.simulation.script import Director
from tests.simulation.source_cluster import STATUS_WRITTEN, SourceCluster
from tests.simulation.stager import Stager
from tests.simulation.wanted_agents import WantedAgents
from tests.simulation.watching import watch
from tests.simulation.workload import Request
from tests.support.virtual_loop import current_loop

BASE_MS = 1_700_000_000_000
REGISTRATION_S = 60.0
"""How long the registrations of agents may take after the faults have ended. A missing registration shows in the
verdict.
"""

ACTIVE_S = 60.0
"""Duration of the changes of a source cluster before a long absence of its API server."""
SETTLED_S = 60.0
"""Time between these changes and the absence."""

BMC_SCHEME = "simulated"
"""The scheme of BMC addresses. The backend is that of production."""


class World:
    """The parts of one run."""

    def __init__(self, plan: Plan, director: Director) -> None:
        self.plan = plan
        self.director = director
        self.history = History()
        self.skews_ms: dict[str, int] = {}
        self.broker_skews_ms: dict[Partition, int] = {}
        self.ahead_ms = 0
        """The largest lead of a broker's clock so far."""
        self.broker = Broker(PARTITIONS, self._stamp_ms)
        self.broker_partitions = [p for topic in TOPICS.names for p in self.broker.partitions(topic)]
        self._folded = [p for p in self.broker_partitions if p.topic in TOPICS.folded]
        self._ends: dict[Partition, int] = {}
        self.log = DirectedLog(self.broker, self.rng("log"), plan.log, director, seed=plan.seed)
        self.bmcs = SimulatedBmcs(
            now_s=current_loop().time,
            rng=self.rng("bmcs"),
            faults=plan.bmcs,
            serial_of=lambda name: "SIM-" + name.replace("-dpu-", "-"),
        )
        for zone in plan.zones:
            for number in range(plan.dpus_per_zone):
                self.bmcs.device(NAMING.dpu.format(zone=zone, number=number))
            self.bmcs.device(f"{zone}-agent")
        if plan.edits_s:
            for name in resource_editor.devices():
                self.bmcs.device(name)
        names = [f"{zone}-agent" for zone in plan.zones] if plan.has_models else []
        self.redfish = RedfishBmcs({name: WatchedBmc(name, self.rng(f"BMC of {name}"), plan.bmcs) for name in names})
        self.bridges = {name: Bridge(name, self.rng(f"bridge of {name}")) for name in names}
        self.hosts = SimulatedHosts(self.bmcs, now_s=current_loop().time, rng=self.rng("hosts"), faults=plan.bmcs)
        self.servers: ClusterServers | None = None
        if plan.edits_s:
            self.servers = ClusterServers(self.history, self.rng("DPU clusters"), epoch_s=BASE_MS // 1000)
        self.cluster = self._cluster(plan.cluster) if plan.cluster else None
        self.processes = [self._process(f"p{number}", roles) for number, roles in enumerate(plan.processes)]
        self.apis = [process for process in self.processes if "api" in process.roles]
        self.clients = [self._client(f"client-{number}") for number in range(plan.clients)]
        self._operator_rng = self.rng("operator")
        self._away_since_s: float | None = None
        self._written_before: int | None = None
        """Number of status writes before the return of the API server from a long absence."""
        self._observers: dict[str, asyncio.Task[None]] = {}
        """The peers that act until the end of the run, by name."""
        self._registrations: list[asyncio.Task[None]] = []
        """The registrations of agents. They are repeated until a process is up."""
        self._operator = self._client("operator")
        relays = [process.name for process in self.processes if "relay" in process.roles]
        self.agents = [
            self._agent_host(zone, f"{zone}-agent", relays, self.rng(f"agent of {zone}")) for zone in plan.zones
        ]
        self.peers = self._peers(self.servers) if self.servers is not None else None
        self.kubelets: Kubelets | None = None
        if self.servers is not None:
            self.kubelets = Kubelets(self.processes, self.bmcs, self.servers, self.history, self.rng("kubelets"))
        self.wanted_agents = self._wanted_agents(relays) if plan.edits_s else None
        registrar = SimulatedRegistrar(plan.zones, self._registered, self._register)
        self.simulator = Simulator(
            registrar,
            relays,
            dial=self._dial,
            rng=self.rng("simulator"),
            dpus_per_zone=plan.dpus_per_zone,
        )
        self.fleet = self.simulator.devices = WatchedFleet(plan.devices, self.rng("devices"), self.history, plan.zones)

    def rng(self, purpose: str) -> random.Random:
        """The random generator for a purpose. An additional draw for one purpose leaves the others unchanged."""
        return random.Random(f"{self.plan.seed}/{purpose}")

    # --- clocks

    def true_ms(self) -> int:
        """The time of a clock without faults."""
        return BASE_MS + round(current_loop().time() * 1000)

    def _stamp_ms(self, partition: Partition) -> int:
        return self.true_ms() + self.broker_skews_ms.get(partition, 0)

    def appended_s(self, partition: Partition, offset: int) -> float:
        """The true append time of the record that readers see at this offset."""
        return self.broker.appended_s[partition][self.log.view.inner(partition, offset)]

    # --- phases

    async def run_with_faults(self) -> None:
        """Run clients and devices while the nemesis injects faults."""
        if self.cluster is not None:
            await self.cluster.begin()
        for process in self.processes:
            process.start()
        for host in self.agents:
            host.start()
        async with asyncio.TaskGroup() as tasks:
            self._devices = current_loop().in_world(self.simulator.run(), "simulator")
            self._sampler = current_loop().in_world(watch(self.processes, self.history), "watch")
            for host in self.agents:
                self._registrations.append(current_loop().in_world(self._register_agent(host), f"register {host.name}"))
            active = [
                tasks.create_task(client.run(self.director, self.plan.seed), name=client.name)
                for client in self.clients
            ]
            if self.plan.edits_s:
                edits = self._editor().run(self.director, self.plan.seed)
                active.append(tasks.create_task(edits, name=resource_editor.NAME))
            if self.plan.stages_s:
                operator = Stager(self._client(stager.NAME), self.apis, self.true_ms, self.plan.stages_s)
                active.append(tasks.create_task(operator.run(self.director, self.plan.seed), name=stager.NAME))
            if self.plan.stages_s and self.plan.edits_s:
                of_networks = NetworkStager(
                    self._client(network_stager.NAME), self.apis, self.true_ms, self.plan.stages_s
                )
                staged = of_networks.run(self.director, self.plan.seed)
                active.append(tasks.create_task(staged, name=network_stager.NAME))
            if self.peers is not None:
                self._start_observer(self.peers.run(self.director, self.plan.seed), peers.NAME)
            if self.wanted_agents is not None:
                self._start_observer(self.wanted_agents.run(), wanted_agents.NAME)
                faults = self.wanted_agents.disturb(self.director, self.plan.seed, self.plan.fault_interval_s)
                active.append(tasks.create_task(faults, name=wanted_agents.NAME))
            if self.kubelets is not None:
                self._start_observer(self.kubelets.run(), kubelets.NAME)
                silences = self.kubelets.disturb(self.director, self.plan.seed, 2 * self.plan.fault_interval_s)
                active.append(tasks.create_task(silences, name=kubelets.NAME))
            if self.bridges:
                operator_of_images = ImageOperator(
                    self._client(image_operator.NAME),
                    self.apis,
                    self.true_ms,
                    {host.name: (host.zone, self.redfish.address(host.name)) for host in self.agents},
                )
                active.append(
                    tasks.create_task(operator_of_images.run(self.director, self.plan.seed), name=image_operator.NAME)
                )
                devices = DeviceNemesis(self.bridges, self.redfish.bmcs, self.history, self.plan.fault_interval_s)
                active.append(tasks.create_task(devices.run(self.director, self.plan.seed), name=device_nemesis.NAME))
            nemesis = Nemesis(self, self.plan.fault_interval_s)
            active.append(tasks.create_task(nemesis.run(), name="nemesis"))
            active += [tasks.create_task(work, name="cluster") for work in self._cluster_work()]
            await asyncio.sleep(self.plan.faulty_s)
            for task in active:
                task.cancel()

    def _start_observer(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._observers[name] = current_loop().in_world(work, name)

    def _cluster_work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The work of the source cluster during the fault phase: its changes, and the faults of its API server."""
        if self.cluster is None or self.plan.cluster is None:
            return
        if self.plan.cluster.is_away_for_an_hour:
            yield self._go_away(self.cluster)
        else:
            yield self.cluster.run(self.director, self.plan.seed)
            if self.cluster.driver is not None:
                yield self.cluster.driver.run(self.director, self.plan.seed)
            yield ApiNemesis(self, self.cluster, self.plan.cluster.fault_interval_s).run()

    async def _go_away(self, cluster: SourceCluster) -> None:
        """Change objects for a while. Some time later, end the API server until `let_return`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ACTIVE_S):
                await cluster.run(self.director, self.plan.seed)
        await asyncio.sleep(SETTLED_S)
        cluster.api.go_down()
        self._away_since_s = current_loop().time()

    def let_return(self) -> None:
        """End an absence of the API server that lasts until the plane is at rest."""
        assert self.cluster is not None and self._away_since_s is not None
        from_s, to_s = self._away_since_s, current_loop().time()
        self._away_since_s = None
        self._written_before = self.history.counts[STATUS_WRITTEN]
        self.history.add(FaultInjected(AWAY, "", from_s, to_s, is_outside=True))
        self.history.note(to_s, AWAY, to_s - from_s)
        self.cluster.heal()

    @property
    def is_away(self) -> bool:
        """Whether the API server is away until `let_return`."""
        return self._away_since_s is not None

    async def heal(self) -> None:
        """End all faults and start every process."""
        self.history.note(current_loop().time(), "healed")
        if self.cluster is not None and not self.is_away:
            self.cluster.heal()
        self.log.is_sound = True
        self.fleet.faults = NO_DEVICE_FAULTS
        for host in self.agents:
            host.device.heal()
        for device in self.bmcs.devices.values():
            device.faults = simulated_bmc.NO_BMC_FAULTS
        self.redfish.heal()
        self.hosts.heal()
        if self.peers is not None:
            self.peers.heal()
        if self.kubelets is not None:
            self.kubelets.heal()
        if self.wanted_agents is not None:
            self.wanted_agents.heal()
        self.broker_skews_ms.clear()
        self.skews_ms = dict.fromkeys(self.skews_ms, 0)
        for process in self.processes:
            process.disk.failures = process.wire_slow_s = 0.0
            if process.instance is None:
                process.start()
            else:
                process.instance.wire.is_isolated = process.instance.wire.answers_lost = False
                process.instance.wire.slow_s = 0.0
        await self.log.settle()
        if self._registrations:
            await asyncio.wait(self._registrations, timeout=REGISTRATION_S)

    async def has_no_new_records(self) -> bool:
        """Whether no folded topic has got a record since the last call. A verdict is meaningful only then."""
        before, self._ends = self._ends, {partition: await self.log.end(partition) for partition in self._folded}
        return self._ends == before

    async def end(self) -> None:
        """Stop everything."""
        for task in (self._devices, self._sampler, *self._observers.values(), *self._registrations):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self.cluster is not None and self.cluster.driver is not None:
            await self.cluster.driver.end()
        for host in self.agents:
            await host.crash()
        if self.wanted_agents is not None:
            await self.wanted_agents.end()
        for process in self.processes:
            await process.crash()

    def faults(self) -> Iterator[str]:
        """The failures of processes, agents and the simulator that no injected fault explains."""
        for process in self.processes:
            yield from process.faults
        for host in self.agents:
            yield from host.faults
        for bridge in self.bridges.values():
            yield from bridge.faults()
        if self.wanted_agents is not None:
            yield from self.wanted_agents.faults()
        if self.cluster is not None and self.cluster.driver is not None:
            yield from self.cluster.driver.faults()
        if self._devices.done() and not self._devices.cancelled():
            yield f"the simulator ended: {self._devices.exception()}"
        for name, task in self._observers.items():
            if task.done() and not task.cancelled():
                yield f"{name} ended: {task.exception()}"

    # --- parts

    def _process(self, name: str, roles: frozenset[str]) -> Process:
        self.skews_ms[name] = 0
        return Process(
            name,
            self.log,
            self.rng(name),
            self.history,
            now_ms=lambda: self.true_ms() + self.skews_ms[name],
            bmcs=self.bmcs,
            redfish=self.redfish,
            hosts=self.hosts,
            roles=roles,
            cluster=self.cluster,
            servers=self.servers,
            wire_slow_s=self.plan.wire_slow_s,
        )

    def _agent_host(self, zone: str, name: str, relays: Sequence[str], rng: random.Random) -> AgentHost:
        device: HostDevice | None = self.bridges.get(name)
        if device is None:
            device = WatchedDevice(zone, name, self.history, self.plan.devices, rng)
        return AgentHost(zone, name, relays, dial=self._dial, device=device, history=self.history, rng=rng)

    def _cluster(self, plan: ClusterPlan) -> SourceCluster:
        rng, epoch_s = self.rng("cluster"), BASE_MS // 1000
        cluster = SourceCluster(self.plan.zones, self.history, rng, plan, epoch_s=epoch_s)
        if cluster.driver is not None:
            cluster.driver.restart_edges = self._restart_edges
        return cluster

    async def _restart_edges(self, mode: Mode) -> None:
        """Restart each process with an edge in another mode, one after the other."""
        assert self.cluster is not None
        self.cluster.settings = replace(self.cluster.settings, cliques=mode)
        for process in self.processes:
            if "kubernetes" in process.roles and process.instance is not None:
                await process.crash()
                await asyncio.sleep(1.0)
                if process.instance is None:
                    process.start()

    def _client(self, name: str) -> Client:
        self.skews_ms[name] = 0
        return Client(
            name,
            self.apis,
            self.plan.zones,
            self.history,
            rng=self.rng(name),
            now_ms=lambda: self.true_ms() + self.skews_ms[name],
            pause_s=self.plan.pause_s,
        )

    def _peers(self, servers: ClusterServers) -> Peers:
        controllers = (ArgoCd(self.history), Kamaji(servers, self.history))
        return Peers(controllers, self._client(peers.NAME), self.apis, self.true_ms, max(1.0, self.plan.edits_s))

    def _wanted_agents(self, relays: Sequence[str]) -> WantedAgents:
        return WantedAgents(
            self.apis,
            self.bmcs,
            relays,
            dial=self._dial,
            faults=self.plan.devices,
            history=self.history,
            rng=self.rng,
        )

    def _editor(self) -> ResourceEditor:
        client = self._client(resource_editor.NAME)
        return ResourceEditor(client, self.apis, self.plan.zones, self.true_ms, self.plan.edits_s)

    # --- registrations and operator commands

    async def _dial(self, address: str) -> Link:
        return await next(process for process in self.processes if process.name == address).dial("simulator")

    async def _register_agent(self, host: AgentHost) -> None:
        """Register an agent's DPU without a serial number, and repeat until it succeeds."""
        is_model = host.name in self.redfish.bmcs
        address = self.redfish.address(host.name) if is_model else f"{BMC_SCHEME}:{host.name}"
        dpu = (host.zone, host.name, "", "", address)
        while True:
            try:
                return await self._register(*dpu)
            except TransientError:
                await asyncio.sleep(1.0)

    def zone_partition(self, zone: str) -> Partition:
        return Partition(ZONES, partition_of(zone.encode(), PARTITIONS))

    def _registered(self, zone: str) -> Mapping[str, str]:
        return {}

    async def _register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        process = self._operator_rng.choice(self.apis)
        command = partial(DpuRegistered, zone=zone, dpu=dpu, node=node, serial=serial, bmc_address=bmc_address)
        if await self.operate(process, self.zone_partition(zone), zone.encode(), command) is None:
            raise TransientError(f"dpu {dpu} is not registered yet")

    async def operate(
        self, process: Process, partition: Partition, key: bytes, command: Callable[[Envelope], Event]
    ) -> Answer | None:
        """Send a command as an operator with a correct clock, until its outcome is known."""
        sender = envelope("operated", "operator", uuid7(self.true_ms(), self._operator_rng))
        return await self._operator.send(Request(partition, key, command(sender)), process)

    def counts(self, records: Mapping[Partition, Sequence[Record]]) -> Counter[str]:
        """The number of events and records, by kind."""
        counts = Counter(self.history.counts)
        fault_counts = self.log.counts
        counts["duplicated records"], counts["lost answers to appends"] = (
            fault_counts.duplicates,
            fault_counts.lost_answers,
        )
        counts["records that landed late"], counts["appends that never landed"] = (
            fault_counts.landed_late,
            fault_counts.never_landed,
        )
        counts["restamped records"] = fault_counts.restamped
        if self._written_before is not None:
            counts["statuses written on return"] = counts[STATUS_WRITTEN] - self._written_before
        counts["records"] = sum(map(len, records.values()))
        for partition, found in records.items():
            counts[f"{partition.topic} records"] += len(found)
        tasks = [task for device in self.bmcs.devices.values() for task in device.begun]
        counts["steps started on devices"] = len(tasks)
        counts["DPUs deleted"] = sum(task.action == "release" for task in tasks)
        counts.update(self.redfish.counts())
        if self.plan.stages_s:
            counts.update(course_counts(records))
            counts.update(network_course_counts(records))
        if self.plan.edits_s:
            counts["working DPUs released"] = taken_count(records)
            counts["hosts rebooted"] = sum(len(host.reboots) for host in self.hosts.hosts.values())
        counts["process starts"] = sum(process.starts for process in self.processes)
        return counts

"""The composition of one process: the log, a replica with the folds of its roles, and the active parts.

All other modules receive their dependencies as parameters; this module creates them. A failed part ends the process.
The parts stop in the order that loses no acknowledged command: API first, log last. The folds are saved in between, so
that a restart does not repeat the folding.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from commands.queries.status import DeviceSource, StatusReporter
from commands.server import ApiServer
from deploy.composition.bmc_backends import BmcContext, connect_of
from deploy.composition.host_connections import HostConnections
from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.composition.roles import (
    ALL_ROLES,
    ROLES,
    ActorContext,
    actors_of,
    folds_of,
    relay_of,
    replica_of,
    roles_in_process,
)
from deploy.host.file_limits import ConnectionLimitsPerListener, file_limit, fit_connection_limits
from deploy.host.kubeconfigs import check_kubeconfigs
from deploy.host.listen_addresses import check_free, listen_errors
from deploy.host.secret_folder import secret_folder
from deploy.host.storage import location_of, open_log, open_store
from deploy.operations import device_tables
from deploy.operations.export.schema_registry import schemas
from deploy.operations.past.as_of_servers import AsOfServers
from deploy.process.charts import read_charts
from deploy.process.decisions_process import DecisionsProcess
from deploy.process.image_store import ImageStore, open_image_store
from deploy.process.installers import installers_of
from deploy.process.local_registrar import LocalRegistrar
from deploy.process.redfish import open_redfish
from deploy.process.tasks import ProcessTasks
from deploy.settings.settings import Address, Settings
from deploy.settings.source_clusters import SourceCluster
from deploy.tls.security import api_options, security_of
from deploy.web.http import HttpServer
from deploy.web.metrics.collector import Parts, PlaneCollector
from deploy.web.metrics.exposition import Exposition
from deploy.web.metrics.survey import Survey
from deploy.web.page.routes import PageRoutes
from drivers.backends.bmc import Connect
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from drivers.backends.simulated_transfers import ImageTransfers
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.hosts.logged_objects import LoggedObjects
from drivers.hosts.simulated_hosts import SimulatedHosts
from drivers.hosts.task_box import TaskBox
from drivers.kubernetes.client import connect as connect_kubernetes
from drivers.provisioning.device import no_url
from drivers.relays.relay import Relay
from drivers.simulators.agents import SimulatedAgents
from drivers.simulators.bmc_network import BmcNetwork
from drivers.simulators.clusters import SimulatedClusters
from drivers.simulators.simulator import Simulator
from drivers.stall_detector import StallDetector
from drivers.wire.agent_listener import AgentListener
from drivers.wire.bounded_listener import ConnectionLimits
from drivers.wire.links import Link, memory_link_pair
from eventstore.log import EventLog
from eventstore.replicas.beacons import Beacon, Beacons, Ranks, SingleReplica
from eventstore.replicas.clock_skew import ClockSkew
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API, DECISION_WRITER, KUBERNETES, PROVISIONER, RELAY
from eventstore.replicas.status import SourceStatus
from projections.fold_states import FoldStates
from projections.resources.state import LOCAL
from schemas.kubernetes.api import KubernetesApi

if TYPE_CHECKING:
    from deploy.telemetry.tracing import SpanRecorder

logger = logging.getLogger(__name__)

API_GRACE_S = 1.0
"""Time limit for running calls at the end; then they are cancelled."""

SAVE_GRACE_S = 2.0
"""Time limit for the last save at the end."""


class Plane:
    """The parts of a process that other modules read; created and run by `start`."""

    def __init__(self, settings: Settings, *, now_ms: Callable[[], int], rng: random.Random) -> None:
        self.settings = settings
        self.roles = roles_in_process(settings.role, lambda name: bool(getattr(settings, name)))
        self.name = settings.name or f"{socket.gethostname()[:40]}-{rng.getrandbits(24):06x}"
        self.addresses: dict[str, str] = {}
        self.log: EventLog
        self.parts: Parts
        self.replica: Replica
        self.clocks: ClockSkew
        self.states: FoldStates
        self.relay: Relay | None = None
        self.simulator: Simulator | None = None
        self.simulated_bmcs: SimulatedBmcs | None = None
        self.security = security_of(settings, now_ms)
        self._now_ms = now_ms
        self._rng = rng
        self._beacons: Beacons | None = None
        self._span_recorder: SpanRecorder | None = None
        self._unready = "the log is not folded yet"
        self._connections = self._connection_limits()
        self._page = PageRoutes(self.roles, self._alive, now_ms)
        self._buffer = DecisionBuffer() if DECISION_WRITER in self.roles else None

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        settings: Settings,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        expected_zones: Collection[str] = (),
        span_recorder: SpanRecorder | None = None,
    ) -> AsyncIterator[Plane]:
        """Start a process; it serves when the context is entered. `expected_zones` get simulated DPUs before the zones
        exist; `span_recorder` traces some commands to the devices.
        """
        plane = cls(settings, now_ms=now_ms, rng=rng)
        plane._span_recorder = span_recorder
        if KUBERNETES in plane.roles:
            await check_kubeconfigs(settings.source_clusters)
        check_free(plane._listeners())
        async with AsyncExitStack() as stack:
            plane.log = await stack.enter_async_context(open_log(settings, now_ms=now_ms, rng=rng))
            store = stack.enter_context(open_store(settings))
            plane.replica = replica_of(
                plane.roles,
                plane.log,
                store,
                plane.name,
                now_ms=now_ms,
                rng=rng,
                decisions=plane._buffer,
                tracing=span_recorder,
            )
            plane.states = FoldStates(plane.replica)
            plane.clocks = ClockSkew(now_ms, lambda: plane.replica.append_ms)
            plane.parts = plane._made_parts()
            stack.push_async_callback(plane._save)
            running = await stack.enter_async_context(ProcessTasks())
            running.start(plane.replica.run())
            running.start(plane.clocks.run())
            if plane.security is not None:
                running.start(plane.security.run())
            await plane._serve(stack, running, expected_zones)
            yield plane

    def _listeners(self) -> dict[str, Address]:
        settings = self.settings
        own = [listener for role in self.roles if (listener := ROLES[role].listener) is not None]
        return {name: getattr(settings, name) for name in ("http", *own)}

    def _made_parts(self) -> Parts:
        """The parts that metrics read; `_serve` adds parts as they start."""
        return Parts(
            replica=self.replica,
            roles=self.roles,
            version=version("dpuplane"),
            engine="kafka" if self.settings.data is None else "embedded",
            now_ms=self._now_ms,
            unready=lambda: self._unready,
            security=self.security,
            refused_feeds=(lambda: self._page.feeds.refused) if API in self.roles else None,
            clocks=self.clocks,
        )

    def _connection_limits(self) -> ConnectionLimitsPerListener:
        """The limits in the settings, lowered to this process's limit of open files."""
        settings, files = self.settings, file_limit()
        wanted = ConnectionLimitsPerListener(
            settings.http_connections, settings.api_connections, settings.agent_connections
        )
        found = fit_connection_limits(files, wanted)
        if found != wanted:
            logger.warning(
                "connection limits lowered: the log needs open files too; raise the limit of open files (LimitNOFILE)",
                extra={"files": files, **found._asdict()},
            )
        return found

    def _limits(self, connections: int) -> ConnectionLimits:
        return ConnectionLimits(connections, max(1, int(connections * self.settings.address_share)))

    async def wait(self) -> None:
        """Wait until cancelled; a failed part cancels the waiter."""
        await asyncio.Event().wait()

    def addresses_text(self) -> str:
        """`api=HOST:PORT http=HOST:PORT agents=HOST:PORT`, for the listeners of this process."""
        return " ".join(f"{name}={address}" for name, address in self.addresses.items())

    async def _save(self) -> None:
        """Save the folds. After a timeout, unsaved records are folded again at the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SAVE_GRACE_S):
                await self.replica.save()

    async def _serve(self, stack: AsyncExitStack, running: ProcessTasks, expected_zones: Collection[str]) -> None:
        if RELAY in self.roles:
            zones = self.settings.zone_names
            self.relay = relay_of(
                self.replica, now_ms=self._now_ms, rng=self._rng, zones=zones, delivery=self._span_recorder
            )
        self.parts.relay = self.relay
        self.parts.survey = Survey(self.replica, self.relay)
        running.start(self.parts.survey.run())
        await self._open_http(stack)
        ranks = self._write_decisions(running, self._buffer) if self._buffer is not None else None
        await self.replica.ready()
        if self.relay is not None:
            running.start(self.relay.run())
            await self._open_agents(stack, self.relay)
        if API in self.roles:
            await self._open_api(stack, running)
        ranks = ranks or self._ranks()
        if self._beacons is not None:
            running.start(self._beacons.run())
        images = await self._open_images(stack, running, ranks)
        connect, simulated = self._connect(running, images)
        hosts = HostConnections(self._cluster_api, simulated, self._box)
        url_of = no_url if images is None else images.installations.url
        redfish = await stack.enter_async_context(
            open_redfish(
                self.settings,
                self.replica,
                url_of,
                seed_of=no_url if images is None else images.installations.seed_url,
                firmware_of=None if images is None else images.installations.firmware,
                apis=self._cluster_api,
                now_ms=self._now_ms,
            )
        )
        network = BmcNetwork(self._rng, self.settings.network_sizes) if self.settings.is_simulated else None
        context = ActorContext(
            self.replica,
            ranks,
            connect,
            hosts,
            self._now_ms,
            lambda: self._rng,
            network or redfish.prober,
            url_of,
            installers_of(self.settings, redfish.installer, images, self._box, self._now_ms),
        )
        self.parts.actors = actors_of(self.roles, context)
        acting = await stack.enter_async_context(ProcessTasks())  # it ends before the connections of actors are closed
        for actor in self.parts.actors.values():
            acting.start(actor.run())
        if KUBERNETES in self.roles:
            self.parts.kubernetes = [self._kubernetes_edge(each, ranks) for each in self.settings.source_clusters]
            for edge in self.parts.kubernetes:
                running.start(edge.run())
            running.start(
                read_charts(self.settings, self.replica, ranks, self._cluster_api, now_ms=self._now_ms, rng=self._rng)
            )
        if self.settings.is_simulated:
            clusters = SimulatedClusters(
                self.replica, ranks, LOCAL, now_ms=self._now_ms, rng=self._rng, pace=self.settings.simulate_pace
            )
            running.start(clusters.run())
        if self.settings.is_simulated and self.relay is not None:
            self._simulate(running, self.relay, expected_zones)
        if self.settings.role == ALL_ROLES and self.settings.kafka and self.settings.decisions:
            self.parts.decisions = process = DecisionsProcess(self.settings, self.name, rng=self._rng)
            running.start(process.run())
        self._unready = ""

    def _box(self, namespace: str, host: str) -> TaskBox:
        """The tasks of the agent of a host."""
        store = LoggedObjects(self.replica, LOCAL, now_ms=self._now_ms, rng=self._rng)
        return TaskBox(self.replica, store, namespace, host)

    def _cluster_api(self, source: str) -> KubernetesApi | None:
        """The connection to a source cluster or a DPU cluster, by the source of its objects."""
        edges = (edge.resources for edge in self.parts.kubernetes if edge.resources is not None)
        return next(filter(None, (edge.connections.api(source) for edge in edges)), None)

    def _kubernetes_edge(self, cluster: SourceCluster, ranks: Ranks) -> KubernetesEdge:
        connect, settings = (
            partial(connect_kubernetes, cluster.kubeconfig, source=cluster.name),
            self.settings.edge(cluster.name),
        )
        return KubernetesEdge(
            connect, self.replica, ranks, settings, now_ms=self._now_ms, rng=self._rng, supports=self._supports
        )

    def _write_decisions(self, running: ProcessTasks, buffer: DecisionBuffer) -> Ranks:
        """Start the writer of decisions, without which the replica never becomes ready. Beacons are received only when
        the replica is ready. Until then, this process ranks itself first; at worst, it writes duplicate decisions."""
        ranks = self._ranks()
        self.parts.decisions = writer = DecisionWriter(self.replica, buffer, ranks, now_ms=self._now_ms, rng=self._rng)
        running.start(writer.run())
        return ranks

    async def _open_http(self, stack: AsyncExitStack) -> None:
        exposition = Exposition([PlaneCollector(self.parts)])
        security = None if self.security is None else self.security.http()
        http = HttpServer(
            self.settings.http,
            exposition,
            lambda: self._unready,
            routes=[*self._page.routes(), *schemas()],
            security=security,
            limits=self._limits(self._connections.http),
            notes=self.clocks.faults,
        )
        stack.push_async_callback(http.stop)
        stack.callback(self._page.close)
        with listen_errors("http", self.settings.http):
            self.addresses["http"] = str(await http.start())
        self.parts.listeners["http"] = http.listener

    async def _open_agents(self, stack: AsyncExitStack, relay: Relay) -> None:
        host, port = self.settings.agents
        pages = {device_tables.DEVICES_PATH: device_tables.devices_handler(relay)}
        ssl, guard = (None, None) if self.security is None else self.security.agents(device_tables.DEVICES_PATH)
        listener = AgentListener(
            relay.serve,
            relay.admit,
            host=host,
            port=port,
            ssl=ssl,
            pages=pages,
            middlewares=[guard] if guard else [],
            limits=self._limits(self._connections.agents),
        )
        with listen_errors("agents", self.settings.agents):
            await stack.enter_async_context(listener)
        self.parts.listeners["agents"] = listener.listener
        self.addresses["agents"] = str(Address(host, listener.port))

    async def _open_api(self, stack: AsyncExitStack, running: ProcessTasks) -> None:
        self.parts.stall_detector = stall_detector = StallDetector(self.replica, now_ms=self._now_ms)
        running.start(stall_detector.run())
        board = StatusReporter(
            self.replica,
            location=location_of(self.settings),
            roles=self.roles,
            addresses=self.addresses,
            version=version("dpuplane"),
            alive=self._alive,
            stalled=lambda: stall_detector.reasons,
            dpus_ahead_of_log=self._dpus_ahead_of_log,
            revocations_fault=self._revocations_fault,
            sources=self._sources,
            clock_faults=self.clocks.faults,
        )
        past = (
            await stack.enter_async_context(AsOfServers.open(self.settings, self._now_ms))
            if self.settings.as_of_servers
            else None
        )
        self.parts.server = server = ApiServer(
            self.replica,
            past=past,
            status=board,
            devices=self._devices(),
            listen=str(self.settings.listen),
            now_ms=self._now_ms,
            rng=self._rng,
            supports=self._supports,
            ranks=lambda: self._beacons or SingleReplica(self.name),
            tracing=self._span_recorder,
            secrets=secret_folder(self.settings),
            **api_options(self.settings, self.security, self._connections.api),
        )
        stack.push_async_callback(server.stop, API_GRACE_S)
        self.addresses["api"] = await server.start()
        running.start(server.wait())
        folds = folds_of(self.log.partition_count, self.roles)
        running.start(self._page.open(server.queries, self.log, self.replica, folds))

    def _devices(self) -> DeviceSource:
        if self.settings.data is not None and self.relay is not None:
            return device_tables.local_device_source(self.relay)
        return device_tables.remote_device_source(
            lambda: [beacon.addresses["agents"] for beacon in self._alive() if "agents" in beacon.addresses],
            self.security.certificates if self.security is not None else None,
        )

    def _ranks(self) -> Ranks:
        """The ranks by which replicas take turns as actors. On Kafka, beacons determine the ranks; an embedded log has
        only one process."""
        if self.settings.data is not None:
            return SingleReplica(self.name)
        self.parts.beacons = self._beacons = Beacons(
            self.log,
            self.replica,
            roles=self.roles,
            addresses=self.addresses,
            version=version("dpuplane"),
            rng=self._rng,
            dpus_ahead_of_log=self._dpus_ahead_of_log,
            revocations_fault=self._revocations_fault,
            sources=self._sources,
            clocks=self.clocks,
        )
        return self._beacons

    def _dpus_ahead_of_log(self) -> int:
        return 0 if self.relay is None else self.relay.dpus_ahead_of_log()

    def _sources(self) -> list[SourceStatus]:
        return [edge.status_of_source() for edge in self.parts.kubernetes]

    def _revocations_fault(self) -> str:
        return "" if self.security is None else self.security.revocations_fault

    def _supports(self) -> Mapping[str, Mapping[str, Sequence[int]]] | None:
        if self.settings.data is not None:
            return {self.name: self.replica.supports()}
        return self._beacons.supports() if self._beacons is not None else None

    def _alive(self) -> Sequence[Beacon]:
        return self._beacons.alive() if self._beacons is not None else ()

    async def _open_images(self, stack: AsyncExitStack, running: ProcessTasks, ranks: Ranks) -> ImageStore | None:
        folder = self.settings.images_folder
        if PROVISIONER not in self.roles or folder is None:
            return None
        self.parts.images = images = await stack.enter_async_context(
            open_image_store(
                self.settings,
                folder,
                self.replica,
                ranks,
                self.security,
                apis=self._cluster_api,
                now_ms=self._now_ms,
                rng=self._rng,
            )
        )
        self.parts.listeners["images"] = images.server.listener
        self.addresses["images"] = str(images.address)
        running.start(images.run())
        return images

    def _connect(self, running: ProcessTasks, images: ImageStore | None) -> tuple[Connect, SimulatedHosts | None]:
        """The connector to BMCs, and the hosts of simulated ones. Simulated BMCs get their images from the image store
        as real ones do."""
        simulated, hosts = None, None
        now_s = asyncio.get_running_loop().time
        if self.settings.is_simulated:
            failures, begin = self.settings.simulated_failures, None
            if images is not None:
                transfers = ImageTransfers(images.client_context)
                running.start(transfers.run())
                begin = transfers.begin
            faults = BmcFaults(pace=self.settings.simulate_pace)
            simulated = SimulatedBmcs(now_s=now_s, rng=self._rng, faults=faults, failures=failures, transfers=begin)
            hosts = SimulatedHosts(simulated, now_s=now_s, rng=self._rng, faults=faults)
            self.simulated_bmcs = simulated
        return connect_of(BmcContext(simulated)), hosts

    def _simulate(self, running: ProcessTasks, relay: Relay, expected_zones: Collection[str]) -> None:
        async def dial(_address: str) -> Link:
            relays_end, devices_end = memory_link_pair(self.name, "simulator")
            running.start(relay.serve(relays_end))
            return devices_end

        agents = SimulatedAgents(self.replica, (self.name,), dial=dial, rng=self._rng)
        running.start(agents.run())
        if not self.settings.simulate:
            return
        self.simulator = Simulator(
            LocalRegistrar(self.replica, now_ms=self._now_ms, rng=self._rng, expected=expected_zones),
            (self.name,),
            dial=dial,
            rng=self._rng,
            dpus_per_zone=self.settings.simulate,
        )
        running.start(self.simulator.run())

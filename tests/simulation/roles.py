"""The components of a simulated process: assembled as in production, over simulated devices."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from commands.queries.status import LogLocation, StatusReporter
from commands.server import ApiServer
from deploy.composition.bmc_backends import BmcContext, connect_of
from deploy.composition.host_connections import HostConnections
from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.composition.roles import ActorContext, actors_of, relay_of, replica_of
from deploy.operations.device_tables import local_device_source, remote_device_source
from drivers.backends.bmc import Bmc
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.redfish.client import SCHEME
from drivers.relays.relay import Relay
from drivers.stall_detector import StallDetector
from eventstore.log import EventLog
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.replica import Replica
from tests.simulation.api import Api
from tests.simulation.logged_clusters import LoggedClusters
from tests.simulation.network import WiredBmc

if TYPE_CHECKING:
    from tests.simulation.process import Instance, Process


def start_roles(process: Process, instance: Instance, log: EventLog) -> None:
    """Start every component in the task group of this instance."""
    roles, now_ms, name = process.roles, process.now_ms, process.name

    def rng() -> random.Random:
        return random.Random(f"{process.rng.random()}")

    backends = connect_of(BmcContext(process.bmcs))

    def connect(address: str) -> Bmc:
        return WiredBmc(backends(address))

    buffer = DecisionBuffer() if "decisions" in roles else None
    replica = instance.replica = replica_of(
        roles, log, instance.store, name, now_ms=now_ms, rng=rng(), decisions=buffer
    )
    if _follows_clusters(process):
        roles |= {"kubernetes"}  # its actors follow DPU clusters, and rank among the processes that do
    ranks = instance.beacons = Beacons(log, replica, roles=sorted(roles), addresses={}, version="simulated", rng=rng())
    instance.spawn(replica.run(), "replica")
    instance.spawn(ranks.run(), "beacons")
    if buffer is not None:
        instance.spawn(DecisionWriter(replica, buffer, ranks, now_ms=now_ms, rng=rng()).run(), "decisions")
    if "relay" in roles:
        instance.relay = relay_of(replica, now_ms=now_ms, rng=rng())
        instance.spawn(_relay(replica, instance.relay), "relay")
    if "api" in roles:
        stall_detector = instance.stall_detector = StallDetector(replica, now_ms=now_ms)
        server = _server(replica, ranks, stall_detector, instance.relay, roles, now_ms=now_ms, rng=rng())
        instance.api = Api(server)
        instance.spawn(stall_detector.run(), "stall_detector")
    if "kubernetes" in process.roles:
        assert process.cluster is not None, "an edge has a source cluster"
        connect_cluster, settings = (
            partial(process.cluster.connect, instance.wire, instance.name),
            process.cluster.settings,
        )
        edge = instance.edge = KubernetesEdge(connect_cluster, replica, ranks, settings, now_ms=now_ms, rng=rng())
        instance.spawn(edge.run(), "kubernetes")
    hosts = HostConnections(simulated=process.hosts)
    if _follows_clusters(process):
        assert process.servers is not None
        clusters = LoggedClusters(replica, ranks, process.servers, instance.wire, name, now_ms=now_ms, rng=rng)
        hosts = HostConnections(clusters.api, process.hosts)
        for part, work in clusters.parts.items():
            instance.spawn(work.run(), part)
    installers = {SCHEME: process.redfish.installer()}
    context = ActorContext(replica, ranks, connect, hosts, now_ms, rng, installers=installers)
    for part, actor in actors_of(roles, context).items():
        instance.spawn(actor.run(), part)


def _follows_clusters(process: Process) -> bool:
    return process.servers is not None and "provisioner" in process.roles


def _server(
    replica: Replica,
    beacons: Beacons,
    stall_detector: StallDetector,
    relay: Relay | None,
    roles: frozenset[str],
    *,
    now_ms: Callable[[], int],
    rng: random.Random,
) -> ApiServer:
    """The services of the API, without a listener."""
    status = StatusReporter(
        replica,
        location=LogLocation("simulated"),
        roles=sorted(roles),
        addresses={},
        version="simulated",
        alive=beacons.alive,
        stalled=lambda: stall_detector.reasons,
    )
    source = local_device_source(relay) if relay is not None else remote_device_source(lambda: ())
    return ApiServer(
        replica, status=status, devices=source, listen="", now_ms=now_ms, rng=rng, supports=beacons.supports
    )


async def _relay(replica: Replica, relay: Relay) -> None:
    """Run a relay once its replica has caught up with the log."""
    await replica.ready()
    await relay.run()

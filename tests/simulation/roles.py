"""The components of a simulated process: assembled as in production, over simulated devices."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import aiohttp

from commands.queries.status import LogLocation, StatusReporter
from commands.server import ApiServer
from deploy.composition.bmc_backends import BmcContext, connect_of
from deploy.composition.roles import ActorContext, actors_of, relay_of, replica_of
from deploy.operations.device_tables import local_device_source, remote_device_source
from drivers.backends.bmc import Bmc
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.relays.relay import Relay
from drivers.stall_detector import StallDetector
from eventstore.log import EventLog
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.replica import Replica
from tests.simulation.api import Api
from tests.simulation.network import WiredBmc

if TYPE_CHECKING:
    from tests.simulation.process import Life, Process


def start_roles(process: Process, life: Life, log: EventLog) -> None:
    """Start every component in the task group of this life."""
    roles, now_ms, name = process.roles, process.now_ms, process.name

    def rng() -> random.Random:
        return random.Random(f"{process.rng.random()}")

    # No address of the simulation needs a session of HTTP.
    backends = connect_of(BmcContext(cast(aiohttp.ClientSession, None), process.bmcs))

    def connect(address: str) -> Bmc:
        return WiredBmc(backends(address))

    buffer = DecisionBuffer() if "decisions" in roles else None
    replica = life.replica = replica_of(roles, log, life.store, name, now_ms=now_ms, rng=rng(), decisions=buffer)
    ranks = life.beacons = Beacons(log, replica, roles=sorted(roles), addresses={}, version="simulated", rng=rng())
    life.spawn(replica.run(), "replica")
    life.spawn(ranks.run(), "beacons")
    if buffer is not None:
        life.spawn(DecisionWriter(replica, buffer, ranks, now_ms=now_ms, rng=rng()).run(), "decisions")
    if "relay" in roles:
        life.relay = relay_of(replica, now_ms=now_ms, rng=rng())
        life.spawn(_relay(replica, life.relay), "relay")
    if "api" in roles:
        stall_detector = life.stall_detector = StallDetector(replica, now_ms=now_ms)
        server = _server(replica, ranks, stall_detector, life.relay, roles, now_ms=now_ms, rng=rng())
        life.api = Api(server)
        life.spawn(stall_detector.run(), "stall_detector")
    context = ActorContext(replica, ranks, connect, now_ms, rng)
    for part, actor in actors_of(roles, context).items():
        life.spawn(actor.run(), part)


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
    board = StatusReporter(
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
        replica, status=board, devices=source, listen="", now_ms=now_ms, rng=rng, supports=beacons.supports
    )


async def _relay(replica: Replica, relay: Relay) -> None:
    """A relay, which distributes once its tables have caught up with the log."""
    await replica.ready()
    await relay.run()

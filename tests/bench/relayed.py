"""A relay of a plane in this process, and the time of joins to the agents that it serves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deploy.process.plane import Plane
from deploy.tls.certificates import Certificates
from deploy.tls.security import Security
from drivers.relays.latency import LatencyHistogram
from drivers.relays.relay import Relay, RelaySettings
from drivers.relays.replica_rules import ReplicaRules
from drivers.wire.agent_listener import AgentListener
from projections.installs.rows import Level
from tests.bench.cert_files import CertFiles
from tests.bench.planes import submit, until
from tests.bench.workload import joins, now_ms

SETTINGS = RelaySettings(handshakes_per_second=2_000, handshakes_at_once=4_000)
"""Limits that admit all agents at once, because benches measure the work and not its spreading."""


@asynccontextmanager
async def relayed(plane: Plane, cert_files: CertFiles | None, port: int = 0) -> AsyncIterator[tuple[Relay, int]]:
    """A relay of the plane, and its port for agents: a free one unless a port is given."""
    source, rng = ReplicaRules(plane.replica), random.Random(5)
    relay = plane.relay = Relay(source, name="bench", now_ms=now_ms, rng=rng, settings=SETTINGS)
    security = None if cert_files is None else Security(Certificates(*cert_files), now_ms)
    ssl, middleware = (None, None) if security is None else security.agents("/devices")
    running = asyncio.create_task(relay.run())
    guards = [middleware] if middleware else []
    try:
        async with AgentListener(
            relay.serve, relay.admit, host="127.0.0.1", port=port, ssl=ssl, middlewares=guards
        ) as listener:
            yield relay, listener.port
    finally:
        running.cancel()


async def timed_joins(
    plane: Plane, relay: Relay, count: int, zones: int, agents: int, *, first: int
) -> LatencyHistogram:
    """Send joins one by one, each after all agents have the former one. Returns the time to each agent."""
    latency = relay.latency[Level.APPLIED] = LatencyHistogram()
    for number, event in enumerate(joins(count, zones, per_record=1, first=first), start=1):
        await submit(plane, event)
        await until(lambda number=number: latency.count >= number * agents)  # type: ignore[misc]
    return latency


def connected(relay: Relay) -> int:
    """The number of agents that are connected."""
    return sum(len(zone.links) for zone in relay.zones.values())

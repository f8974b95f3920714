"""A relay that listens with mutual TLS, its page of device tables, and agents with certificates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from commands.rpc.denials import Denials
from deploy.operations import device_tables
from deploy.tls.certificates import Certificates
from deploy.tls.security import Security
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import SimulatedDevice
from drivers.relays.relay import Relay, RelaySettings
from drivers.wire.agent_listener import AgentListener
from drivers.wire.links import Link
from drivers.wire.websocket import Dialer
from tests.support.certs import CertFiles, CertIssuer
from tests.support.rule_source import Tables
from tests.support.served import now_ms

PATIENT = RelaySettings(handshakes_at_once=10_000)
"""Settings under which a busy machine closes no link as silent."""


class GuardedRelay(NamedTuple):
    """A relay, its address, and the issuer of its certificates."""

    relay: Relay
    address: str
    cert_issuer: CertIssuer
    cert_files: CertFiles
    certificates: Certificates
    denials: Denials
    security: Security


@asynccontextmanager
async def guarded_relay(
    folder: Path,
    tables: Tables,
    *,
    host_names: tuple[str, ...] = (),
    as_role: str = "plane/relay",
    clock: Callable[[], int] = now_ms,
    settings: RelaySettings = PATIENT,
) -> AsyncIterator[GuardedRelay]:
    """A listening relay; `as_role` is the role in the relay's own certificate."""
    cert_issuer = CertIssuer(folder / "certs")
    cert_files = cert_issuer.issue(as_role, *(host_names or ("127.0.0.1",)))
    security = Security(cert_files.certificates, clock)
    relay = Relay(tables, name="r", now_ms=lambda: 0, rng=random.Random(1), settings=settings)
    running = asyncio.create_task(relay.run())
    ssl, middleware = security.agents(device_tables.DEVICES_PATH)
    pages = {device_tables.DEVICES_PATH: device_tables.devices_handler(relay)}
    listener = AgentListener(
        relay.serve, relay.admit, host="127.0.0.1", port=0, ssl=ssl, pages=pages, middlewares=[middleware]
    )
    try:
        async with listener:
            address = f"127.0.0.1:{listener.port}"
            yield GuardedRelay(
                relay, address, cert_issuer, cert_files, security.certificates, security.denials, security
            )
    finally:
        running.cancel()


@asynccontextmanager
async def dialed(address: str, cert_files: CertFiles) -> AsyncIterator[Link]:
    """The agent's end of a link, driven by the test."""
    async with Dialer(cert_files.certificates.client_context) as dialer:
        link = await dialer.dial(address)
        try:
            yield link
        finally:
            await link.close()


@asynccontextmanager
async def agent_of(dpu: str, address: str, certificates: Certificates) -> AsyncIterator[Agent]:
    """A running agent of a DPU of zone `z`."""
    async with Dialer(certificates.client_context) as dialer:
        rng = random.Random(dpu)
        identity = AgentIdentity("z", dpu, "boot")
        agent = Agent(
            identity, [address], dial=dialer.dial, device=SimulatedDevice(rng=rng), store=MemoryTableStore(), rng=rng
        )
        running = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

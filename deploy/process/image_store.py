"""The image store of a process: its folder, its downloads, and its HTTPS server."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TypeVar

import aiohttp

from deploy.host.listen_addresses import listen_errors
from deploy.settings.settings import Address, Settings
from deploy.tls.security import Security
from deploy.tls.self_signed import self_signed, server_context
from drivers.images.content_store import KEY_BYTES, ContentStore
from drivers.images.images import Images
from drivers.images.installations import Installations, Joins
from drivers.images.joins import SimulatedJoins
from drivers.images.reports import ImageReports
from drivers.images.server import ImageServer, no_host
from drivers.images.sources import AllowedHosts, CheckedResolver, parse_hosts
from drivers.images.tokens import Tokens
from drivers.kubernetes.joins import KubernetesJoins
from drivers.resource_worlds import ResourceWorlds
from drivers.wire.bounded_listener import ConnectionLimits
from eventstore.errors import FatalError
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from schemas.kubernetes.api import KubernetesApi

_Result = TypeVar("_Result")

SPARE_CONNECTIONS = 100
"""Connections to the server beyond the responses that are sent at the same time: those that wait for their turn."""


@dataclass(frozen=True, slots=True)
class ImageStore:
    """The parts of an image store. `client_context` makes the TLS context of clients in this process. `knows_hosts`
    says whether the server knows the agents of hosts by their certificates."""

    images: Images
    reports: ImageReports
    installations: Installations
    server: ImageServer
    address: Address
    client_context: Callable[[], ssl.SSLContext]
    knows_hosts: bool

    async def run(self) -> None:
        """Keep the images and report their phases, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.images.run())
            tasks.create_task(self.reports.run())


@asynccontextmanager
async def open_image_store(
    settings: Settings,
    folder: Path,
    replica: Replica,
    ranks: Ranks,
    security: Security | None,
    *,
    apis: Callable[[str], KubernetesApi | None],
    now_ms: Callable[[], int],
    rng: Random,
) -> AsyncIterator[ImageStore]:
    """The image store in a folder. It serves while the context lasts. `apis` has the API servers of DPU clusters."""
    store = ContentStore(folder)
    try:
        await on_thread(store.open)
        tokens = Tokens(await on_thread(lambda: store.signing_key(os.urandom(KEY_BYTES))))
    except OSError as error:
        raise FatalError(f"images_dir: {folder} cannot be used: {error.strerror}") from error
    server_tls, client_tls = _tls(settings, folder, security, now_ms)
    hosts, is_exclusive = parse_hosts(settings.image_hosts)
    allowed = AllowedHosts(hosts, is_exclusive=is_exclusive)
    connector = aiohttp.TCPConnector(resolver=CheckedResolver(aiohttp.ThreadedResolver(), allowed), limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        images = Images(replica, store, session, allowed, on_thread, now_ms=now_ms, rng=rng)
        url = [settings.images_url.rstrip("/")]
        worlds = ResourceWorlds(replica)
        installations = Installations(
            worlds,
            images,
            tokens,
            store.path,
            on_thread,
            base_url=lambda: url[0],
            joins=_joins(settings, apis, now_ms),
            row_of=worlds.zone_row,
            now_ms=now_ms,
        )
        server = ImageServer(
            settings.images,
            installations,
            images,
            on_thread,
            ssl=server_tls,
            streams_at_once=settings.image_streams,
            limits=ConnectionLimits(settings.image_streams + SPARE_CONNECTIONS, settings.image_streams),
            host_of=no_host if security is None else security.host_of,
        )
        with listen_errors("images", settings.images):
            address = Address(*await server.start())
        url[0] = url[0] or f"https://{address}"
        reports = ImageReports(images, replica, ranks, now_ms=now_ms, rng=rng)
        try:
            yield ImageStore(
                images, reports, installations, server, address, client_tls, knows_hosts=security is not None
            )
        finally:
            await server.stop()


async def on_thread(work: Callable[[], _Result]) -> _Result:
    """Run blocking work on a thread. A cancelled caller still waits for its end: the work may use an open file."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _joins(settings: Settings, apis: Callable[[str], KubernetesApi | None], now_ms: Callable[[], int]) -> Joins:
    return SimulatedJoins(os.urandom) if settings.is_simulated else KubernetesJoins(apis, os.urandom, now_ms)


def _tls(
    settings: Settings, folder: Path, security: Security | None, now_ms: Callable[[], int]
) -> tuple[ssl.SSLContext, Callable[[], ssl.SSLContext]]:
    """The TLS contexts of the server and of clients in this process."""
    if security is not None:
        return security.certificates.server_context(asks=True), security.certificates.client_context
    hosts = [settings.images.host, "localhost", "127.0.0.1"]
    cert, key = self_signed(folder, hosts, datetime.fromtimestamp(now_ms() / 1_000, UTC))
    return server_context(cert, key), lambda: ssl.create_default_context(cafile=str(cert))

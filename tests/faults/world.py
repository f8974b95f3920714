"""A plane of real processes on one of the engines, with devices and clients. Every part can be hit by faults."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import grpc

from deploy.host.storage import LogSource
from schemas.api.stubs import QueriesStub
from tests.faults.brokers import Brokers, cluster
from tests.faults.clients import RECONNECTING, Client
from tests.faults.disk import Disk
from tests.faults.network_lab import HUB, NetworkLab
from tests.faults.proxy import Proxy, proxied
from tests.faults.roles import AGENTS, API, Role, serve_arguments, simulator_arguments
from tests.faults.workload import ZONE_NAMES, Workload
from tests.simulation.history import History
from tests.support.certs import CertFiles, CertIssuer

Engine = Literal["embedded", "kafka"]
PARTITIONS = 3
DPUS_PER_ZONE = 2
CLIENTS = 8
PAUSE_S = 0.05
PREFIX = "faults"
DAY = timedelta(days=1)
KAFKA_ROLES = ("api-1", "api-2", "relay-1", "relay-2", "provisioner-1", "provisioner-2")


class World:
    """The parts of a run on one engine."""

    def __init__(self, engine: Engine, network_lab: NetworkLab, folder: Path, rng: random.Random) -> None:
        folder.mkdir(parents=True)
        self.engine: Engine = engine
        self.network_lab = network_lab
        self.folder = folder
        self.rng = rng
        self.history = History()
        self.roles: list[Role] = []
        self.cert_issuer = CertIssuer(folder / "certs", now=datetime.now(UTC) - DAY)
        self.disks: dict[str, Disk] = {}
        """The disk of each role, with its log or its saved state."""
        self.brokers: Brokers | None = None
        self.proxies: dict[str, Proxy] = {}
        """The proxies by their traffic: `log on BROKER`, `api`, `agents of RELAY`."""
        self.clients: list[Client] = []
        self.checking = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self.simulator: Role
        self.queries: QueriesStub
        self.viewer = self.cert_files("viewer/vic")

    @property
    def log_source(self) -> LogSource:
        """The location of the log, for readers outside the plane."""
        if self.brokers is None:
            return LogSource(self.disks["plane"].folder / "data")
        return LogSource(None, self.brokers.bootstrap, PREFIX)

    def roles_of(self, kind: str) -> list[Role]:
        """The roles with this prefix in their name; the embedded role has every prefix."""
        return [role for role in self.roles if role.name.startswith(kind) or role.name == "plane"]

    @property
    def servers(self) -> list[str]:
        return [role.api for role in self.roles_of("api")]

    @property
    def devices(self) -> int:
        return DPUS_PER_ZONE * len(ZONE_NAMES)

    @property
    def kills(self) -> int:
        brokers = self.brokers.all if self.brokers else ()
        return sum(each.kills for each in (*self.roles, *brokers))

    def cert_files(self, principal: str, *hosts: str) -> CertFiles:
        """Certificates whose validity exceeds every injected clock error."""
        return self.cert_issuer.issue(principal, *hosts, now=datetime.now(UTC) - DAY, valid=2 * DAY)

    @property
    def states(self) -> dict[str, Path]:
        """The folder of each role's saved state."""
        inner = "data/state" if self.engine == "embedded" else "state"
        return {name: disk.folder / inner for name, disk in self.disks.items()}

    async def all_ready(self) -> None:
        """Wait until every process is ready."""
        if self.brokers is not None:
            await self.brokers.ready()
        for role in (*self.roles, self.simulator):
            await role.ready()

    async def role(self, name: str, *arguments: str) -> Role:
        lab_host = await self.network_lab.lab_host(name)
        cert_files = self.cert_files(f"plane/{name}", lab_host.address, HUB)
        role = Role(lab_host, serve_arguments(lab_host, cert_files, *arguments), self.folder, self.viewer)
        self.roles.append(role)
        return role

    async def disk(self, name: str) -> Disk:
        self.disks[name] = await Disk.mounted(self.folder / f"disk of {name}")
        return self.disks[name]

    def client(self, name: str, servers: Sequence[str]) -> Client:
        rng = random.Random(self.rng.getrandbits(64))
        cert_files = self.cert_files("operator/ann")
        workload = Workload(rng, PARTITIONS)
        return Client(name, servers, self.history, cert_files=cert_files, rng=rng, workload=workload, pause_s=PAUSE_S)


@asynccontextmanager
async def world_of(engine: Engine, network_lab: NetworkLab, folder: Path, rng: random.Random) -> AsyncIterator[World]:
    """A running plane with its devices. Clients are created but not started."""
    world = World(engine, network_lab, folder, rng)
    async with AsyncExitStack() as stack:
        stack.callback(world.checking.shutdown)
        if engine == "embedded":
            disk = await world.disk("plane")
            await world.role("plane", "--data", str(disk.folder / "data"), "--partitions", str(PARTITIONS))
        else:
            world.brokers = await stack.enter_async_context(cluster(network_lab, folder))
            await _add_kafka_roles(world, world.brokers)
        world.proxies["api"] = await _add_proxy(stack, 18_080, world.roles_of("api")[-1], API)
        for number, relay in enumerate(world.roles_of("relay")):
            world.proxies[f"agents of {relay.name}"] = await _add_proxy(stack, 18_082 + number, relay, AGENTS)
        relays = [proxy.address for name, proxy in world.proxies.items() if name.startswith("agents")]
        lab_host = await network_lab.lab_host("devices")
        arguments = simulator_arguments(
            lab_host, world.cert_files("simulator/lab"), relays, world.servers, DPUS_PER_ZONE
        )
        world.simulator = Role(lab_host, arguments, folder, world.viewer)
        for role in (*world.roles, world.simulator):
            stack.push_async_callback(role.stop)
        for role in (*world.roles, world.simulator):
            role.start()
        await world.all_ready()
        servers = [*world.servers, world.proxies["api"].address]
        channel = grpc.aio.secure_channel(world.servers[0], world.viewer.channel, options=RECONNECTING)
        world.queries = QueriesStub(await stack.enter_async_context(channel))
        world.clients = [world.client(f"client-{number}", servers) for number in range(CLIENTS)]
        for client in world.clients:
            stack.push_async_callback(client.close)
        yield world


async def _add_kafka_roles(world: World, brokers: Brokers) -> None:
    """Start two processes of each role. `api-2` reaches the brokers through their proxies."""
    for broker in brokers.all:
        world.proxies[f"log on {broker.name}"] = broker.proxy
    for name in KAFKA_ROLES:
        bootstrap = brokers.proxied if name == "api-2" else brokers.bootstrap
        disk = await world.disk(name)
        log = ("--kafka", bootstrap, "--topic-prefix", PREFIX, "--partitions", str(PARTITIONS))
        await world.role(name, *log, "--role", name.split("-", maxsplit=1)[0], "--state", str(disk.folder / "state"))


async def _add_proxy(stack: AsyncExitStack, port: int, role: Role, port_behind: int) -> Proxy:
    return await stack.enter_async_context(proxied((HUB, port), (role.lab_host.address, port_behind)))

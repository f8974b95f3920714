"""The gRPC server: the services Commands, Queries and Streams, health, reflection, and the tasks that belong to them.

With `credentials` it listens with TLS and asks every client for a certificate; `access` then authenticates and
authorizes each call. `credentials` and `access` are given together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.internal import api_implementation
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from commands.fold_versions import FoldVersions, SupportedVersions
from commands.handlers.command_handler import CommandHandler
from commands.handlers.dry_runs import DryRunHandler
from commands.handlers.hosts import HostHandler
from commands.handlers.join import JoinHandler
from commands.handlers.join_stream import JoinStreamHandler
from commands.handlers.leave import LeaveHandler
from commands.handlers.resources import ResourceHandler
from commands.handlers.secrets import SecretHandler, SecretKeeper
from commands.handlers.service import CommandsService
from commands.handlers.upgrade import UpgradeHandler
from commands.queries.as_of import AsOfSource, NoAsOfSource, with_as_of
from commands.queries.command_status import CommandStatus
from commands.queries.fold_reader import FoldReader
from commands.queries.position_waiter import PositionWaiter
from commands.queries.service import QueriesService
from commands.queries.status import DeviceSource, StatusReporter
from commands.rpc import authorization
from commands.rpc.access import AccessControl
from commands.rpc.limits import DEFAULTS, Admission, Limits
from commands.rpc.middleware import RpcMiddleware, Tracing
from commands.streams.events import EventReader
from commands.streams.lasting import LastingStreams
from commands.streams.service import StreamsService
from commands.streams.sessions import SessionKeeper
from commands.streams.watches import Watches
from eventstore.errors import FatalError
from eventstore.replicas.beacons import Ranks, SingleReplica
from eventstore.replicas.replica import Replica
from schemas.api import dpuplane_pb2 as pb

_UNCOMPRESSED = 1
"""Bitset of compression algorithms: none. Our clients never compress, and 1 MiB compressed can expand to a gigabyte."""

_FLUSH_S = 0.1
"""Time to send pending answers and the last messages to watchers before connections are closed."""

_SERVICES = pb.DESCRIPTOR.services_by_name


class ApiServer:
    """Serves the API of one replica. `admission`, `command_handler` and `metrics` have counters. Other parts of this
    process call `queries` directly, without gRPC."""

    def __init__(
        self,
        replica: Replica,
        *,
        status: StatusReporter,
        devices: DeviceSource,
        listen: str,
        now_ms: Callable[[], int],
        rng: random.Random,
        past: AsOfSource | None = None,
        limits: Limits = DEFAULTS,
        access: AccessControl | None = None,
        credentials: grpc.ServerCredentials | None = None,
        has_reflection: bool = True,
        tracing: Tracing | None = None,
        supports: SupportedVersions | None = None,
        ranks: Callable[[], Ranks] | None = None,
        secrets: SecretKeeper | None = None,
    ) -> None:
        if unruled := authorization.unlisted_methods(_SERVICES.values()):
            raise FatalError(
                f"commands.rpc.authorization: {', '.join(unruled)} must have an entry that names the roles "
                "that may call it"
            )
        if api_implementation.Type() != "upb":
            raise FatalError(f"protobuf: parser '{api_implementation.Type()}' must be 'upb', which limits nesting")
        self._limits = limits
        self._credentials = credentials
        self._has_reflection = has_reflection
        self._listen = listen
        self._streams = LastingStreams(limits.lasting_streams)
        self.admission = Admission(limits, asyncio.get_running_loop().time)
        self.command_handler = CommandHandler(replica, now_ms, rng)
        self._middleware = RpcMiddleware(limits, self.admission, access, tracing)
        self.metrics = self._middleware.metrics
        position_waiter = PositionWaiter(replica)
        reader = FoldReader(replica, position_waiter)
        self._watches = Watches(replica, reader, position_waiter, self._streams)
        join_stream = JoinStreamHandler(self.command_handler, self.admission, limits.stream_in_flight)
        leave_handler = LeaveHandler(self.command_handler, reader, position_waiter)
        versions = FoldVersions(replica, supports, now_ms)
        now = QueriesService(reader, CommandStatus(replica, now_ms, reader.with_fleet), status, devices)
        self.queries = with_as_of(now, past or NoAsOfSource())
        commands = CommandsService(
            self.command_handler,
            join_stream,
            JoinHandler(self.command_handler, reader, position_waiter),
            leave_handler,
            DryRunHandler(replica, now_ms),
            resource_handler=ResourceHandler(self.command_handler, replica, now_ms),
            secret_handler=SecretHandler(replica, secrets),
            host_handler=HostHandler(self.command_handler, replica, now_ms),
            reader=reader,
            upgrade_handler=UpgradeHandler(self.command_handler, replica, versions),
            versions=versions,
            replica_name=replica.name,
        )
        ranks = ranks or (lambda: SingleReplica(replica.name))
        opened, streams = commands.open_session, self._streams
        self.sessions = SessionKeeper(opened, streams, replica, ranks, now_ms=now_ms, rng=rng)
        self._served: dict[str, object] = {
            "Commands": commands,
            "Queries": self.queries,
            "Streams": StreamsService(EventReader(replica.log, self._streams), self._watches, self.sessions),
        }
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def handlers(self) -> tuple[grpc.GenericRpcHandler[Any, Any], ...]:
        """Handlers of all services, for any transport. Watches need the task that `start` creates."""
        return tuple(self._middleware.handlers(_SERVICES[name], servicer) for name, servicer in self._served.items())

    async def start(self) -> str:
        """Listen and serve; returns the address, HOST:PORT. Raises FatalError if the address cannot be bound."""
        server = self._server = grpc.aio.server(options=self._options())
        server.add_generic_rpc_handlers(self.handlers())
        names = [service.full_name for service in _SERVICES.values()]
        by_name = _GenericHandlersOnly(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, by_name)
        if self._has_reflection:
            listed = [*names, health.SERVICE_NAME, reflection.SERVICE_NAME]
            has_reflection = reflection.aio.ReflectionServicer(listed)  # type: ignore[attr-defined]
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(has_reflection, by_name)
        try:
            port = self._add_port(server)
        except RuntimeError as error:
            why = "the address is in use, or not one of this machine"  # the library gives no reason
            raise FatalError(f"listen: {self._listen} cannot be listened on: {why}") from error
        self._tasks = [asyncio.create_task(self._watches.run()), asyncio.create_task(self.sessions.run())]
        await server.start()
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"{self._listen.rpartition(':')[0]}:{port}"

    def _add_port(self, server: grpc.aio.Server) -> int:
        if self._credentials is None:
            return server.add_insecure_port(self._listen)
        return server.add_secure_port(self._listen, self._credentials)

    async def stop(self, grace_s: float) -> None:
        """Accept no new calls, let calls under way end within the grace period, then cancel them and all watchers."""
        await self._health.enter_graceful_shutdown()
        self._streams.stop()
        if self._server is not None:
            await self._drain(self._server, grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self, server: grpc.aio.Server, grace_s: float) -> None:
        """Wait for calls under way, except health watchers: they never end by themselves and have been notified
        already."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.stop(grace_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.admission.drained()
            await server.stop(min(grace_s, _FLUSH_S))

    async def wait(self) -> None:
        """Return when the server has stopped. Raises if a task of the server has failed."""
        if self._tasks:
            ended, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                if not task.cancelled():
                    task.result()

    def _options(self) -> list[tuple[str, int]]:
        limits = self._limits
        return [
            ("grpc.max_receive_message_length", limits.message_bytes_max),
            ("grpc.max_metadata_size", limits.metadata_bytes_max),
            ("grpc.absolute_max_metadata_size", limits.metadata_bytes_max),
            ("grpc.max_concurrent_streams", limits.streams_per_connection),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.server_handshake_timeout_ms", round(limits.handshake_s * 1_000)),
            ("grpc.keepalive_time_ms", round(limits.keepalive_s * 1_000)),
            ("grpc.keepalive_timeout_ms", round(limits.keepalive_answer_s * 1_000)),
            ("grpc.max_connection_idle_ms", round(limits.idle_s_max * 1_000)),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", round(limits.ping_s_min * 1_000)),
            ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
            ("grpc.so_reuseport", 0),
        ]


class _GenericHandlersOnly:
    """A server that ignores the registration of single methods by generated code. grpc.aio waits for the next call of
    each registered method separately, and renews all of these waits at every call of any method.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, object]) -> None:
        """Do nothing: the server finds the methods through the generic handlers."""

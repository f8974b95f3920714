"""The Commands service: each method validates a request, appends one event and returns what the fold decided."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TypeVar

from commands.fold_versions import FoldVersions
from commands.handlers.command_handler import CommandHandler, EventBuilder
from commands.handlers.dry_runs import DryRunHandler
from commands.handlers.hosts import HostHandler
from commands.handlers.join import JoinHandler
from commands.handlers.join_stream import JoinStreamHandler
from commands.handlers.leave import LeaveHandler
from commands.handlers.resources import ResourceHandler
from commands.handlers.secrets import SecretHandler
from commands.handlers.upgrade import UpgradeHandler
from commands.queries.fold_reader import FoldReader
from commands.requests import cliques, dpus, fleet, nodes
from commands.requests.rollouts import request_rollout
from commands.rpc.middleware import Call, UndecodableRequest
from eventstore.log import FLEET_0
from projections.fleet.fold import FleetFold2
from schemas.api import dpuplane_pb2 as pb

R = TypeVar("R")


class CommandsService:
    """Methods of the service in snake case, called by `commands.rpc.middleware.RpcMiddleware`."""

    def __init__(
        self,
        command_handler: CommandHandler,
        join_stream: JoinStreamHandler,
        join_handler: JoinHandler,
        leave_handler: LeaveHandler,
        dry_runs: DryRunHandler,
        *,
        resource_handler: ResourceHandler,
        secret_handler: SecretHandler,
        host_handler: HostHandler,
        reader: FoldReader,
        upgrade_handler: UpgradeHandler,
        versions: FoldVersions,
        replica_name: str,
    ) -> None:
        self._handler = command_handler
        self._reader = reader
        self._join_stream = join_stream
        self._join_handler = join_handler
        self._leave_handler = leave_handler
        self._dry_run_handler = dry_runs
        self._resource_handler = resource_handler
        self._secret_handler = secret_handler
        self._host_handler = host_handler
        self._upgrade_handler = upgrade_handler
        self._versions = versions
        self._replica_name = replica_name

    async def join_nodes(self, request: pb.JoinNodesRequest, call: Call) -> pb.CommandResult:
        return await self._join_handler.join(request, call)

    async def change_nodes(self, request: pb.ChangeNodesRequest, call: Call) -> pb.CommandResult:
        return await self._join_handler.change(request, call)

    async def leave_nodes(self, request: pb.LeaveNodesRequest, call: Call) -> pb.CommandResult:
        return await (self._dry_run_handler if request.dry_run else self._leave_handler).leave(request, call)

    async def join_nodes_stream(
        self, requests: AsyncIterator[pb.JoinNodesRequest | UndecodableRequest], call: Call
    ) -> pb.JoinSummary:
        return await self._join_stream.join(requests, call)

    async def update_zone(self, request: pb.UpdateZoneRequest, call: Call) -> pb.CommandResult:
        return await self._edit(fleet.update_zone, request, call)

    async def delete_zone(self, request: pb.DeleteZoneRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(nodes.delete_zone, request, call)

    async def register_dpu(self, request: pb.RegisterDpuRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(dpus.register, request, call)

    async def request_lifecycle(self, request: pb.RequestLifecycleRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(dpus.request_lifecycle, request, call)

    async def claim_indices(self, request: pb.ClaimIndicesRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(cliques.claim_indices, request, call)

    async def release_indices(self, request: pb.ReleaseIndicesRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(cliques.release_indices, request, call)

    async def set_clique_capacity(self, request: pb.SetCliqueCapacityRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(cliques.set_clique_capacity, request, call)

    async def report_daemon_readiness(self, request: pb.ReportDaemonReadinessRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(cliques.report_daemon_readiness, request, call)

    async def open_session(self, request: pb.OpenSessionRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(partial(cliques.open_session, edge=self._replica_name), request, call)

    async def set_policy(self, request: pb.SetPolicyRequest, call: Call) -> pb.CommandResult:
        if request.dry_run:
            return await self._dry_run_handler.set_policy(request, call)
        if request.HasField("staging"):
            await self._versions.ensure(FLEET_0, FleetFold2.version, call.principal, call.timeout_s)
        return await self._edit(fleet.set_policy, request, call)

    async def delete_policy(self, request: pb.DeletePolicyRequest, call: Call) -> pb.CommandResult:
        if request.dry_run:
            return await self._dry_run_handler.delete_policy(request, call)
        if request.HasField("staging"):
            await self._versions.ensure(FLEET_0, FleetFold2.version, call.principal, call.timeout_s)
        return await self._edit(fleet.delete_policy, request, call)

    async def request_stages(self, request: pb.RequestStagesRequest, call: Call) -> pb.CommandResult:
        if request.policy:
            await self._versions.ensure(FLEET_0, FleetFold2.version, call.principal, call.timeout_s)
        return await self._handler.handle(fleet.request_stages, request, call)

    async def approve_hold(self, request: pb.ApproveHoldRequest, call: Call) -> pb.CommandResult:
        return await self._edit(fleet.approve_hold, request, call)

    async def reject_hold(self, request: pb.RejectHoldRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(fleet.reject_hold, request, call)

    async def set_budget(self, request: pb.SetBudgetRequest, call: Call) -> pb.CommandResult:
        return await self._edit(fleet.set_budget, request, call)

    async def freeze_writes(self, request: pb.FreezeWritesRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(fleet.freeze_writes, request, call)

    async def upgrade_fold_version(self, request: pb.UpgradeFoldVersionRequest, call: Call) -> pb.CommandResult:
        return await self._upgrade_handler.upgrade_fold_version(request, call)

    async def thaw_writes(self, request: pb.ThawWritesRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(fleet.thaw_writes, request, call)

    async def apply_resources(self, request: pb.ApplyResourcesRequest, call: Call) -> pb.CommandResult:
        return await self._resource_handler.apply(request, call)

    async def delete_resources(self, request: pb.DeleteResourcesRequest, call: Call) -> pb.CommandResult:
        return await self._resource_handler.delete(request, call)

    async def request_rollout(self, request: pb.RequestRolloutRequest, call: Call) -> pb.CommandResult:
        return await self._handler.handle(request_rollout, request, call)

    async def keep_secrets(self, request: pb.KeepSecretsRequest, call: Call) -> pb.KeepSecretsResponse:
        return await self._secret_handler.keep(request)

    async def report_host(self, request: pb.ReportHostRequest, call: Call) -> pb.CommandResult:
        return await self._host_handler.report(request, call)

    async def _edit(self, build_event: EventBuilder[R], request: R, call: Call) -> pb.CommandResult:
        """Handle a command that may be held. If the command is repeated under its id, the result is the present status
        of its hold."""
        return self._reader.with_hold(await self._handler.handle(build_event, request, call))

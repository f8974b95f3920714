"""The Commands service: it states. Each method checks a shape, appends one record and answers from the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TypeVar

from commands.queries.reader import Reader
from commands.requests import cliques, dpus, fleet, nodes
from commands.rpc.middleware import Call, UndecodableRequest
from commands.stating.bulk import Bulk
from commands.stating.desk import Desk, Shape
from commands.stating.dry_runs import DryRuns
from commands.stating.joining import Joining
from commands.stating.leaving import Leaving
from commands.stating.raising import Raising
from schemas.api import dpuplane_pb2 as pb

R = TypeVar("R")


class CommandsService:
    """Methods of the service in snake case, called by `commands.rpc.middleware.Guard`."""

    def __init__(
        self,
        desk: Desk,
        bulk: Bulk,
        joining: Joining,
        leaving: Leaving,
        dry_runs: DryRuns,
        *,
        reader: Reader,
        raising: Raising,
        replica_name: str,
    ) -> None:
        self._desk = desk
        self._reader = reader
        self._bulk = bulk
        self._joining = joining
        self._leaving = leaving
        self._dry_runs = dry_runs
        self._raising = raising
        self._replica_name = replica_name

    async def join_nodes(self, request: pb.JoinNodesRequest, call: Call) -> pb.Answer:
        return await self._joining.join(request, call)

    async def change_nodes(self, request: pb.ChangeNodesRequest, call: Call) -> pb.Answer:
        return await self._joining.change(request, call)

    async def leave_nodes(self, request: pb.LeaveNodesRequest, call: Call) -> pb.Answer:
        return await (self._dry_runs if request.dry_run else self._leaving).leave(request, call)

    async def join_nodes_stream(
        self, requests: AsyncIterator[pb.JoinNodesRequest | UndecodableRequest], call: Call
    ) -> pb.JoinSummary:
        return await self._bulk.join(requests, call)

    async def describe_zone(self, request: pb.DescribeZoneRequest, call: Call) -> pb.Answer:
        return await self._edit(fleet.describe_zone, request, call)

    async def delete_zone(self, request: pb.DeleteZoneRequest, call: Call) -> pb.Answer:
        return await self._desk.state(nodes.delete_zone, request, call)

    async def register_dpu(self, request: pb.RegisterDpuRequest, call: Call) -> pb.Answer:
        return await self._desk.state(dpus.register, request, call)

    async def request_lifecycle(self, request: pb.RequestLifecycleRequest, call: Call) -> pb.Answer:
        return await self._desk.state(dpus.request, request, call)

    async def claim_index(self, request: pb.ClaimIndexRequest, call: Call) -> pb.Answer:
        return await self._desk.state(cliques.claim, request, call)

    async def release_index(self, request: pb.ReleaseIndexRequest, call: Call) -> pb.Answer:
        return await self._desk.state(cliques.release, request, call)

    async def set_capacity(self, request: pb.SetCapacityRequest, call: Call) -> pb.Answer:
        return await self._desk.state(cliques.capacity, request, call)

    async def report_ready(self, request: pb.ReportReadyRequest, call: Call) -> pb.Answer:
        return await self._desk.state(cliques.ready, request, call)

    async def open_session(self, request: pb.OpenSessionRequest, call: Call) -> pb.Answer:
        return await self._desk.state(partial(cliques.session, edge=self._replica_name), request, call)

    async def set_policy(self, request: pb.SetPolicyRequest, call: Call) -> pb.Answer:
        if request.dry_run:
            return await self._dry_runs.set_policy(request, call)
        return await self._edit(fleet.set_policy, request, call)

    async def delete_policy(self, request: pb.DeletePolicyRequest, call: Call) -> pb.Answer:
        if request.dry_run:
            return await self._dry_runs.delete_policy(request, call)
        return await self._edit(fleet.delete_policy, request, call)

    async def approve_hold(self, request: pb.ApproveHoldRequest, call: Call) -> pb.Answer:
        return await self._edit(fleet.approve_hold, request, call)

    async def reject_hold(self, request: pb.RejectHoldRequest, call: Call) -> pb.Answer:
        return await self._desk.state(fleet.reject_hold, request, call)

    async def set_budget(self, request: pb.SetBudgetRequest, call: Call) -> pb.Answer:
        return await self._edit(fleet.set_budget, request, call)

    async def freeze(self, request: pb.FreezeRequest, call: Call) -> pb.Answer:
        return await self._desk.state(fleet.freeze, request, call)

    async def raise_fold_version(self, request: pb.RaiseFoldVersionRequest, call: Call) -> pb.Answer:
        return await self._raising.raise_version(request, call)

    async def thaw(self, request: pb.ThawRequest, call: Call) -> pb.Answer:
        return await self._desk.state(fleet.thaw, request, call)

    async def _edit(self, shape: Shape[R], request: R, call: Call) -> pb.Answer:
        """A command that may be held. Repeated under its id, it is answered with what became of the hold since."""
        return self._reader.with_hold(await self._desk.state(shape, request, call))

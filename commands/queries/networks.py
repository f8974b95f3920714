"""Queries of the network documents of DPUs."""

from __future__ import annotations

from commands.queries import explain
from commands.queries.fold_reader import FoldReader
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import ZONES
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb


class NetworkQueries:
    """Answers the queries about network documents."""

    _reader: FoldReader

    async def get_dpu_network(self, request: pb.GetDpuNetworkRequest, call: Call) -> pb.DpuNetwork:
        await self._reader.wait_for_position(request.min_position, (ZONES,), call)
        zone = explain.zone_of_dpu(self._reader, request.dpu, request.zone)
        number = self._reader.partition_number(zone)
        state = self._reader.zones(number)
        row = state.networks.rows.get(request.dpu)
        if row is None:
            reason = f"dpu: {quoted(request.dpu)} has no network document: no interface and no chain selects it"
            raise NotFound(Fault(reason, Reason.RESOURCE_NOT_FOUND))
        return pb.DpuNetwork(
            dpu=request.dpu,
            zone=zone,
            wanted_version=row.version,
            applied_version=row.applied,
            digest=row.digest,
            unresolved=row.unresolved,
            refusal=row.refusal,
            document=state.network_texts.rows[row.digest].text,
            position=self._reader.token(ZONES, numbers=[number]),
        )

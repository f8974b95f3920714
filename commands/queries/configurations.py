"""Queries of the configurations that DPUs are installed with. They show no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from commands.queries.fold_reader import FoldReader
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.errors import PermanentError
from eventstore.log import RESOURCES
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import cluster_of, flavor_of, inputs_of
from projections.resources.configuration.inputs import Join
from projections.resources.configuration.render import rendered
from projections.resources.go_templates.render import Fault as RenderFault
from projections.resources.install_identity import install_identity
from projections.resources.kinds import DPU
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted
from schemas.api import dpuplane_pb2 as pb

UNKNOWN_ENDPOINT, UNKNOWN_HASH = "API-SERVER:6443", "sha256:"
"""Stand for what only a connection to the DPU cluster tells."""


class ConfigurationQueries:
    """Answers the queries about configurations."""

    _reader: FoldReader

    async def get_dpu_configuration(self, request: pb.GetDpuConfigurationRequest, call: Call) -> pb.DpuConfiguration:
        await self._reader.wait_for_position(request.min_position, (RESOURCES,), call)
        reader = self._reader
        numbers = [reader.partition_number(request.source)] if request.source else list(reader.partition_numbers)
        worlds = await reader.derive_resources(numbers)
        found = [*_wanted(request, worlds)]
        if not found:
            reason = f"dpu: no object wants a DPU {quoted(request.dpu)}"
            raise NotFound(Fault(reason, Reason.RESOURCE_NOT_FOUND))
        if len(found) > 1:
            raise PermanentError(
                f"namespace: must be given, because {len(found)} objects are named {quoted(request.dpu)}"
            )
        ((world, wanted),) = found
        message = _configuration(world, wanted)
        message.position = reader.token(RESOURCES, numbers=numbers)
        return message


def _wanted(request: pb.GetDpuConfigurationRequest, worlds: Mapping[int, World]) -> Iterator[tuple[World, Wanted]]:
    for number in sorted(worlds):
        world = worlds[number]
        places = {(each.at.source, each.at.namespace): None for each in world.derivation.sets.values()}
        for source, namespace in places:
            if request.source in ("", source) and request.namespace in ("", namespace):
                wanted = world.derivation.dpus.winners.get(ObjectId(source, DPU, namespace, request.dpu).key)
                if wanted is not None:
                    yield world, wanted


def _configuration(world: World, wanted: Wanted) -> pb.DpuConfiguration:
    flavor, cluster = flavor_of(world, wanted), cluster_of(world, wanted)
    join = None if cluster is None else _masked_join(world, cluster)
    inputs = flavor if isinstance(flavor, RenderFault) else inputs_of(world, wanted, flavor, join)
    found = inputs if isinstance(inputs, RenderFault) else rendered(inputs, masks_password=True)
    if isinstance(found, RenderFault):
        raise PermanentError(f"configuration: {found}")
    at = wanted.at
    of_cluster = object_id(cluster) if cluster is not None else None
    return pb.DpuConfiguration(
        dpu=at.name,
        namespace=at.namespace,
        source=at.source,
        identity=install_identity(world.state, wanted) or "",
        cluster=f"{of_cluster.namespace}/{of_cluster.name}" if of_cluster is not None else "",
        bf_cfg=found.bf_cfg,
        user_data=found.user_data,
    )


def _masked_join(world: World, cluster: str) -> Join:
    """How the DPU joins, without a token: as far as it is observed of the cluster."""
    seen = world.observed.get(cluster)
    fields = seen.fields if seen is not None else {}
    return Join(str(fields.get("endpoint") or UNKNOWN_ENDPOINT), str(fields.get("caHash") or UNKNOWN_HASH))

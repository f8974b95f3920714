"""Finalizers: which objects have one, and what an object that is being deleted waits for.

The finalizers have DPF's names, which scripts of its users look for. An object keeps its finalizer while something of
it remains: objects that were made from it, a DPU that its zone has not deleted, or other objects that refer to it.
Every reason names the object that must be changed or deleted.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping

from projections.resources import kinds
from projections.resources.blame import Blame
from projections.resources.conditions.deletion import unreleased, users
from projections.resources.conditions.world import World
from projections.resources.kinds import short_name
from projections.resources.state import object_id
from schemas.resources.dpf import (
    chain,
    cluster,
    credentials,
    deployment,
    device,
    dpu,
    dpu_set,
    images,
    interface,
    networks,
    node,
    operator_config,
    service,
    service_template,
)

FINALIZERS: Mapping[str, tuple[str, ...]] = {
    kinds.BFB: (images.BFB_FINALIZER,),
    kinds.BLUEFIELD_SOFTWARE: (images.SOFTWARE_FINALIZER,),
    kinds.DPU: (dpu.FINALIZER,),
    kinds.DPU_CLUSTER: cluster.FINALIZERS,
    kinds.DPU_DEVICE: (device.FINALIZER,),
    kinds.DPU_NODE: (node.FINALIZER,),
    kinds.DPU_SET: (dpu_set.FINALIZER,),
    kinds.DPU_DEPLOYMENT: (deployment.FINALIZER,),
    kinds.DPU_SERVICE: (service.FINALIZER,),
    kinds.DPU_SERVICE_CHAIN: (chain.FINALIZER,),
    kinds.DPU_SERVICE_CREDENTIAL_REQUEST: (credentials.FINALIZER,),
    kinds.DPU_SERVICE_INTERFACE: (interface.FINALIZER,),
    kinds.DPU_SERVICE_IPAM: (networks.IPAM_FINALIZER,),
    kinds.DPU_SERVICE_TEMPLATE: (service_template.TEMPLATE_FINALIZER,),
    kinds.DPF_OPERATOR_CONFIG: (operator_config.FINALIZER,),
}
"""The finalizers of each kind."""

_LISTED = 20
"""Maximum number of objects that an object is said to wait for."""


def waits_for(key: str, world: World, dependents: Iterable[str]) -> list[Blame]:
    """What an object that is being deleted waits for. `dependents` are the keys of existing objects that were made from
    it. An object that is still wanted waits for nothing: it is made again."""
    if world.wanted(key) is not None:
        return []
    found = itertools.chain(_remaining(key, dependents), users(key, world), unreleased(key, world))
    return [*itertools.islice(found, _LISTED)]


def _remaining(key: str, dependents: Iterable[str]) -> Iterator[Blame]:
    for each in heapq.nsmallest(_LISTED, dependents):
        yield Blame(each, f"{short_name(key)} waits until {_described(key, each)} is deleted")


def _described(key: str, dependent: str) -> str:
    """An object with its cluster, if that is another one."""
    where = object_id(dependent).source
    return short_name(dependent) if where == object_id(key).source else f"{short_name(dependent)} of cluster {where}"

"""The conditions of any object, and the chain of causes of one that is not ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from projections.resources import kinds
from projections.resources.blame import Blame
from projections.resources.conditions import clusters, discoveries, hosts, provisioning, services
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.deletion import with_deletion
from projections.resources.conditions.deployments import of_deployment
from projections.resources.conditions.operator import of_operator_config
from projections.resources.conditions.world import World
from projections.resources.state import object_id

CAUSES_MAX = 1_000
"""Maximum length of a chain of causes: a DPUSet may wait for every DPU of a fleet."""


class Cause(NamedTuple):
    """A line of the chain: what an object that is not ready waits for, `depth` steps from the described object."""

    depth: int
    key: str
    message: str
    is_root: bool
    """Whether the object is to blame itself: it waits for no other object."""


def conditions_of(key: str, world: World) -> tuple[Condition, ...]:
    """The conditions of an object, `Ready` first. Kinds without conditions have none."""
    of_kind = _BY_KIND.get(object_id(key).kind)
    return with_deletion(key, world, of_kind(key, world) if of_kind is not None else ())


def blocked_by(key: str, world: World) -> list[Cause]:
    """Why an object is not ready, as a tree in depth-first order, each object once. An object that waits for one above
    it in the tree is to blame itself: an image that is being deleted waits for the DPUSet that names it."""
    causes: list[Cause] = []
    seen = {key}
    pending: list[tuple[tuple[str, ...], str, str]]
    pending = [((key,), blame.key, blame.message) for blame in reversed(_blames(key, world))]
    while pending and len(causes) < CAUSES_MAX:
        above, blamed, message = pending.pop()
        deeper = [] if blamed in seen else _blames(blamed, world)
        message = next((each.message for each in deeper if each.key == blamed), message)  # its own tells more
        path = (*above, blamed)
        further = [(path, each.key, each.message) for each in deeper if each.key not in path]
        causes.append(Cause(len(above), blamed, message, is_root=blamed == above[-1] or not further))
        if blamed not in seen:
            seen.add(blamed)
            pending += reversed(further)
    return causes


def _blames(key: str, world: World) -> list[Blame]:
    conditions = conditions_of(key.partition("#")[0], world)
    return [*dict.fromkeys(blame for each in conditions for blame in each.blames)]


def _of_deployment(key: str, world: World) -> tuple[Condition, ...]:
    return of_deployment(key, world, conditions_of)


def _of_operator_config(key: str, world: World) -> tuple[Condition, ...]:
    return of_operator_config(key, world, conditions_of)


_BY_KIND: Mapping[str, Callable[[str, World], tuple[Condition, ...]]] = {
    kinds.BFB: provisioning.of_image,
    kinds.BLUEFIELD_SOFTWARE: provisioning.of_image,
    kinds.DPU_CLUSTER: clusters.of_cluster,
    kinds.DPU_DEVICE: provisioning.of_device,
    kinds.DPU_DISCOVERY: discoveries.of_discovery,
    kinds.DPU_NODE: provisioning.of_node,
    kinds.DPU_NODE_MAINTENANCE: hosts.of_maintenance,
    kinds.DPU_SET: provisioning.of_set,
    kinds.DPU: provisioning.of_dpu,
    kinds.DPU_DEPLOYMENT: _of_deployment,
    kinds.DPF_OPERATOR_CONFIG: _of_operator_config,
    kinds.DPU_SERVICE: services.of_service,
    kinds.DPU_SERVICE_CHAIN: services.of_chain,
    kinds.DPU_SERVICE_TEMPLATE: services.of_template,
    kinds.DPU_SERVICE_INTERFACE: partial(services.of_set, "ServiceInterfaceSet"),
    kinds.DPU_SERVICE_IPAM: partial(services.of_set, "DPUIPAMObject"),
    kinds.DPU_SERVICE_NAD: partial(services.of_set, "DPUNADObject"),
    kinds.DPU_SERVICE_CREDENTIAL_REQUEST: services.of_request,
}

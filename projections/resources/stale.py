"""Children of DPUDeployments that are stated but not wanted any more, and which of them may be deleted now.

An older revision of a service or chain stays until the wanted one is ready, so that DPUs move one by one; at most
`revisionHistoryLimit` revisions exist at a time. A deployment that is deleted loses its chain first, then interfaces,
services and DPUSets, each after the ones before are gone: with their DPUs away, finalizers of the former would wait
forever.

Only Kubernetes states children: what an older revision contains is then in the state. Without Kubernetes the fold has
the last spec of each deployment and no children, so there is nothing to remove here. An older revision is derived from
the log: the objects as of the record before the last change of the deployment, its templates and configurations (the
`changed_offset` of their rows; queries with `as_of`) give its children as they were, names included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from projections.resources.deployments.children import Derived
from projections.resources.deployments.naming import owner_value
from projections.resources.derivation import Derivation
from projections.resources.kinds import DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, DPU_SET
from projections.resources.service_specs import ServiceSpec
from projections.resources.specs import read
from projections.resources.state import ResourcesState, object_id
from schemas.resources.dpf.names import DEPLOYMENT_SERVICE, OWNING_DEPLOYMENT

REMOVAL_ORDER = (DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, DPU_SERVICE, DPU_SET)
_REVISIONS_DEFAULT = 10

IsReady = Callable[[str], bool]


def removable(state: ResourcesState, derivation: Derivation, deployment: str, is_ready: IsReady) -> list[str]:
    """The stated children of a deployment that may be deleted now, in order. `is_ready` says it of a wanted object."""
    row, found = state.objects.rows.get(deployment), derivation.deployments.get(deployment)
    stated = {kind: _stated(state, deployment, kind) for kind in REMOVAL_ORDER}
    if row is not None and row.deleted_ms:
        return next((stated[kind] for kind in REMOVAL_ORDER if stated[kind]), [])
    if not isinstance(found, Derived) or derivation.holds(deployment):
        return []
    limit = found.spec.revision_history_limit or _REVISIONS_DEFAULT
    surplus = {
        kind: [
            key
            for group in _by_service(state, stated[kind]).values()
            for key in _surplus(state, derivation, group, limit, is_ready)
        ]
        for kind in (DPU_SERVICE_CHAIN, DPU_SERVICE)
    }
    kept = {key for key in stated[DPU_SERVICE] if key not in surplus[DPU_SERVICE]}
    used = {name for key in kept for name in _interfaces(state, key)}
    interfaces = [
        key
        for key in stated[DPU_SERVICE_INTERFACE]
        if key not in derivation.children.winners and object_id(key).name not in used
    ]
    sets = [key for key in stated[DPU_SET] if key not in derivation.children.winners]
    return [*surplus[DPU_SERVICE_CHAIN], *interfaces, *surplus[DPU_SERVICE], *sets]


def _stated(state: ResourcesState, deployment: str, kind: str) -> list[str]:
    """The stated children of a kind, the oldest first."""
    at, rows = object_id(deployment), state.objects.rows
    children = [
        key
        for key in state.by_kind.get(f"{at.source}/{kind}", ())
        if rows[key].labels.get(OWNING_DEPLOYMENT) == owner_value(at) and object_id(key).namespace == at.namespace
    ]
    return sorted(children, key=lambda key: (rows[key].created_ms, key))


def _by_service(state: ResourcesState, keys: Sequence[str]) -> dict[str, list[str]]:
    """Revisions by service; chains have no service."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(state.objects.rows[key].labels.get(DEPLOYMENT_SERVICE, ""), []).append(key)
    return found


def _surplus(
    state: ResourcesState, derivation: Derivation, group: Sequence[str], limit: int, is_ready: IsReady
) -> Iterator[str]:
    """Older revisions that nothing needs: all of them once the wanted one is ready, else those over the limit."""
    older = [key for key in group if key not in derivation.children.winners]
    wanted = [key for key in _wanted_like(state, derivation, group) if is_ready(key)]
    is_replaced = bool(wanted) or not _wanted_like(state, derivation, group)
    yield from older if is_replaced else older[: max(0, len(older) - (limit - 1))]


def _wanted_like(state: ResourcesState, derivation: Derivation, group: Sequence[str]) -> list[str]:
    """The wanted revision that replaces the revisions of a group; empty if the deployment wants none."""
    rows, first = state.objects.rows, group[0]
    label = rows[first].labels
    return [
        key
        for key, wanted in derivation.children.winners.items()
        if object_id(key).kind == object_id(first).kind
        and wanted.labels.get(OWNING_DEPLOYMENT) == label.get(OWNING_DEPLOYMENT)
        and wanted.labels.get(DEPLOYMENT_SERVICE) == label.get(DEPLOYMENT_SERVICE)
        and wanted.at.source == object_id(first).source
    ]


def _interfaces(state: ResourcesState, key: str) -> tuple[str, ...]:
    """The names of the interfaces that a stated DPUService uses."""
    spec = read(ServiceSpec, state.objects.rows[key])
    return () if isinstance(spec, str) else spec.interfaces or ()

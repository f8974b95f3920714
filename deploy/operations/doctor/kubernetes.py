"""The checks of `doctor` about source clusters: kubeconfigs, API servers, rights, and the plane's own definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from commands.kubernetes.kind_watches import served_plurals
from commands.kubernetes.resource_edge import STATED_KINDS
from deploy.composition.roles import roles_in_process
from deploy.operations.doctor.host import Finding
from deploy.settings.settings import Settings
from deploy.settings.source_clusters import SourceCluster
from drivers.kubernetes.client import connect
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from eventstore.replicas.role_names import KUBERNETES
from projections.kubernetes.foreign.kinds import IN_SOURCE_CLUSTER
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources import KINDS

REACH_S = 10.0
_NODES = "/api/v1/nodes"
_ONE = {"limit": "1"}


async def check_sources(settings: Settings) -> list[Finding]:
    """Check the source clusters in the settings, all at the same time."""
    if KUBERNETES not in roles_in_process(settings.role, lambda name: bool(getattr(settings, name))):
        return []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_check(each, settings)) for each in settings.source_clusters]
    return [finding for task in running for finding in task.result()]


async def _check(cluster: SourceCluster, settings: Settings) -> Sequence[Finding]:
    check = f"source {cluster.name}"
    paths = {"Nodes": _NODES}
    if settings.kubernetes_status:
        paths |= {kind.plural: kind.path() for kind in KINDS}
    try:
        async with asyncio.timeout(REACH_S), connect(cluster.kubeconfig) as api:
            if settings.kubernetes_resources:
                paths |= await _served_paths(api)
            for what, path in paths.items():
                if (fault := await _fault(api, check, what, path)) is not None:
                    return [fault]
    except ApiError as error:
        return [Finding(check, False, f"its kinds cannot be read: {error}", _advice(error.status))]
    except KubeconfigInvalid as error:
        return [Finding(check, False, str(error), "give a kubeconfig with a current context, readable by this user")]
    except TimeoutError:
        return [Finding(check, False, f"no response within {REACH_S:g} s", _advice(0))]
    return [Finding(check, True, f"its API server lists {', '.join(paths)}")]


async def _served_paths(api: KubernetesApi) -> dict[str, str]:
    """The paths of DPF's kinds that the API server serves, and of those that report on them. Raises ApiError."""
    wanted = {(kind.api_version, kind.plural): kind.path() for kind in STATED_KINDS}
    wanted |= {(kind.group_version, kind.plural): kind.path for kind in IN_SOURCE_CLUSTER}
    served = {version: await served_plurals(api, version) for version in sorted({version for version, _ in wanted})}
    return {plural: path for (version, plural), path in wanted.items() if plural in served[version]}


async def _fault(api: KubernetesApi, check: str, what: str, path: str) -> Finding | None:
    try:
        await api.get(path, _ONE)
    except ApiError as error:
        return Finding(check, False, f"{what} not listed: {error}", _advice(error.status))
    return None


def _advice(status: int) -> str:
    match status:
        case 401:
            return "renew the credentials in the kubeconfig"
        case 403:
            return "give the user of the kubeconfig the rights of the chart's ClusterRole for the Kubernetes edge"
        case 404:
            return "kubectl apply -f deploy/kubernetes/crds -f deploy/kubernetes/admission"
    return "start the API server or repair the network; the other source clusters do not wait for it"

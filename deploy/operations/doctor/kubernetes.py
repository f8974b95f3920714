"""The checks of `doctor` about source clusters: kubeconfigs, API servers, rights, and the plane's own definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from deploy.composition.roles import roles_in_process
from deploy.operations.doctor.host import Finding
from deploy.settings.settings import Settings
from deploy.settings.source_clusters import SourceCluster
from drivers.kubernetes.client import connect
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources import KINDS

REACH_S = 10.0
_NODES = "/api/v1/nodes"
_ONE = {"limit": "1"}


async def check_sources(settings: Settings) -> list[Finding]:
    """Check the source clusters in the settings, all at the same time."""
    if "kubernetes" not in roles_in_process(settings.role, lambda name: bool(getattr(settings, name))):
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
            for what, path in paths.items():
                if (fault := await _fault(api, check, what, path)) is not None:
                    return [fault]
    except KubeconfigInvalid as error:
        return [Finding(check, False, str(error), "give a kubeconfig with a current context, readable by this user")]
    except TimeoutError:
        return [Finding(check, False, f"no response within {REACH_S:g} s", _advice(0))]
    return [Finding(check, True, f"its API server lists {', '.join(paths)}")]


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

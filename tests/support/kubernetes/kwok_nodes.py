"""Nodes by the hundred, in racks, whose kubelets kwok plays, and the DaemonSet of a compute domain on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from schemas.kubernetes.api import KubernetesApi
from schemas.resources.compute_domain import DOMAIN_LABEL
from tests.support.kubernetes.api_server import MADE_BY_TESTS
from tests.support.kubernetes.requests import create, get

CONTROLLERS = (
    "daemonset-controller",
    "garbage-collector-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
)
"""The controllers that a DaemonSet on Nodes that come and go needs. A Node whose lease expires becomes not ready."""
OF_WORKLOADS = ("deployment-controller", "replicaset-controller", "disruption-controller")
"""The controllers that a Deployment with a disruption budget needs as well."""
STAGES = Path(__file__).with_name("kwok_stages.yaml")
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
AT_ONCE = 32
T = TypeVar("T")


def rack_node(rack: int, number: int, domain: str = "") -> dict[str, Any]:
    """A Node of a rack; with a domain, the DaemonSet of that domain runs on it."""
    labels = {"topology.kubernetes.io/rack": f"r{rack}", MADE_BY_TESTS: ""}
    return {
        "metadata": {
            "name": f"r{rack}-n{number}",
            "labels": labels | ({DOMAIN_LABEL: domain} if domain else {}),
        },
        "status": {"addresses": [{"type": "InternalIP", "address": f"10.64.{rack}.{number + 1}"}]},
    }


class KwokNodes:
    """The Nodes of one cluster."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    async def create(self, nodes: Iterable[dict[str, Any]]) -> None:
        await _each(lambda body: create(self._api, NODES, body), nodes)

    async def delete(self, names: Iterable[str]) -> None:
        uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in await self._items(NODES)}
        await _each(lambda name: self._api.delete(f"{NODES}/{name}", uid=uids[name]), names)

    async def label(self, name: str, labels: dict[str, str | None]) -> None:
        await self._api.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}}, "merge")

    async def heartbeats(self) -> dict[str, datetime]:
        """When each ready Node last reported its status."""
        found = {}
        for item in await self._items(NODES):
            for each in item["status"].get("conditions", ()):
                if (each["type"], each["status"]) == ("Ready", "True"):
                    found[item["metadata"]["name"]] = datetime.fromisoformat(each["lastHeartbeatTime"])
        return found

    async def renewals(self) -> dict[str, datetime]:
        """When each Node last renewed its lease."""
        return {
            item["metadata"]["name"]: datetime.fromisoformat(item["spec"]["renewTime"])
            for item in await self._items(LEASES)
        }

    async def _items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await get(self._api, path))["items"]
        return found


async def create_daemon_set(api: KubernetesApi, namespace: str, domain: str) -> None:
    """The DaemonSet of a compute domain, as upstream's controller creates it: on the Nodes with the domain's label."""
    labels = {DOMAIN_LABEL: domain}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": labels,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "compute-domain-daemon", "image": "example.com/daemon"}],
        },
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"computedomain-daemon-{domain}"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
    await create(api, f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body)


async def _each(call: Callable[[T], Awaitable[Any]], items: Iterable[T]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with slots:
            await call(item)

    async with asyncio.TaskGroup() as tasks:
        for item in items:
            tasks.create_task(one(item))

"""An actor that plays Argo CD and Kamaji at a real API server: statuses, finalizers, and the kubeconfig of a cluster.

What it says is decided in tests/support/peers.py. With THIRD_PARTY_CRDS, a folder with the real definitions, every
object is held to their schemas; without it the definitions here accept any field.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import yaml

from schemas.kubernetes.api import CONFLICT, NOT_FOUND, ApiError, KubernetesApi
from tests.support.kubernetes.requests import get
from tests.support.peers import FINALIZER, crashed_application, next_application, next_control_plane

THIRD_PARTY_CRDS = "THIRD_PARTY_CRDS"
"""Names a folder with the definitions of Argo CD, Kamaji and others, which are not in this tree."""
PERIOD_S = 0.05
_AWAY = (0, 403, 429, 500, 503)
"""Status codes of an API server that is away or starting: it knows no rights at first."""
_KINDS = (
    ("argoproj.io", "Application", "applications", False),
    ("argoproj.io", "AppProject", "appprojects", False),
    ("kamaji.clastix.io", "TenantControlPlane", "tenantcontrolplanes", True),
)


def definitions() -> list[dict[str, Any]]:
    """The definitions of the kinds of Argo CD and Kamaji."""
    folder = os.environ.get(THIRD_PARTY_CRDS)
    if folder is None:
        return [open_definition(*kind) for kind in _KINDS]
    found = [yaml.safe_load(path.read_text()) for path in sorted(Path(folder).glob("*.yaml"))]
    names = {f"{plural}.{group}" for group, _, plural, _ in _KINDS}
    return [each for each in found if each["metadata"]["name"] in names]


@contextmanager
def suppress_outage() -> Iterator[None]:
    """Suppress the error of an API server that does not answer, or is starting."""
    try:
        yield
    except ApiError as error:
        if error.status not in _AWAY:
            raise


class Peers:
    """Argo CD and Kamaji in one namespace, while `run` runs. `failure` is the share of steps that go wrong. Unless it
    is 0, the first step that can go wrong does."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        kubeconfig: bytes,
        *,
        rng: Random,
        failure: float = 0.3,
        period_s: float = PERIOD_S,
    ) -> None:
        self.failures = 0
        self.crashing: set[str] = set()
        """The names of Applications whose containers crash."""
        self._period_s = period_s
        self._api = api
        self._root = f"namespaces/{namespace}"
        self._kubeconfig = kubeconfig
        self._rng = rng
        self._failure = failure

    async def run(self) -> None:
        """Look at every object again and again until cancelled, also across an outage of the API server."""
        while True:
            with suppress_outage():
                for item in await self._items(f"/apis/argoproj.io/v1alpha1/{self._root}/applications"):
                    await self._application(item)
                for item in await self._items(f"/apis/kamaji.clastix.io/v1alpha1/{self._root}/tenantcontrolplanes"):
                    await self._control_plane(item)
            await asyncio.sleep(self._period_s)

    async def _items(self, path: str) -> list[dict[str, Any]]:
        return [*(await get(self._api, path))["items"]]

    async def _application(self, item: Mapping[str, Any]) -> None:
        meta = item["metadata"]
        path = f"/apis/argoproj.io/v1alpha1/{self._root}/applications/{meta['name']}"
        if "deletionTimestamp" in meta:
            kept = [each for each in meta.get("finalizers") or () if each != FINALIZER]
            await self._patch(path, {"metadata": {"finalizers": kept}})
            return
        if meta["name"] in self.crashing:
            status = crashed_application(item)
        else:
            status = next_application(item, self._draw(), self._failure)
        if status is not None:
            self.failures += status["health"]["status"] == "Degraded"
            await self._patch(path, {"status": status})

    async def _control_plane(self, item: Mapping[str, Any]) -> None:
        name = item["metadata"]["name"]
        status = next_control_plane(item, self._draw(), self._failure)
        if status is None:
            return
        is_ready = status["kubernetesResources"]["version"]["status"] == "Ready"
        if is_ready:
            await self._make(f"/api/v1/{self._root}/secrets", self._secret(f"{name}-admin-kubeconfig"))
            await self._take_over(name, item["spec"]["networkProfile"]["port"])
        path = f"/apis/kamaji.clastix.io/v1alpha1/{self._root}/tenantcontrolplanes/{name}/status"
        await self._patch(path, {"status": status})

    async def _take_over(self, name: str, port: int) -> None:
        """Kamaji serves the control plane at the port of its profile, by the Service of its name."""
        path = f"/api/v1/{self._root}/services/{name}"
        ports = [{"name": "kube-apiserver", "protocol": "TCP", "port": port, "nodePort": port}]
        await self._patch(path, {"spec": {"ports": ports}})

    def _draw(self) -> float:
        return self._rng.random() if self.failures else 0.0

    def _secret(self, name: str) -> dict[str, Any]:
        data = {"admin.conf": base64.b64encode(self._kubeconfig).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}

    async def _make(self, path: str, body: Mapping[str, Any]) -> None:
        try:
            await self._api.create(path, body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise

    async def _patch(self, path: str, patch: Mapping[str, Any]) -> None:
        try:
            await self._api.patch(path, json.loads(json.dumps(patch)), "merge", {"fieldManager": "peers"})
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise


def open_definition(group: str, kind: str, plural: str, has_status: bool, version: str = "v1alpha1") -> dict[str, Any]:
    """A definition that accepts any field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}} if has_status else {},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [served],
        },
    }

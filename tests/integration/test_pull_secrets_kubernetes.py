"""Secrets that users label for pulling images are copied to a DPU cluster, with two real API servers."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from projections.kubernetes.object_names import OWN_LABELS
from projections.kubernetes.resources.foreign_objects import REASON
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.dpf.cluster import DPU_CLUSTER
from schemas.resources.dpf.names import IMAGE_PULL_SECRET, KUBECONFIG_KEY
from schemas.resources.dpf.operator_config import DPF_OPERATOR_CONFIG
from schemas.resources.dpf.service import DPU_SERVICE
from schemas.resources.kinds import Kind
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.peers import definitions
from tests.support.kubernetes.requests import create, create_namespace, get, install
from tests.support.kubernetes.two_clusters import control_planes
from tests.support.served import now_ms

SOURCE = "east"
NAMESPACE, OTHER = "dpf-operator-system", "other"
CHART = {"source": {"repoURL": "oci://registry.example.org/charts", "chart": "hbn", "version": "1.0.0"}}
CONFIG = {"provisioningController": {"bfbPVCName": "bfb"}, "deploymentMode": "host-trusted"}
LABELS = {IMAGE_PULL_SECRET: ""}
PATIENCE_S = 60.0
DOCKER = "kubernetes.io/dockerconfigjson"


class Clusters:
    """A source cluster and a DPU cluster."""

    def __init__(self, servers: list[ControlPlane], apis: list[KubernetesApi]) -> None:
        self.servers = servers
        self.api, self.dpu_api = apis

    async def apply(self, kind: Kind, name: str, spec: Any, namespace: str = NAMESPACE) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        await create(self.api, kind.path(namespace), body)

    async def remove(self, path: str, *, in_dpu_cluster: bool = False) -> None:
        api = self.dpu_api if in_dpu_cluster else self.api
        await api.delete(path, uid=(await get(api, path))["metadata"]["uid"])

    async def secret(self, name: str, text: str, *, in_dpu_cluster: bool = False, **more: Any) -> dict[str, Any]:
        """Create a Secret, by default a labelled one of DPF's namespace."""
        namespace, kind = more.pop("namespace", NAMESPACE), more.pop("type", "Opaque")
        metadata = {"name": name, "labels": more.pop("labels", LABELS)}
        api = self.dpu_api if in_dpu_cluster else self.api
        return await create(
            api, path_of("", namespace), {"metadata": metadata, "type": kind, "data": data_of(text, kind)}
        )

    async def edit(self, name: str, patch: Any) -> None:
        await self.api.patch(path_of(name), patch, "merge")

    async def copy(self, name: str, namespace: str = NAMESPACE) -> dict[str, Any] | None:
        """A Secret of the DPU cluster."""
        try:
            return await get(self.dpu_api, path_of(name, namespace))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def until_copied(
        self, name: str, text: str, namespace: str = NAMESPACE, kind: str = "Opaque"
    ) -> dict[str, Any]:
        found: dict[str, Any] | None = None

        async def is_copied() -> bool:
            nonlocal found
            found = await self.copy(name, namespace)
            return found is not None and (found["data"], found["type"]) == (data_of(text, kind), kind)

        await until(is_copied, f"the copy of {name} has {text}")
        assert found is not None
        return found

    async def until_gone(self, name: str, namespace: str = NAMESPACE) -> None:
        async def is_gone() -> bool:
            return await self.copy(name, namespace) is None

        await until(is_gone, f"the copy of {name} is gone")


def path_of(name: str, namespace: str = NAMESPACE) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/{name}".rstrip("/")


def data_of(text: str, kind: str = "Opaque") -> dict[str, str]:
    key = ".dockerconfigjson" if kind == DOCKER else "key"
    return {key: base64.b64encode(json.dumps({"auths": {text: {}}}).encode()).decode()}


async def until(holds: Callable[[], Any], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {PATIENCE_S:.0f} s") from None


@pytest.fixture(scope="module")
def servers(kubernetes_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ControlPlane]]:
    with control_planes(tmp_path_factory.mktemp("clusters")) as found:
        yield found


@pytest.fixture
async def clusters(servers: list[ControlPlane]) -> AsyncIterator[Clusters]:
    """Clusters with a DPUCluster and services in two namespaces, and a Secret of others in the DPU cluster."""
    async with AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(connect(str(each.kubeconfig()))) for each in servers]
        made = Clusters(servers, apis)
        await install(made.api, *map(definition, KINDS), *definitions())
        for namespace in (NAMESPACE, OTHER):
            for api in apis:
                await create_namespace(api, namespace)
        kubeconfig = base64.b64encode(servers[1].kubeconfig().read_bytes()).decode()
        secret = {"metadata": {"name": "admin"}, "data": {KUBECONFIG_KEY: kubeconfig}}
        await create(made.api, path_of(""), secret)
        await made.apply(DPF_OPERATOR_CONFIG, "config", CONFIG)
        await made.apply(DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 10, "kubeconfig": "admin"})
        await made.apply(DPU_SERVICE, "svc", {"helmChart": CHART}, OTHER)
        yield made


async def test_labelled_secrets_have_copies_that_follow_them(clusters: Clusters, tmp_path: Path) -> None:
    await clusters.secret("taken", "of the user")
    await clusters.secret("taken", "of others", in_dpu_cluster=True, labels={})
    await clusters.secret("by-dpf", "new")
    await clusters.secret("by-dpf", "old", in_dpu_cluster=True)
    await clusters.secret("plain", "not labelled", labels={})
    await clusters.secret("other", "of another namespace", namespace=OTHER)
    await clusters.secret("mine", "first")
    flags: dict[str, object] = {
        "data": tmp_path / "plane",
        "kubeconfig": str(clusters.servers[0].kubeconfig()),
        "source": SOURCE,
        "kubernetes_resources": True,
        **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
    }
    async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=random.Random(3)) as plane:
        copy = await clusters.until_copied("mine", "first")
        assert copy["metadata"]["labels"] == LABELS | OWN_LABELS
        await clusters.until_copied("other", "of another namespace", OTHER)
        assert await clusters.copy("other") is None and await clusters.copy("mine", OTHER) is None
        await clusters.until_copied("by-dpf", "new")

        await clusters.edit("mine", {"data": data_of("second")})
        await clusters.until_copied("mine", "second")
        await clusters.edit("mine", {"metadata": {"labels": {IMAGE_PULL_SECRET: None}}})
        await clusters.until_gone("mine")
        await clusters.edit("mine", {"metadata": {"labels": LABELS}})
        await clusters.until_copied("mine", "second")
        await clusters.remove(path_of("mine"), in_dpu_cluster=True)
        await clusters.until_copied("mine", "second")
        await clusters.remove(path_of("mine"))
        await clusters.secret("mine", "third", type=DOCKER)
        await clusters.until_copied("mine", "third", kind=DOCKER)

        async def is_reported() -> bool:
            events = (await get(clusters.api, f"/api/v1/namespaces/{NAMESPACE}/events"))["items"]
            return any((each["reason"], each["involvedObject"]["name"]) == (REASON, "dpus") for each in events)

        await until(is_reported, "the Event about the Secret of others")
        taken = await clusters.copy("taken")
        assert taken is not None and taken["data"] == data_of("of others") and "labels" not in taken["metadata"]
        assert await clusters.copy("plain") is None

        observed = plane.states.resources(SOURCE).observed.rows
        texts = [row.observation for key, row in observed.items() if "/Secret.core/" in key]
        assert len(texts) == 4
        secret_values = [value for text in ("first", "second", "third") for value in data_of(text).values()]
        assert not [text for text in texts for value in secret_values if value in text]

        await clusters.remove(DPU_SERVICE.path(OTHER, "svc"))
        await clusters.until_gone("other", OTHER)
        await clusters.remove(path_of("mine"))
        await clusters.until_gone("mine")
        taken = await clusters.copy("taken")
        assert taken is not None and taken["data"] == data_of("of others")

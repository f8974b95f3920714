"""Tokens of credential requests, from a real API server: written, renewed, moved, and never in the log."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from deploy.composition.topics import TOPICS
from drivers.kubernetes.credentials import CredentialDriver
from eventstore.log import RESOURCES, Partition
from projections.resources.clusters import cluster_source
from projections.resources.kinds import DPU_CLUSTER, DPU_SERVICE_CREDENTIAL_REQUEST
from projections.resources.state import ObjectId, ResourcesState
from schemas.events import ResourcesApplied, ResourcesDeleted
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import get
from tests.support.memory_plane import Plane, plane

SOURCE = "east"


class Connected:
    """API servers by the source of their objects."""

    def __init__(self, **apis: KubernetesApi) -> None:
        self._apis = apis
        self._listeners: list[Callable[[], None]] = []

    def api(self, source: str) -> KubernetesApi | None:
        return self._apis.get(source)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def change(self, source: str, api: KubernetesApi | None) -> None:
        """Connect a cluster; None disconnects it."""
        self._apis.pop(source, None)
        if api is not None:
            self._apis[source] = api
        for listener in self._listeners:
            listener()


class Credentials:
    """A plane that writes tokens of one cluster, which is its own DPU cluster, too."""

    def __init__(self, made: Plane, cluster: Cluster) -> None:
        self.plane, self.cluster, self.api = made, cluster, cluster.api
        self.space = cluster.namespace
        self.connections = Connected(**{SOURCE: self.api})
        self.dpu_source = cluster_source(ObjectId(SOURCE, DPU_CLUSTER, self.space, "c").key)
        self.connections.change(self.dpu_source, self.api)
        self.partition: Partition = TOPICS.partition_for(RESOURCES, SOURCE, made.log.partition_count)

    async def start(self, name: str) -> CredentialDriver:
        life = await self.plane.start(name, "api", "kubernetes")
        driver = CredentialDriver(
            life.replica,
            self.plane.ranks(name),
            SOURCE,
            connections=self.connections,
            now_ms=self.plane.now_ms,
            rng=self.plane.rng(),
        )
        self.plane.spawn(name, driver.run())
        return driver

    @property
    def state(self) -> ResourcesState:
        replica = next(iter(self.plane.replicas.values()))
        found: ResourcesState = replica.folded(self.partition).state
        return found

    def key(self, kind: str, name: str) -> str:
        return ObjectId(SOURCE, kind, self.space, name).key

    def seen(self, name: str = "r") -> dict[str, Any]:
        found = self.state.seen.get(self.key(DPU_SERVICE_CREDENTIAL_REQUEST, name))
        return {} if found is None else found.fields

    async def apply(self, kind: str, name: str, spec: Any) -> None:
        at = self.plane.command(SOURCE)
        columns: dict[str, Any] = {"labels": [{}], "annotations": [{}], "specs": [json.dumps(spec)]}
        for column in ("uids", "generations", "created_ms", "deleted_ms", "expected_generations"):
            columns[column] = []
        names: dict[str, Any] = {"kinds": [kind], "namespaces": [self.space], "names": [name]}
        event = ResourcesApplied(at, SOURCE, **names, **columns)
        await self._submit(event)

    async def delete(self, kind: str, name: str) -> None:
        await self._submit(ResourcesDeleted(self.plane.command(SOURCE), SOURCE, [kind], [self.space], [name], []))

    async def _submit(self, event: Any) -> None:
        replica = next(iter(self.plane.replicas.values()))
        answer = await replica.submit(self.partition, SOURCE.encode(), event, timeout_s=30.0)
        assert answer.outcome.code == "done", answer.outcome

    async def create(self, kind: str, name: str, **fields: Any) -> None:
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": self.space}, **fields}
        await self.api.create(f"/api/v1/namespaces/{self.space}/{kind.lower()}s", body)

    async def secret(self, name: str) -> dict[str, str] | None:
        try:
            found = await get(self.api, f"/api/v1/namespaces/{self.space}/secrets/{name}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    async def until(self, holds: Callable[[], Any]) -> Any:
        async with asyncio.timeout(90):
            while True:
                found = holds()
                found = await found if asyncio.iscoroutine(found) else found
                if found:
                    return found
                await asyncio.sleep(0.02)

    async def user_of(self, token: str) -> str:
        """The user that the API server sees behind a token."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = json.loads(await self.api.create("/apis/authentication.k8s.io/v1/tokenreviews", body))
        return str(answer["status"].get("user", {}).get("username"))

    def request(self, **changes: Any) -> dict[str, Any]:
        return {
            "serviceAccount": {"name": "robot", "namespace": self.space},
            "secret": {"name": "token", "namespace": self.space},
            "type": "tokenFile",
            "duration": "1h",
            **changes,
        }


@asynccontextmanager
async def credentials(cluster: Cluster) -> AsyncIterator[Credentials]:
    async with plane() as made:
        made.ahead_ms = round(time.time() * 1_000) - made.now_ms()  # the API server has the real time
        found = Credentials(made, cluster)
        await found.create("ServiceAccount", "robot")
        await found.create("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "authority"})
        yield found


async def test_a_token_is_written_renewed_moved_and_removed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with credentials(cluster) as made:
        driver = await made.start("p1")
        await made.apply(DPU_SERVICE_CREDENTIAL_REQUEST, "r", made.request())
        await made.until(lambda: made.seen().get("ready"))
        first = await made.secret("token")
        assert first is not None
        assert await made.user_of(first["TOKEN_FILE"]) == f"system:serviceaccount:{made.space}:robot"
        assert first["KUBERNETES_CA_DATA"] == "authority"
        assert made.seen()["secret"] == f"{made.space}/token"

        made.plane.kill("p1")
        again = await made.start("p2")
        await asyncio.sleep(0.5)
        assert (driver.written, again.written) == (1, 0)

        made.plane.ahead_ms += int(0.95 * 3_600_000)
        await made.apply(DPU_SERVICE_CREDENTIAL_REQUEST, "unrelated", {"serviceAccount": 1})
        await made.until(lambda: again.written)
        second = await made.secret("token")
        assert second is not None
        assert second["TOKEN_FILE"] != first["TOKEN_FILE"]
        await asyncio.sleep(0.5)
        assert again.written == 1  # though its clock says that even the new token is old

        await made.apply(
            DPU_SERVICE_CREDENTIAL_REQUEST, "r", made.request(secret={"name": "moved", "namespace": made.space})
        )
        moved = await made.until(lambda: made.secret("moved"))
        await made.until(lambda: made.seen()["secret"] == f"{made.space}/moved")
        assert await made.secret("token") is None

        await made.delete(DPU_SERVICE_CREDENTIAL_REQUEST, "r")
        await made.until(lambda: made.seen() == {})
        assert await made.secret("moved") is None

        written = b"".join(record.value for record in made.plane.log.contents.records[made.partition])
        said = "\n".join(str(record.__dict__) for record in caplog.records)
        for token in (first["TOKEN_FILE"], second["TOKEN_FILE"], moved["TOKEN_FILE"]):
            assert token.encode() not in written
            assert token not in said


async def test_a_token_of_a_dpu_cluster_waits_for_what_it_needs_and_says_what(cluster: Cluster) -> None:
    async with credentials(cluster) as made:
        target = {"targetCluster": {"name": "c", "namespace": made.space}, "type": "kubeconfig"}
        made.connections.change(made.dpu_source, None)
        await made.start("p1")
        spec = made.request(serviceAccount={"name": "late", "namespace": made.space}, **target)
        await made.apply(DPU_SERVICE_CREDENTIAL_REQUEST, "r", spec)
        await made.until(lambda: made.seen().get("message") == "its cluster is not connected")
        made.connections.change(made.dpu_source, made.api)
        await made.until(lambda: made.seen()["message"] == "the DPUCluster does not exist")
        await made.apply(DPU_CLUSTER, "c", {"type": "kamaji"})
        await made.until(lambda: "c-admin-kubeconfig does not exist yet" in made.seen()["message"])
        admin = yaml.safe_load(cluster.plane.kubeconfig().read_text())
        data = {"admin.conf": base64.b64encode(yaml.safe_dump(admin).encode()).decode()}
        await made.create("Secret", "c-admin-kubeconfig", data=data)
        await made.until(lambda: made.seen()["message"] == f"ServiceAccount {made.space}/late does not exist yet")
        await made.create("ServiceAccount", "late")
        await made.until(lambda: made.seen()["ready"])
        secret = await made.secret("token")
        assert secret is not None
        kubeconfig = json.loads(secret["kubeconfig"])
        assert kubeconfig["clusters"][0]["cluster"]["server"] == cluster.plane.url
        token = kubeconfig["users"][0]["user"]["token"]
        assert await made.user_of(token) == f"system:serviceaccount:{made.space}:late"
        assert "message" not in made.seen()


async def test_a_secret_of_somebody_else_is_not_deleted(cluster: Cluster) -> None:
    async with credentials(cluster) as made:
        await made.start("p1")
        await made.apply(DPU_SERVICE_CREDENTIAL_REQUEST, "r", made.request())
        await made.until(lambda: made.seen().get("ready"))
        path = f"/api/v1/namespaces/{made.space}/secrets/token"
        labels = {"svc.dpu.nvidia.com/credential-request-name": "another"}
        await made.api.patch(path, {"metadata": {"labels": labels}}, "merge")
        await made.delete(DPU_SERVICE_CREDENTIAL_REQUEST, "r")
        await made.until(lambda: made.seen() == {})
        assert await made.secret("token") is not None

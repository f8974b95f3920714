"""Credentials of chart repositories, from Secrets on a real API server."""

from __future__ import annotations

from drivers.charts.repository_secrets import SECRET_TYPE, RepositorySecrets
from projections.resources.charts import Chart
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create

CHART = Chart("oci://registry.example/charts", "hbn", "1")


async def add(cluster: Cluster, name: str, kind: str, **fields: str) -> None:
    body = {"metadata": {"name": name, "labels": {SECRET_TYPE: kind}}, "stringData": fields}
    await create(cluster.api, f"/api/v1/namespaces/{cluster.namespace}/secrets", body)


async def test_they_are_found_by_label_in_the_namespace_of_argo_cd(cluster: Cluster) -> None:
    secrets = RepositorySecrets({"east": cluster.api}.get)
    given = {"type": "helm", "url": "registry.example/charts", "username": "robot"}
    await add(cluster, "other", "cluster", **given, password="0")
    assert await secrets.of("east", cluster.namespace, CHART) == (None, "")
    await add(cluster, "all", "repo-creds", type="helm", url="registry.example", password="1")
    await add(cluster, "own", "repository", **given, password="2")
    found = await secrets.of("east", cluster.namespace, CHART)
    assert found.credential == (f"{cluster.namespace}/own", "robot", "2")
    assert await secrets.of("east", "default", CHART) == (None, "")
    away = await secrets.of("west", "default", CHART)
    assert away.fault == "there is no connection to source cluster west"

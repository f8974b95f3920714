"""Tokens by which DPUs join their clusters: what cluster-info says, and the Secret that a real API server keeps."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from drivers.images.joins import new_token
from drivers.kubernetes.joins import CLUSTER_INFO, KubernetesJoins, discovery
from eventstore.errors import TransientError
from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.state import ObjectId
from schemas.kubernetes.api import ApiError
from tests.support.certs import CertIssuer
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get

CLUSTER = ObjectId("east", kinds.DPU_CLUSTER, "dpf", "dpus").key
NOW_MS = 1_700_000_000_000


def cluster_info(ca: bytes, server: str = "https://10.0.0.9:6443") -> dict[str, object]:
    authority = base64.b64encode(ca).decode()
    cluster = {"name": "", "cluster": {"server": server, "certificate-authority-data": authority}}
    return {
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [cluster]})},
    }


@pytest.fixture
def ca(tmp_path: Path) -> bytes:
    return CertIssuer(tmp_path / "ca").authority.cert.read_bytes()


def test_discovery_gives_the_address_and_the_hash_of_the_authority(ca: bytes) -> None:
    endpoint, ca_hash = discovery(json.dumps(cluster_info(ca)).encode())
    assert endpoint == "10.0.0.9:6443"
    assert ca_hash.startswith("sha256:") and len(ca_hash) == 71
    assert discovery(json.dumps(cluster_info(ca, "https://[fd00::1]")).encode()) == ("[fd00::1]:443", ca_hash)
    assert x509.load_pem_x509_certificate(ca).not_valid_after_utc > datetime.now(UTC) - timedelta(days=1)


@pytest.mark.parametrize(
    "text", ["{}", "[", '{"data": {"kubeconfig": "["}}', '{"data": {"kubeconfig": "clusters: []"}}']
)
def test_a_cluster_info_that_cannot_be_used_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError, match="has no readable kubeconfig"):
        discovery(text.encode())


def test_a_token_has_the_form_of_kubeadm() -> None:
    drawn = iter(range(1, 1_000))
    token = new_token(lambda count: bytes(next(drawn) % 256 for _ in range(count)))
    name, _, secret = token.partition(".")
    assert (len(name), len(secret)) == (6, 16)
    assert (name + secret).isalnum()
    assert new_token(lambda count: bytes([255, *range(count - 1)])) == new_token(lambda count: bytes(range(count)))


async def test_a_token_is_a_secret_that_the_cluster_accepts(cluster: Cluster, ca: bytes) -> None:
    try:
        await create(cluster.api, CLUSTER_INFO.rpartition("/")[0], cluster_info(ca))
    except ApiError as error:
        assert error.status == 409  # another test of this cluster made it
    apis = {cluster_source(CLUSTER): cluster.api}
    joins = KubernetesJoins(apis.get, lambda count: bytes(range(7, 7 + count)), lambda: NOW_MS)
    assert joins.fault(CLUSTER) == ""
    join = await joins.join(CLUSTER, "worker-d1")
    path = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{join.token[:6]}"
    found = await get(cluster.api, path)
    try:
        assert found["type"] == "bootstrap.kubernetes.io/token"
        data = {name: base64.b64decode(text).decode() for name, text in found["data"].items()}
        assert f"{data['token-id']}.{data['token-secret']}" == join.token
        assert data["expiration"] == "2023-11-15T02:13:20Z"
        assert data["usage-bootstrap-authentication"] == data["usage-bootstrap-signing"] == "true"
        with pytest.raises(TransientError, match="DPUCluster dpf/dpus gave no token: HTTP status 409") as failed:
            await joins.join(CLUSTER, "worker-d2")
        assert join.token[7:] not in str(failed.value)
    finally:
        await cluster.api.delete(path, uid=found["metadata"]["uid"])


async def test_a_cluster_without_a_connection_gives_no_token() -> None:
    joins = KubernetesJoins(lambda source: None, bytes, lambda: NOW_MS)
    with pytest.raises(TransientError, match="has no connection to it"):
        await joins.join(CLUSTER, "worker-d1")

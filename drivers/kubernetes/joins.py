"""Tokens by which DPUs join their clusters: bootstrap tokens of kubeadm, as Secrets in the DPU cluster.

What a DPU must know of its cluster comes from the ConfigMap cluster-info that kubeadm publishes there: the address of
the API server and its certificate authority. A token is valid for the time of an installation and for one node's join;
Kubernetes removes expired ones.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from drivers.images.installations import VALID_S
from drivers.images.joins import new_token
from eventstore.errors import TransientError
from projections.resources.clusters import cluster_source
from projections.resources.configuration.inputs import Join
from projections.resources.kinds import short_name
from schemas.kubernetes.api import ApiError, KubernetesApi

CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
GROUP = "system:bootstrappers:kubeadm:default-node-token"


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class KubernetesJoins:
    """Makes tokens in the DPU clusters that this process is connected to. `apis` has their API servers by source."""

    def __init__(
        self,
        apis: Callable[[str], KubernetesApi | None],
        random_bytes: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._apis = apis
        self._random_bytes = random_bytes
        self._now_ms = now_ms

    def fault(self, cluster: str) -> str:
        if self._apis(cluster_source(cluster)) is None:
            return "cannot be joined: this process has no connection to it"
        return ""

    async def join(self, cluster: str, dpu: str) -> Join:
        api = self._apis(cluster_source(cluster))
        if api is None:
            raise TransientError(f"join: {short_name(cluster)} {self.fault(cluster)}")
        try:
            endpoint, ca_hash = discovery(await api.get(CLUSTER_INFO))
            token = new_token(self._random_bytes)
            await api.create(SECRETS, self._secret(token, dpu))
        except ApiError as error:
            raise TransientError(f"join: {short_name(cluster)} gave no token: HTTP status {error.status}") from None
        except ValueError as error:
            raise TransientError(f"join: cluster-info of {short_name(cluster)} {error}") from None
        return Join(endpoint, ca_hash, token)

    def _secret(self, token: str, dpu: str) -> dict[str, object]:
        name, _, secret = token.partition(".")
        expires = datetime.fromtimestamp(self._now_ms() // 1_000 + VALID_S, UTC)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{name}", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": f"for DPU {dpu}",
                "token-id": name,
                "token-secret": secret,
                "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": GROUP,
            },
        }


def discovery(config_map: bytes) -> tuple[str, str]:
    """HOST:PORT of the API server and the hash of its authority's public key, from cluster-info. Raises ValueError."""
    try:
        text = msgspec.json.decode(config_map, type=_ConfigMap).data["kubeconfig"]
        (cluster,) = yaml.safe_load(text)["clusters"]
        address = urlsplit(cluster["cluster"]["server"])
        pem = base64.b64decode(cluster["cluster"]["certificate-authority-data"], validate=True)
        key = x509.load_pem_x509_certificate(pem).public_key()
    except (msgspec.MsgspecError, yaml.YAMLError, KeyError, TypeError, ValueError, binascii.Error):
        raise ValueError("has no readable kubeconfig with one cluster and its authority") from None
    if address.scheme != "https" or not address.hostname:
        raise ValueError("has a server that is no https:// address")
    host = f"[{address.hostname}]" if ":" in address.hostname else address.hostname
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return f"{host}:{address.port or 443}", f"sha256:{digest}"

"""The kubeconfig of a DPU cluster, from the Secret that its DPUCluster names.

A user who may write the Secret must not get more than a connection to the user's own cluster. So a kubeconfig from a
Secret may neither run a program nor read a file of this machine, and it names exactly one cluster and one user, over
TLS. Its content is secret: it is only in memory, and no error quotes it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import yaml

from drivers.kubernetes.kubeconfig import KubeconfigInvalid, unusable
from projections.field_checks import quoted
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.dpf.names import KUBECONFIG_KEY

MAX_BYTES = 200_000
_CLUSTER_FIELDS = frozenset(("server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify"))
_USER_FIELDS = frozenset(("token", "client-certificate-data", "client-key-data", "username", "password"))
_IGNORED_FIELDS = frozenset(("extensions", "disable-compression"))
_NAME = "dpu-cluster"


class SecretMissing(KubeconfigInvalid):
    """The Secret does not exist yet."""


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


_secret = msgspec.json.Decoder(_Secret)


class ClusterAccess(NamedTuple):
    """The address of an API server and the credentials for it. `ca`, `certificate` and `key` are PEM."""

    name: str
    server: str
    ca: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""

    def __repr__(self) -> str:
        return f"ClusterAccess({quoted(self.name)}, {quoted(self.server)})"


async def read_secret_kubeconfig(api: KubernetesApi, namespace: str, name: str) -> Mapping[str, Any]:
    """The checked kubeconfig in a Secret. Raises KubeconfigInvalid, or ApiError if the API server does not answer."""
    return checked_kubeconfig(about_secret(namespace, name), await read_secret_key(api, namespace, name))


async def read_secret_access(api: KubernetesApi, namespace: str, name: str) -> ClusterAccess:
    """The access that the kubeconfig in a Secret gives. Raises the same errors."""
    return cluster_access(about_secret(namespace, name), await read_secret_key(api, namespace, name))


async def read_secret_key(api: KubernetesApi, namespace: str, name: str) -> bytes:
    """The text of the kubeconfig in a Secret. Raises KubeconfigInvalid and ApiError."""
    about = about_secret(namespace, name)
    try:
        data = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    except ApiError as error:
        if error.status == NOT_FOUND:
            raise SecretMissing(about, "it does not exist") from error
        raise
    try:
        return kubeconfig_text(about, _secret.decode(data).data or {})
    except msgspec.DecodeError as error:
        raise KubeconfigInvalid(about, "its data is not valid") from error


def about_secret(namespace: str, name: str) -> str:
    """The name of a Secret in errors."""
    return f"Secret {namespace}/{name}"


def kubeconfig_text(about: str, data: Mapping[str, str]) -> bytes:
    """The text of the kubeconfig in the data of a Secret. Raises KubeconfigInvalid."""
    if KUBECONFIG_KEY not in data:
        raise KubeconfigInvalid(about, f"it has no key {KUBECONFIG_KEY}")
    try:
        return base64.b64decode(data[KUBECONFIG_KEY], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise KubeconfigInvalid(about, "its data is not valid") from None


def checked_kubeconfig(about: str, text: bytes) -> Mapping[str, Any]:
    """A kubeconfig with the one cluster and the one user of this text. Raises KubeconfigInvalid."""
    _, cluster, user = _entries(about, text)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": user}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }


def cluster_access(about: str, text: bytes) -> ClusterAccess:
    """The access that a kubeconfig gives by a token or a certificate. Raises KubeconfigInvalid."""
    name, cluster, user = _entries(about, text)
    token = user.get("token", "")
    found = ClusterAccess(
        name,
        cluster["server"],
        _data(about, cluster, "certificate-authority-data"),
        _data(about, user, "client-certificate-data"),
        _data(about, user, "client-key-data"),
        token if isinstance(token, str) else "",
    )
    if not found.token and not (found.certificate and found.key):
        raise KubeconfigInvalid(about, "its user has neither a token nor a certificate with its key")
    return found


def _entries(about: str, text: bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name of the only cluster of a kubeconfig, and the allowed fields of this cluster and of the only user."""
    if len(text) > MAX_BYTES:
        raise KubeconfigInvalid(about, f"{KUBECONFIG_KEY} has {len(text)} bytes, more than {MAX_BYTES}")
    try:
        given = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigInvalid(about, unusable(error)) from None  # the error would quote the text
    except (ValueError, RecursionError):
        raise KubeconfigInvalid(about, "it is not valid YAML") from None
    name, cluster = _only(about, given, "clusters", "cluster", _CLUSTER_FIELDS)
    _, user = _only(about, given, "users", "user", _USER_FIELDS)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith("https://"):
        raise KubeconfigInvalid(about, "the server of its cluster must be an https URL")
    return name, cluster, user


def _only(about: str, given: Any, plural: str, kind: str, allowed: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """The name and the fields of the only cluster, or of the only user, of a kubeconfig."""
    found = given.get(plural) if isinstance(given, dict) else None
    entries = found if isinstance(found, list) else []
    count = len(entries)
    entry = entries[0] if count == 1 else None
    fields = entry.get(kind) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(fields, dict):
        raise KubeconfigInvalid(about, f"it must have exactly one {kind} with its fields, and has {count}")
    refused = sorted(str(field) for field in fields if field not in allowed | _IGNORED_FIELDS)
    if refused:
        why = "a kubeconfig in a Secret may neither name files nor run programs"
        raise KubeconfigInvalid(about, f"the field {refused[0]} of its {kind} is not allowed: {why}")
    return str(entry.get("name", "")), {field: value for field, value in fields.items() if field in allowed}


def _data(about: str, fields: Mapping[str, Any], field: str) -> bytes:
    value = fields.get(field) or ""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise KubeconfigInvalid(about, f"its {field} is not base64") from None

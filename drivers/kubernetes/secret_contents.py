"""The content of wanted Secrets, made from the Secret that each names as its source, when it is written.

Nothing of a Secret is in the log or in what is derived from it. A changed source gives another content, so a writer
compares contents by a keyed digest and never logs them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.secret_kubeconfig import ClusterAccess, about_secret, cluster_access, kubeconfig_text
from projections.resources.wanted import SecretSource


class ContentFault(ValueError):
    """A Secret whose content cannot be made from its source, in one sentence without the content."""


def secret_content(wanted: SecretSource, source: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `type` and `data` of a wanted Secret. `source` is the source as its API server has it, with values in
    base64. Raises ContentFault."""
    data = source.get("data") or {}
    match wanted.form:
        case "copy":
            return {"type": source.get("type", "Opaque"), "data": dict(data)}
        case "argocd-cluster":
            return {"type": "Opaque", "data": _argocd_cluster(wanted.cluster, _access(wanted, data))}


def _access(wanted: SecretSource, data: Mapping[str, str]) -> ClusterAccess:
    about = about_secret(wanted.at.namespace, wanted.at.name)
    try:
        return cluster_access(about, kubeconfig_text(about, data))
    except KubeconfigInvalid as error:
        raise ContentFault(str(error)) from None


def _argocd_cluster(name: str, access: ClusterAccess) -> dict[str, str]:
    """A cluster in the form that Argo CD reads: its name, its server, and a configuration as JSON."""
    tls = {"caData": access.ca, "certData": access.certificate, "keyData": access.key}
    config: dict[str, Any] = {"tlsClientConfig": {key: _base64(value) for key, value in tls.items() if value}}
    if access.token:
        config["bearerToken"] = access.token
    fields = {"name": name, "server": access.server, "config": json.dumps(config, sort_keys=True)}
    return {key: _base64(value.encode()) for key, value in fields.items()}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()

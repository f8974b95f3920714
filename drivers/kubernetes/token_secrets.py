"""The Secret of a token: a kubeconfig, or the token with the address of its cluster. What is made here is secret."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

from drivers.kubernetes.secret_kubeconfig import ClusterAccess
from projections.resources.services.tokens import TokenWish


def token_secret(wish: TokenWish, access: ClusterAccess, token: str) -> dict[str, Any]:
    """The Secret as a manifest."""
    data = _token_file(access, token) if wish.form == "tokenFile" else _kubeconfig(wish, access, token)
    namespace, name = wish.secret
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": wish.labels, "annotations": wish.annotations},
        "type": "Opaque",
        "data": {key: _base64(value) for key, value in data.items()},
    }


def _token_file(access: ClusterAccess, token: str) -> dict[str, bytes]:
    found = urlsplit(access.server)
    return {
        "KUBERNETES_SERVICE_HOST": (found.hostname or "").encode(),
        "KUBERNETES_SERVICE_PORT": str(found.port or 443).encode(),
        "KUBERNETES_CA_DATA": access.ca,
        "TOKEN_FILE": token.encode(),
    }


def _kubeconfig(wish: TokenWish, access: ClusterAccess, token: str) -> dict[str, bytes]:
    """A kubeconfig. User and context have the name of the account."""
    namespace, user = wish.account
    context = {"cluster": access.name, "namespace": namespace, "user": user}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": access.name,
                "cluster": {"server": access.server, "certificate-authority-data": _base64(access.ca)},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": context}],
        "current-context": user,
    }
    return {"kubeconfig": json.dumps(document, indent=2).encode()}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()

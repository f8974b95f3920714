"""The cluster of KUBECONFIG as the API server of a test run, in place of one that the tests start.

Tests create and delete Nodes, so a cluster with Nodes of its own is refused. The user of the kubeconfig needs all
rights: other users are impersonated.
"""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from schemas.kubernetes.api import ApiError, KubernetesApi
from tests.support.kubernetes.api_server import ADMIN, MADE_BY_TESTS, ApiServer
from tests.support.kubernetes.build import program
from tests.support.kubernetes.requests import create, get

OPTION = "--use-cluster"
KUBECONFIG = "KUBECONFIG"
COMMAND_S = 60
CREDENTIALS = ("token", "client-certificate-data", "client-key-data")
NAMED = 3
"""Maximum number of Nodes that a refusal names."""


class ClusterRefused(Exception):
    """The tests cannot use the cluster; the message is one sentence."""


class GivenCluster(ApiServer):
    """The cluster of the current context of KUBECONFIG, as kubectl reads it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        if not os.environ.get(KUBECONFIG):
            raise ClusterRefused(f"{OPTION}: {KUBECONFIG} names no file")
        command = [str(program("kubectl")), "config", "view", "--minify", "--flatten", "--raw"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        if found.returncode:
            raise ClusterRefused(f"{OPTION}: kubectl cannot read {KUBECONFIG}: {found.stderr.strip()}")
        config = yaml.safe_load(found.stdout)
        self.url: str = config["clusters"][0]["cluster"]["server"]
        user = config["users"][0]["user"]
        self._user = {name: user[name] for name in CREDENTIALS if name in user}
        if not self._user:
            raise ClusterRefused(f"{OPTION}: the user of {KUBECONFIG} has neither a token nor a client certificate")

    async def check(self, api: KubernetesApi) -> None:
        """Raises ClusterRefused if the cluster has Nodes that no test made, or cannot be reached."""
        try:
            found = await get(api, "/api/v1/nodes", {"labelSelector": f"!{MADE_BY_TESTS}", "limit": "500"})
        except ApiError as error:
            raise ClusterRefused(f"{OPTION}: the Nodes of {self.url} cannot be listed: {error}") from error
        names = [item["metadata"]["name"] for item in found["items"]]
        if names:
            shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
            raise ClusterRefused(
                f"{OPTION}: {self.url} has Nodes that no test made ({shown}), and these tests need a cluster without"
                " Nodes: they create and delete Nodes by the hundred"
            )

    async def clean(self) -> None:
        """Delete the Nodes that tests made."""
        params = {"labelSelector": MADE_BY_TESTS}
        async with self.session() as session, session.delete(f"{self.url}/api/v1/nodes", params=params) as response:
            response.raise_for_status()

    async def allow_pods(self, api: KubernetesApi, namespace: str) -> None:
        """Create the service account that pods of a new namespace need, unless a controller was faster."""
        try:
            await create(api, f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def credentials(self, user: str) -> Mapping[str, Any]:
        return self._user if user == ADMIN else {**self._user, "as": user}

    def headers(self, user: str) -> Mapping[str, str]:
        token = {"Authorization": f"Bearer {self._user['token']}"} if "token" in self._user else {}
        return token if user == ADMIN else {**token, "Impersonate-User": user}

    def client_context(self) -> ssl.SSLContext:
        context = super().client_context()
        if "client-certificate-data" in self._user:
            cert, key = self.folder / "client.crt", self.folder / "client.key"
            for path, name in zip((cert, key), CREDENTIALS[1:], strict=True):
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(self._user[name]))
            context.load_cert_chain(cert, key)
        return context

    def serving_certificate(self) -> tuple[Path, Path]:
        cert, key = self.folder / "proxy.crt", self.folder / "proxy.key"
        if not cert.exists():
            request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=proxy", "-days", "1"]
            command = [*request, "-keyout", str(key), "-out", str(cert)]
            subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_S)
        return cert, key
